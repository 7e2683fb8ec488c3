//! A named pipe by which the daemon wakes the guard when a deadline comes nearer, a standing changes or a plan is new.
//!
//! The guard's timer stands at the deadline that it knew; renewals move that away, and need no call. What needs to be
//! known sooner rings. A bell that nobody hears is no error: the guard looks by itself as well, once in a while.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};
use rustix::io::Errno;

const FILE: &str = "guard.bell";

/// Either end.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    /// The pipe cannot be made in this directory, or another file is in its place.
    pub fn open(directory: &Path) -> io::Result<Bell> {
        let path = directory.join(FILE);
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Read and write: so neither end waits for the other, and neither ever sees the other go away.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = openat(CWD, &path, flags, Mode::empty())?;
        if !FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode).is_fifo() {
            return Err(io::Error::other("there is another file in the place of the guard's bell"));
        }
        Ok(Bell(fd))
    }

    /// Never waits. A pipe that is full rings already.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, b"!");
    }

    /// Stops ringing.
    pub fn hush(&self) {
        let mut heard = [0; 512];
        while rustix::io::read(&self.0, &mut heard).is_ok_and(|length| length > 0) {}
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn rings(bell: &Bell) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn one_end_rings_and_the_other_hears_it_until_it_is_hushed() {
        let dir = tempfile::tempdir().unwrap();
        let (daemon, guard) = (Bell::open(dir.path()).unwrap(), Bell::open(dir.path()).unwrap());
        assert!(!rings(&guard));
        (0..100_000).for_each(|_| daemon.ring());
        assert!(rings(&guard));
        guard.hush();
        assert!(!rings(&guard));
    }

    #[test]
    fn another_file_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "").unwrap();
        assert!(Bell::open(dir.path()).unwrap_err().to_string().contains("another file"));
    }
}
