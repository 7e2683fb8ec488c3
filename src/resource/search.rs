//! Finds the processes of a resource by looking at the machine, whoever started them.
//!
//! A process belongs to a resource if its environment carries the resource's mark, if it shares the process group of
//! one that does, or if it descends from one that belongs. So `setsid`, a double fork and a cleared environment each
//! are found out; a process that does all three at once before anybody looked is found only by its cgroup.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, getpgrp, getpid, pidfd_open, pidfd_send_signal};

/// One living process, told apart from a later one of the same number by the time of its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    /// In clock ticks since boot.
    pub started: u64,
    pub state: char,
    pub command: String,
    marked: bool,
}

impl Found {
    /// Signals this very process; that it is gone already is no error.
    pub fn signal(&self, signal: Signal) {
        let Some(fd) = Pid::from_raw(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return;
        };
        if self.is_still_there() {
            let _ = pidfd_send_signal(fd, signal);
        }
    }

    /// Whether the process of this number is the one that was found.
    pub fn is_still_there(&self) -> bool {
        read_stat(Path::new(&format!("/proc/{}", self.pid))).is_some_and(|now| now.started == self.started)
    }

    /// The value of a variable in the environment that it was started with.
    pub fn variable(&self, name: &str) -> Option<String> {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let prefix = format!("{name}=");
        let mut variables = environment.split(|b| *b == 0);
        variables.find_map(|v| v.strip_prefix(prefix.as_bytes())).map(|v| String::from_utf8_lossy(v).into_owned())
    }
}

/// All living processes that belong to any of the marks (`NAME=value`) or are among `known`, in rising order of their
/// start. May block on a sick machine: call it off the loop.
pub fn find(marks: &[String], known: &[i32]) -> io::Result<Vec<Found>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let is_process = path.file_name().is_some_and(|n| n.to_string_lossy().bytes().all(|b| b.is_ascii_digit()));
        if is_process && let Some(mut process) = read_stat(&path) {
            process.marked = known.contains(&process.pid) || is_marked(&path, &process, marks);
            all.push(process);
        }
    }
    let mut found = belonging(all, getpid().as_raw_nonzero().get(), getpgrp().as_raw_nonzero().get());
    found.sort_by_key(|p| (p.started, p.pid));
    Ok(found)
}

/// The closure of the marked ones over groups and descent, without this process and its own group.
fn belonging(all: Vec<Found>, me: i32, my_group: i32) -> Vec<Found> {
    let mut pids: BTreeSet<i32> = all.iter().filter(|p| p.marked).map(|p| p.pid).collect();
    let mut groups: BTreeSet<i32> = all.iter().filter(|p| p.marked).map(|p| p.group).collect();
    // 0 is what every group outside this process namespace looks like, and 1 is init's.
    groups.retain(|group| *group > 1 && *group != my_group);
    loop {
        let before = pids.len();
        for process in all.iter().filter(|p| p.pid != me) {
            if pids.contains(&process.parent) || groups.contains(&process.group) {
                pids.insert(process.pid);
            }
        }
        if pids.len() == before {
            break;
        }
    }
    all.into_iter().filter(|p| p.pid != me && pids.contains(&p.pid)).collect()
}

/// One process by its number; `None` for one that is gone or a zombie.
pub fn look(pid: i32) -> Option<Found> {
    read_stat(Path::new(&format!("/proc/{pid}")))
}

/// `None` for one that is gone or a zombie. A zombie leader whose threads live on is alive.
fn read_stat(path: &Path) -> Option<Found> {
    let text = fs::read(path.join("stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name may contain anything, blanks and brackets too: what counts begins after its last bracket.
    let (head, tail) = text.rsplit_once(')')?;
    let (pid, command) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let state = fields.first()?.chars().next()?;
    let threads: u32 = fields.get(17)?.parse().ok()?;
    if matches!(state, 'X' | 'x') || (state == 'Z' && threads < 2) {
        return None;
    }
    Some(Found {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        state,
        command: command.to_owned(),
        marked: false,
    })
}

/// An environment that may not be read belongs to another user, and so not to a service of ours.
fn is_marked(path: &Path, process: &Found, marks: &[String]) -> bool {
    let has = |path: &Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|v| marks.iter().any(|m| m.as_bytes() == v))
    };
    if process.state != 'Z' {
        return has(path);
    }
    // The first thread of it has ended and shows nothing; the others still do.
    fs::read_dir(path.join("task")).is_ok_and(|tasks| tasks.flatten().any(|task| has(&task.path())))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn process(pid: i32, parent: i32, group: i32, marked: bool) -> Found {
        Found { pid, parent, group, started: 0, state: 'S', command: String::new(), marked }
    }

    #[test]
    fn groups_and_descendants_of_marked_processes_belong_and_strangers_do_not() {
        let all = vec![
            process(1, 0, 1, false),
            process(10, 1, 10, false),
            process(20, 10, 20, true),
            process(21, 20, 21, false),
            process(22, 21, 22, false),
            process(23, 1, 20, false),
            process(30, 1, 30, false),
        ];
        let pids: Vec<_> = belonging(all, 10, 10).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [20, 21, 22, 23]);
    }

    #[test]
    fn my_own_group_and_i_never_belong() {
        let strangers = [process(11, 1, 10, false), process(12, 2, 0, false)];
        let marked = [process(10, 20, 10, true), process(20, 1, 20, true), process(21, 20, 0, true)];
        let all = [marked.as_slice(), strangers.as_slice()].concat();
        let pids: Vec<_> = belonging(all, 10, 10).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [20, 21]);
    }

    #[test]
    fn a_real_process_is_found_by_its_mark_and_signalled() {
        let mark = format!("LEASEHOLD_RESOURCE=search-test:{}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut child = Command::new("sleep").arg("432").env(name, value).stdout(Stdio::null()).spawn().unwrap();
        let marks = [mark.clone()];
        let found = loop {
            // Between fork and exec the child still shows this program's environment.
            let found = find(&marks, &[]).unwrap();
            if !found.is_empty() {
                break found;
            }
        };
        assert_eq!(found[0].pid, child.id().cast_signed());
        assert_eq!(found[0].variable(name).as_deref(), Some(value));
        found[0].signal(Signal::KILL);
        assert!(!child.wait().unwrap().success());
        assert!(!found[0].is_still_there());
        assert!(find(&marks, &[]).unwrap().is_empty());
    }
}
