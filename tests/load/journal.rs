//! A log that somebody reads, until he does not: a pipe in the place of the daemon's log file. So does a journal that was
//! stopped.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::pipe::fcntl_setpipe_size;

/// The least that the kernel gives: a few dozen lines fill it.
const ROOM: usize = 4096;
/// How often the reader looks whether there is something, and whether it may read.
const LOOK: Duration = Duration::from_millis(20);

/// What it reads it keeps beside the pipe.
pub struct Journal {
    path: PathBuf,
    stopped: Arc<AtomicBool>,
}

impl Journal {
    /// In the place of `path`, before anybody opens that. It reads until the test ends.
    pub fn instead_of(path: &Path) -> Journal {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
        // With both ends open no writer ever waits for a reader, or meets none.
        let mut pipe = waits_for_nobody().read(true).open(path).expect("it was made above");
        fcntl_setpipe_size(pipe.as_fd(), ROOM).expect("a pipe can be small");
        let mut kept = File::create(path.with_extension("kept")).expect("beside it there is room");
        let stopped = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stopped);
        std::thread::spawn(move || {
            let mut buffer = [0; ROOM];
            loop {
                let reads = !told.load(Ordering::SeqCst);
                while reads && pipe.read(&mut buffer).is_ok_and(|read| kept.write_all(&buffer[..read]).is_ok()) {}
                std::thread::sleep(LOOK);
            }
        });
        Journal { path: path.to_owned(), stopped }
    }

    /// From now on whoever writes a line waits.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let mut pipe = waits_for_nobody().open(&self.path).expect("it was made at the beginning");
        // The reader may be in the middle of its last look.
        for _ in 0..2 {
            while pipe.write_all(b"<7>nobody reads this\n").is_ok() {}
            std::thread::sleep(LOOK * 5);
        }
    }

    pub fn go_on(&self) {
        self.stopped.store(false, Ordering::SeqCst);
    }

    /// All that was read so far.
    pub fn text(&self) -> String {
        std::fs::read_to_string(self.path.with_extension("kept")).unwrap_or_default()
    }
}

fn waits_for_nobody() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}
