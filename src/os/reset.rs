//! The end of the ladder: this machine is reset, at once and without any orderly shutdown.
//!
//! `reboot(2)` may hang in the shutdown routine of a device; so it is called from a thread of its own, and the magic
//! SysRq key follows, which asks nobody. Both are looked up and opened ahead of need. In a container neither may reach
//! the host: `reboot(2)` there ends the container, and the magic key is left alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use rustix::system::{RebootCommand, reboot};

/// Messages of this level reach the console, and pstore where there is one (syslog(2): KERN_EMERG).
const EMERGENCY: &[u8] = b"<0>";
/// The inode of the first process namespace (linux/proc_ns.h, PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Everything that a reset needs, open.
#[derive(Debug)]
pub struct LastResort {
    kernel_log: Option<File>,
    means: Means,
}

#[derive(Debug)]
enum Means {
    Real {
        rebooter: Thread,
        ordered: Arc<AtomicBool>,
        magic_key: Option<File>,
    },
    /// For tests: whoever waits for the reset finds its reason here.
    Written(File),
}

impl LastResort {
    /// # Errors
    /// No thread can be started.
    pub fn prepare() -> io::Result<LastResort> {
        let ordered = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ordered);
        let thread = std::thread::Builder::new().name("reset".to_owned()).stack_size(64 << 10);
        let handle = thread.spawn(move || {
            while !seen.load(Ordering::SeqCst) {
                std::thread::park();
            }
            let _ = reboot(RebootCommand::Restart);
        })?;
        let magic_key = is_first_namespace().then(|| appending("/proc/sysrq-trigger")).flatten();
        let means = Means::Real { rebooter: handle.thread().clone(), ordered, magic_key };
        Ok(LastResort { kernel_log: appending("/dev/kmsg"), means })
    }

    /// For tests: instead of a reset, its reason is appended to this file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn written_to(path: &Path) -> io::Result<LastResort> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(LastResort { kernel_log: None, means: Means::Written(file) })
    }

    /// What works here, for people.
    pub fn described(&self) -> &'static str {
        match &self.means {
            Means::Real { magic_key: Some(_), .. } => "reboot(2), then the magic SysRq key",
            Means::Real { magic_key: None, .. } => "reboot(2) alone",
            Means::Written(_) => "NONE: this guard is one of a test",
        }
    }

    /// The reason for the kernel's log, then the first step. Returns: the kernel may take its time, or refuse.
    pub fn reboot(&self, reason: &[u8]) {
        self.log(reason);
        match &self.means {
            Means::Real { rebooter, ordered, .. } => {
                ordered.store(true, Ordering::SeqCst);
                rebooter.unpark();
            }
            Means::Written(file) => {
                let _ = (&*file).write_all(reason);
            }
        }
    }

    /// The second step. Returns only where it does not work.
    pub fn press_magic_key(&self) {
        if let Means::Real { magic_key: Some(key), .. } = &self.means {
            let mut key: &File = key;
            let _ = key.write_all(b"b");
        }
    }

    fn log(&self, reason: &[u8]) {
        let Some(mut log) = self.kernel_log.as_ref() else { return };
        // One record is one write.
        let mut line = [0; 512];
        let length = reason.len().min(line.len() - EMERGENCY.len());
        line[..EMERGENCY.len()].copy_from_slice(EMERGENCY);
        line[EMERGENCY.len()..][..length].copy_from_slice(&reason[..length]);
        let _ = log.write_all(&line[..EMERGENCY.len() + length]);
    }
}

fn appending(path: &str) -> Option<File> {
    OpenOptions::new().write(true).open(path).ok()
}

fn is_first_namespace() -> bool {
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|found| found.ino() == FIRST_PID_NAMESPACE)
}
