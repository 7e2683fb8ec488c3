//! Finds the processes of the resources as `resource::search` does, with memory that was there from the start.
//!
//! A process belongs if its environment carries a mark of the plan, if it is a server of the plan by program and working
//! directory, if it shares the process group of one that belongs,
//! or descends from one. What lives in a cgroup of the plan is killed and counted there. This process and the daemon never belong, nor does their group.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, readlinkat_raw, seek};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::plan::Plan;

/// More processes than this on one machine, and the guard says that it cannot tell.
const MOST: usize = 32 << 10;
const DIRECTORY_SPACE: usize = 16 << 10;
const TASKS_SPACE: usize = 2 << 10;
/// Longer than any mark; an environment is read through it piece by piece.
const TEXT_SPACE: usize = 16 << 10;
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Why a look tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blind {
    /// `/proc` cannot be read.
    Unreadable,
    /// The table is full.
    TooMany,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    pid: i32,
    parent: i32,
    group: i32,
    started: u64,
    belongs: bool,
}

/// The table of processes and all space that a look takes.
pub struct Scan {
    proc: OwnedFd,
    table: Vec<Entry>,
    directory: Box<[MaybeUninit<u8>; DIRECTORY_SPACE]>,
    text: Box<[u8; TEXT_SPACE]>,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("processes", &self.table.len()).finish_non_exhaustive()
    }
}

impl Scan {
    /// # Errors
    /// `/proc` is not mounted.
    pub fn new() -> Result<Scan, Errno> {
        let proc = openat(CWD, c"/proc", READ | OFlags::DIRECTORY, Mode::empty())?;
        let (directory, text) = (Box::new([MaybeUninit::uninit(); DIRECTORY_SPACE]), Box::new([0; TEXT_SPACE]));
        Ok(Scan { proc, table: Vec::with_capacity(MOST), directory, text })
    }

    /// Looks through all processes; gives how many belong. `daemon` is spared.
    pub fn look(&mut self, plan: &Plan, daemon: i32) -> Result<usize, Blind> {
        self.table.clear();
        self.read_all(plan)?;
        self.close_over(daemon);
        Ok(self.table.iter().filter(|entry| entry.belongs).count())
    }

    /// SIGKILL to all that the last look found.
    pub fn kill(&self) {
        self.table.iter().filter(|entry| entry.belongs).for_each(|entry| {
            let Some(pid) = Pid::from_raw(entry.pid) else { return };
            let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
            // The number may be another process's by now; behind the descriptor it cannot change any more.
            if self.started(entry.pid) == Some(entry.started) {
                let _ = pidfd_send_signal(fd, Signal::KILL);
            }
        });
    }

    fn started(&self, pid: i32) -> Option<u64> {
        let mut name = Name::new();
        let mut stat = [0; 1024];
        let length = read_file(&self.proc, name.number(pid).with(b"/stat"), &mut stat)?;
        parse_stat(&stat[..length]).map(|stat| stat.entry.started)
    }

    fn read_all(&mut self, plan: &Plan) -> Result<(), Blind> {
        seek(&self.proc, SeekFrom::Start(0)).map_err(|_| Blind::Unreadable)?;
        let mut entries = RawDir::new(&self.proc, &mut self.directory[..]);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|_| Blind::Unreadable)?;
            if !entry.file_name().to_bytes().iter().all(u8::is_ascii_digit) {
                continue;
            }
            let Some(found) = read_entry(&self.proc, entry.file_name(), plan, &mut self.text[..]) else { continue };
            if self.table.len() == MOST {
                return Err(Blind::TooMany);
            }
            self.table.push(found);
        }
        Ok(())
    }

    /// Groups and descendants of those that belong, to the last.
    fn close_over(&mut self, daemon: i32) {
        let me = getpid().as_raw_nonzero().get();
        let spared = |pid: i32| pid == me || pid == daemon || pid == 1;
        let group_of = |table: &[Entry], pid: i32| table.iter().find(|e| e.pid == pid).map_or(0, |e| e.group);
        let groups = [group_of(&self.table, me), group_of(&self.table, daemon)];
        self.table.iter_mut().filter(|e| spared(e.pid)).for_each(|e| e.belongs = false);
        let mut changed = true;
        while changed {
            changed = false;
            for at in 0..self.table.len() {
                let Entry { pid, group, belongs: true, .. } = self.table[at] else { continue };
                // 0 is what every group outside this process namespace looks like, and 1 is init's.
                let group = Some(group).filter(|group| *group > 1 && !groups.contains(group));
                for other in self.table.iter_mut().filter(|e| !e.belongs && !spared(e.pid)) {
                    other.belongs = other.parent == pid || group == Some(other.group);
                    changed |= other.belongs;
                }
            }
        }
    }
}

/// `None` for one that is gone, or a zombie without living threads.
fn read_entry(proc: &OwnedFd, name: &CStr, plan: &Plan, text: &mut [u8]) -> Option<Entry> {
    let flags = READ | OFlags::DIRECTORY;
    let process = openat(proc, name, flags, Mode::empty()).ok()?;
    let length = read_file(&process, c"stat", text)?;
    let Stat { mut entry, zombie } = parse_stat(&text[..length])?;
    entry.belongs = match zombie {
        false => is_marked(&process, plan, text),
        true => is_marked_by_a_thread(&process, plan, text),
    } || is_server(&process, plan, text);
    Some(entry)
}

/// By names alone: the directory itself may lie on a storage that does not answer. One that is gone has ` (deleted)` behind it.
fn is_server(process: &OwnedFd, plan: &Plan, text: &mut [u8]) -> bool {
    if plan.servers().next().is_none() {
        return false;
    }
    let half = text.len() / 2;
    let (first, second) = text.split_at_mut(half);
    let (Some(program), Some(directory)) = (link(process, c"exe", first), link(process, c"cwd", second)) else {
        return false;
    };
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let directory = directory.strip_suffix(b" (deleted)").unwrap_or(directory);
    plan.servers().any(|(program, place)| name.starts_with(program) && directory == place)
}

fn link<'s>(process: &OwnedFd, name: &CStr, space: &'s mut [u8]) -> Option<&'s [u8]> {
    let length = readlinkat_raw(process, name, &mut *space).ok()?;
    space.get(..length)
}

/// The first thread has ended and shows nothing; the others still do.
fn is_marked_by_a_thread(process: &OwnedFd, plan: &Plan, text: &mut [u8]) -> bool {
    let Ok(tasks) = openat(process, c"task", READ | OFlags::DIRECTORY, Mode::empty()) else { return false };
    let mut space = [MaybeUninit::uninit(); TASKS_SPACE];
    let mut entries = RawDir::new(&tasks, &mut space);
    while let Some(Ok(entry)) = entries.next() {
        let task = openat(&tasks, entry.file_name(), READ | OFlags::DIRECTORY, Mode::empty());
        if task.is_ok_and(|task| is_marked(&task, plan, text)) {
            return true;
        }
    }
    false
}

/// Whether the environment holds a mark. One that may not be read belongs to another user, and so not to a service.
fn is_marked(process: &OwnedFd, plan: &Plan, text: &mut [u8]) -> bool {
    let Ok(file) = openat(process, c"environ", READ, Mode::empty()) else { return false };
    // A variable that does not fit is none of ours: its rest is read and dropped.
    let (mut filled, mut too_long) = (0, false);
    loop {
        let Ok(read) = rustix::io::read(&file, &mut text[filled..]) else { return false };
        filled += read;
        let mut begin = 0;
        while let Some(length) = text[begin..filled].iter().position(|byte| *byte == 0) {
            let variable = &text[begin..begin + length];
            if !std::mem::take(&mut too_long) && plan.marks().any(|mark| mark == variable) {
                return true;
            }
            begin += length + 1;
        }
        if read == 0 {
            return !too_long && plan.marks().any(|mark| mark == &text[begin..filled]);
        }
        text.copy_within(begin..filled, 0);
        filled -= begin;
        if filled == text.len() {
            (filled, too_long) = (0, true);
        }
    }
}

struct Stat {
    entry: Entry,
    zombie: bool,
}

/// proc(5), stat: the name may hold anything, so what counts begins after the last bracket.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let text_end = text.iter().rposition(|byte| *byte == b')')?;
    let name_begin = text.iter().position(|byte| *byte == b' ')?;
    let pid = number(&text[..name_begin])?;
    let mut fields = text[text_end + 1..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    let threads: u32 = number(fields.nth(14)?)?;
    let started = number(fields.nth(1)?)?;
    let zombie = state == b'Z';
    if matches!(state, b'X' | b'x') || zombie && threads < 2 {
        return None;
    }
    Some(Stat { entry: Entry { pid, parent, group, started, belongs: false }, zombie })
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Fills `space` from the beginning of a small file; `None` where there is none.
fn read_file(directory: impl AsFd, name: &CStr, space: &mut [u8]) -> Option<usize> {
    let file = openat(directory, name, READ, Mode::empty()).ok()?;
    rustix::io::read(&file, space).ok().filter(|length| *length > 0)
}

/// A path that is put together without the heap.
#[derive(Debug)]
pub struct Name {
    bytes: [u8; Name::ROOM],
    length: usize,
}

impl Name {
    /// Paths of cgroups have a few hundred bytes.
    const ROOM: usize = 1024;

    pub fn new() -> Name {
        Name { bytes: [0; Name::ROOM], length: 0 }
    }

    fn number(&mut self, number: i32) -> &mut Name {
        use std::io::Write;
        let mut rest = &mut self.bytes[self.length..];
        let before = rest.len();
        let _ = write!(rest, "{number}");
        self.length += before - rest.len();
        self
    }

    pub fn push(&mut self, part: &[u8]) -> &mut Name {
        let room = Name::ROOM - 1 - self.length;
        let part = &part[..part.len().min(room)];
        self.bytes[self.length..][..part.len()].copy_from_slice(part);
        self.length += part.len();
        self
    }

    /// The whole with this at its end. What does not fit is cut off, and names no file.
    pub fn with(&mut self, part: &[u8]) -> &CStr {
        self.push(part);
        self.bytes[self.length] = 0;
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::guard::plan;
    use crate::resource::{Remains, ServerRemains};

    fn plan_of(marks: &[String]) -> Plan {
        plan::in_memory(&Remains { marks: marks.to_vec(), ..Remains::default() })
    }

    fn mark(test: &str) -> String {
        format!("LEASEHOLD_RESOURCE=guard-scan-{test}:{}", std::process::id())
    }

    fn spawn(mark: &str, more: &[(&str, &str)], script: &str) -> Child {
        let (name, value) = mark.split_once('=').unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).env_clear().envs(more.iter().copied()).env(name, value);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    fn until_found(scan: &mut Scan, plan: &Plan, count: usize) {
        while scan.look(plan, 0).unwrap() < count {
            // Between fork and exec a child still shows this program's environment.
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_service_with_a_child_that_hid_its_mark_is_killed_whole_and_then_nothing_is_left() {
        let mark = mark("whole");
        let plan = plan_of(std::slice::from_ref(&mark));
        let mut scan = Scan::new().unwrap();
        assert_eq!(scan.look(&plan, 0), Ok(0));
        let mut child = spawn(&mark, &[("PATH", "/usr/bin:/bin")], "env -i setsid sleep 987 & wait");
        until_found(&mut scan, &plan, 2);
        scan.kill();
        assert!(!child.wait().unwrap().success());
        while scan.look(&plan, 0).unwrap() > 0 {
            scan.kill();
        }
    }

    #[test]
    fn a_mark_behind_a_huge_environment_is_found_and_a_longer_name_is_not_it() {
        let mark = mark("huge");
        let plan = plan_of(std::slice::from_ref(&mark));
        let mut scan = Scan::new().unwrap();
        let huge = "x".repeat(60_000);
        let script = "exec sleep 986";
        let mut longer = spawn(&format!("{mark}9"), &[("PATH", "/usr/bin:/bin")], script);
        let mut child = spawn(&mark, &[("A", &huge), ("B", &huge), ("PATH", "/usr/bin:/bin")], script);
        until_found(&mut scan, &plan, 1);
        assert_eq!(scan.look(&plan, 0), Ok(1));
        scan.kill();
        assert!(!child.wait().unwrap().success());
        assert_eq!(longer.try_wait().unwrap(), None, "a stranger lives");
        longer.kill().unwrap();
        longer.wait().unwrap();
    }

    #[test]
    fn the_daemon_is_spared_even_if_it_carries_the_mark() {
        let mark = mark("daemon");
        let plan = plan_of(std::slice::from_ref(&mark));
        let mut scan = Scan::new().unwrap();
        let mut daemon = spawn(&mark, &[("PATH", "/usr/bin:/bin")], "exec sleep 985");
        until_found(&mut scan, &plan, 1);
        assert_eq!(scan.look(&plan, daemon.id().cast_signed()), Ok(0));
        scan.kill();
        assert_eq!(daemon.try_wait().unwrap(), None);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    #[test]
    fn a_server_that_has_overwritten_its_environment_is_found_by_its_program_and_directory() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().canonicalize().unwrap();
        std::fs::copy("/bin/sleep", data.join("postgres")).unwrap();
        let server = ServerRemains { program: "postgres".into(), directory: data.clone() };
        let plan = plan::in_memory(&Remains { servers: vec![server], ..Remains::default() });
        let mut scan = Scan::new().unwrap();
        let spawn = |program: &std::path::Path| {
            Command::new(program).arg("984").env_clear().current_dir(&data).spawn().unwrap()
        };
        let (mut server, mut stranger) = (spawn(&data.join("postgres")), spawn("/bin/sleep".as_ref()));
        until_found(&mut scan, &plan, 1);
        scan.kill();
        assert!(!server.wait().unwrap().success());
        assert_eq!(scan.look(&plan, 0), Ok(0));
        assert_eq!(stranger.try_wait().unwrap(), None, "another program in the same directory");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_line_of_proc_is_understood_whatever_the_name_of_the_program() {
        let line = b"77 (a) b ) S 5 6 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let Stat { entry, zombie } = parse_stat(line).unwrap();
        assert_eq!((entry.pid, entry.parent, entry.group, entry.started, zombie), (77, 5, 6, 4242, false));
        assert!(parse_stat(b"77 (x) Z 5 6 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1").is_none());
        assert!(parse_stat(b"77 (x) Z 5 6 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 4242 1 1").unwrap().zombie);
        assert!(parse_stat(b"").is_none() && parse_stat(b")").is_none());
    }
}
