//! The run-time record of this boot, and the lock of one daemon a node. Both in the run-time directory, a tmpfs.
//!
//! The record lets a restarted daemon go on inside its lease (protocol section 6, Joining) and says whether any daemon
//! of this boot has heard the peer. It is written at each renewal: one `pwrite` into a preallocated file, never synced,
//! because it must outlive the daemon and not the machine. It carries the boot id: that of another boot is no record.
//!
//! ```text
//! 0      8         12      16        32      40         48    80
//! | magic | version | flags | boot id | token | deadline | SHA-256 |
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::disk::read_up_to;
use crate::core::{BootId, Instant, Token};

const RECORD: &str = "lease";
const LOCK: &str = "daemon.lock";
const MAGIC: [u8; 8] = *b"LEASERUN";
const VERSION: u32 = 1;
const SUM_AT: usize = 48;
const SIZE: usize = SUM_AT + 32;

const HAD_CONTACT: u32 = 1;
const LEASE: u32 = 2;
const SOLE: u32 = 4;

/// What an earlier daemon of this boot left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTimeRecord {
    /// Some daemon of this boot has heard the peer.
    pub had_contact: bool,
    /// The right to act that was armed last and not given up.
    pub lease: Option<RunTimeLease>,
}

/// A right to act, until `deadline` on the boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTimeLease {
    pub token: Token,
    pub deadline: Instant,
    /// Needs no grant.
    pub sole: bool,
}

/// Why this daemon cannot use the run-time directory.
#[derive(Debug, thiserror::Error)]
pub enum RunTimeError {
    #[error("cannot {step} {}: {source}", path.display())]
    Io { path: PathBuf, step: &'static str, source: io::Error },
    #[error("another leasehold daemon runs on this node: {holder} holds {}.\n{}", path.display(), holder.advice())]
    Locked { path: PathBuf, holder: Holder },
}

/// Who holds the lock, as far as it can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: Option<u32>,
    /// It is stopped (SIGSTOP, a debugger) and goes on holding.
    pub stopped: bool,
}

/// The open run-time directory. While it lives no other daemon gets it.
#[derive(Debug)]
pub struct RunTime {
    file: File,
    path: PathBuf,
    boot: BootId,
    now: RunTimeRecord,
    /// Closing it gives the lock up.
    _lock: File,
}

impl RunTime {
    /// Takes the lock in `dir`, which must exist, then reads what an earlier daemon of this boot left.
    ///
    /// # Errors
    /// Another daemon holds the lock, also a stopped one; or the directory cannot be used.
    pub fn open(dir: &Path, boot: BootId) -> Result<RunTime, RunTimeError> {
        let lock = take_lock(&dir.join(LOCK))?;
        let path = dir.join(RECORD);
        let opened = private().open(&path).and_then(|file| Ok((read_up_to(&file, SIZE + 1)?, file)));
        let (bytes, file) = opened.map_err(|e| failed(&path, "open", e))?;
        let mut run_time = RunTime { file, path, boot, now: decode(&bytes, boot).unwrap_or_default(), _lock: lock };
        run_time.write(run_time.now)?;
        Ok(run_time)
    }

    /// What is recorded: at first by an earlier daemon of this boot, later by this one.
    pub fn load(&self) -> RunTimeRecord {
        self.now
    }

    /// Records the right to act until `deadline`. One small write to memory; call it before anything relies on it.
    ///
    /// # Errors
    /// The directory is gone or full. The right is not recorded: a restart would stop the service.
    pub fn arm(&mut self, token: Token, deadline: Instant, sole: bool) -> Result<(), RunTimeError> {
        self.write(RunTimeRecord { lease: Some(RunTimeLease { token, deadline, sole }), ..self.now })
    }

    /// Removes the right: call it before the first resource stops.
    ///
    /// # Errors
    /// The old right may still be recorded: the caller must not let this node be restarted into it.
    pub fn disarm(&mut self) -> Result<(), RunTimeError> {
        self.write(RunTimeRecord { lease: None, ..self.now })
    }

    /// Notes that the peer was heard in this boot. Writes once.
    ///
    /// # Errors
    /// As [`RunTime::arm`].
    pub fn note_contact(&mut self) -> Result<(), RunTimeError> {
        if self.now.had_contact { Ok(()) } else { self.write(RunTimeRecord { had_contact: true, ..self.now }) }
    }

    fn write(&mut self, record: RunTimeRecord) -> Result<(), RunTimeError> {
        self.file.write_all_at(&encode(record, self.boot), 0).map_err(|e| failed(&self.path, "write", e))?;
        self.now = record;
        Ok(())
    }
}

fn encode(record: RunTimeRecord, boot: BootId) -> [u8; SIZE] {
    let lease = record.lease.map_or(0, |l| LEASE | if l.sole { SOLE } else { 0 });
    let flags = lease | if record.had_contact { HAD_CONTACT } else { 0 };
    let (token, deadline) = record.lease.map_or((0, 0), |l| (l.token.0, l.deadline.0));
    let mut bytes = [0; SIZE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&flags.to_le_bytes());
    bytes[16..32].copy_from_slice(&boot.0);
    bytes[32..40].copy_from_slice(&token.to_le_bytes());
    bytes[40..48].copy_from_slice(&deadline.to_le_bytes());
    let sum = Sha256::digest(&bytes[..SUM_AT]);
    bytes[SUM_AT..].copy_from_slice(&sum);
    bytes
}

/// `None` for everything that this version did not write whole in this boot: absent is the safe reading.
fn decode(bytes: &[u8], boot: BootId) -> Option<RunTimeRecord> {
    let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
    let ours = bytes[..8] == MAGIC && bytes[8..12] == VERSION.to_le_bytes() && bytes[16..32] == boot.0;
    let flags = u32::from_le_bytes(bytes[12..16].try_into().ok()?);
    if !ours || bytes[SUM_AT..] != Sha256::digest(&bytes[..SUM_AT])[..] || flags > HAD_CONTACT | LEASE | SOLE {
        return None;
    }
    let token = Token(u64::from_le_bytes(bytes[32..40].try_into().ok()?));
    let deadline = Instant(u64::from_le_bytes(bytes[40..48].try_into().ok()?));
    let lease = (flags & LEASE != 0).then_some(RunTimeLease { token, deadline, sole: flags & SOLE != 0 });
    Some(RunTimeRecord { had_contact: flags & HAD_CONTACT != 0, lease })
}

/// The lock is the kernel's (flock): it ends with the process however that ends, and a stopped process keeps it.
fn take_lock(path: &Path) -> Result<File, RunTimeError> {
    let mut file = private().open(path).map_err(|e| failed(path, "open", e))?;
    match file.try_lock() {
        Ok(()) => {
            let told = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            told.map_err(|e| failed(path, "write", e))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            Err(RunTimeError::Locked { path: path.to_owned(), holder: Holder::named_in(&mut file) })
        }
        Err(TryLockError::Error(e)) => Err(failed(path, "lock", e)),
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

fn failed(path: &Path, step: &'static str, source: io::Error) -> RunTimeError {
    RunTimeError::Io { path: path.to_owned(), step, source }
}

impl Holder {
    fn named_in(file: &mut File) -> Holder {
        let mut text = String::new();
        // A pid has at most seven digits; a file that holds more names nobody.
        let pid = file.take(16).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
        Holder { pid, stopped: pid.is_some_and(is_stopped) }
    }

    fn advice(&self) -> String {
        match (self.pid, self.stopped) {
            (Some(pid), false) => format!("`leasehold status` asks it. To end it: kill {pid}"),
            (Some(pid), true) => {
                format!(
                    "It is stopped and may go on at any moment. Let it go on: kill -CONT {pid}; or end it: kill -KILL {pid}"
                )
            }
            (None, _) => "It has not written its pid yet: try again, or look for it with `lslocks`.".to_owned(),
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}{}", if self.stopped { " (stopped)" } else { "" }),
            None => f.write_str("a process"),
        }
    }
}

/// State `T` or `t` in /proc: stopped by a signal or by a debugger.
fn is_stopped(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim().starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

    use super::*;

    const BOOT: BootId = BootId([5; 16]);
    const HOLDER_DIR: &str = "LEASEHOLD_TEST_HOLDER_DIR";
    const LEASE_2: RunTimeLease = RunTimeLease { token: Token(2), deadline: Instant(77), sole: false };

    fn armed(dir: &Path) -> RunTimeRecord {
        let mut run_time = RunTime::open(dir, BOOT).unwrap();
        run_time.note_contact().unwrap();
        run_time.arm(Token(2), Instant(77), false).unwrap();
        run_time.load()
    }

    #[test]
    fn the_next_daemon_of_this_boot_finds_contact_and_lease() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(RunTime::open(dir.path(), BOOT).unwrap().load(), RunTimeRecord::default());
        let left = armed(dir.path());
        assert_eq!(left, RunTimeRecord { had_contact: true, lease: Some(LEASE_2) });
        let mut next = RunTime::open(dir.path(), BOOT).unwrap();
        assert_eq!(next.load(), left);
        next.arm(Token(4), Instant(99), true).unwrap();
        drop(next);
        let lease = RunTime::open(dir.path(), BOOT).unwrap().load().lease.unwrap();
        assert_eq!(lease, RunTimeLease { token: Token(4), deadline: Instant(99), sole: true });
    }

    #[test]
    fn a_disarmed_lease_is_gone_and_contact_stays() {
        let dir = tempfile::tempdir().unwrap();
        armed(dir.path());
        RunTime::open(dir.path(), BOOT).unwrap().disarm().unwrap();
        let left = RunTime::open(dir.path(), BOOT).unwrap().load();
        assert_eq!(left, RunTimeRecord { had_contact: true, lease: None });
    }

    #[test]
    fn a_record_of_another_boot_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        armed(dir.path());
        assert_eq!(RunTime::open(dir.path(), BootId([6; 16])).unwrap().load(), RunTimeRecord::default());
        assert_eq!(RunTime::open(dir.path(), BOOT).unwrap().load(), RunTimeRecord::default(), "and is replaced");
    }

    #[test]
    fn a_record_torn_at_any_byte_or_with_any_bit_flipped_is_absent() {
        let old = encode(RunTimeRecord { had_contact: true, lease: Some(LEASE_2) }, BOOT);
        let new = encode(RunTimeRecord { had_contact: true, lease: None }, BOOT);
        assert!(decode(&old, BOOT).is_some() && decode(&new, BOOT).is_some());
        for cut in 0..SIZE {
            let torn = [&new[..cut], &old[cut..]].concat();
            let read = decode(&torn, BOOT);
            assert!(read.is_none() || torn == old || torn == new, "torn after {cut} bytes");
            assert_eq!(decode(&old[..cut], BOOT), None);
        }
        for bit in 0..SIZE * 8 {
            let mut flipped = old;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped, BOOT), None);
        }
    }

    #[test]
    fn a_directory_that_is_missing_is_an_error_that_names_it() {
        let text = RunTime::open(Path::new("/nonexistent/run"), BOOT).unwrap_err().to_string();
        assert!(text.contains("/nonexistent/run/daemon.lock"), "{text}");
    }

    /// Not a test of its own: the other process of the next test.
    #[test]
    fn holder_of_the_lock_in_another_process() {
        let Some(dir) = std::env::var_os(HOLDER_DIR) else { return };
        let _held = RunTime::open(Path::new(&dir), BOOT).unwrap();
        std::fs::write(Path::new(&dir).join("held"), "").unwrap();
        let _ = std::io::stdin().read(&mut [0]);
    }

    fn spawn_holder(dir: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "os::runtime::tests::holder_of_the_lock_in_another_process"]).env(HOLDER_DIR, dir);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        while !dir.join("held").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child
    }

    fn lock_error(dir: &Path) -> String {
        RunTime::open(dir, BOOT).unwrap_err().to_string()
    }

    #[test]
    fn a_daemon_keeps_the_lock_while_it_is_stopped_and_loses_it_when_it_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut holder = spawn_holder(dir.path());
        let pid = Pid::from_child(&holder);
        let running = lock_error(dir.path());
        assert!(running.contains(&format!("process {} holds", holder.id())), "{running}");
        assert!(running.contains(&format!("kill {}", holder.id())), "{running}");

        kill_process(pid, Signal::STOP).unwrap();
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).unwrap();
        let stopped = lock_error(dir.path());
        assert!(stopped.contains("(stopped)") && stopped.contains(&format!("kill -KILL {}", holder.id())), "{stopped}");

        holder.kill().unwrap();
        holder.wait().unwrap();
        RunTime::open(dir.path(), BOOT).unwrap();
    }
}
