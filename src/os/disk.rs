//! The steps by which the durable record reaches the disk, behind a trait: tests tear, lose and fail each of them.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, RenameFlags, fadvise, renameat_with};
use rustix::io::Errno;

/// Whether there is a file to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Present,
    Missing,
}

/// One file in one directory, step by step. A disk has at most one file open: the last one opened or created.
pub trait Disk: Send {
    /// The file's name for people.
    fn path(&self) -> &Path;
    /// Opens the file, for this process alone.
    fn open(&mut self) -> io::Result<Found>;
    /// Makes an empty file under a temporary name, in place of a former attempt's.
    fn create(&mut self) -> io::Result<()>;
    /// Gives the created file its final name. An existing one is not replaced.
    fn publish(&mut self) -> io::Result<()>;
    /// Makes names durable.
    fn sync_directory(&mut self) -> io::Result<()>;
    /// Writes all of `bytes`, or fails.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes contents and length durable.
    fn sync_all(&mut self) -> io::Result<()>;
    /// Makes contents durable; the length has not changed.
    fn sync_data(&mut self) -> io::Result<()>;
    /// Forgets what is cached and clean: the next read comes from the medium.
    fn forget_cache(&mut self) -> io::Result<()>;
    /// The whole file, but no more than `limit` bytes.
    fn read(&mut self, limit: usize) -> io::Result<Vec<u8>>;
}

/// A real directory.
#[derive(Debug)]
pub struct RealDisk {
    directory: PathBuf,
    path: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
}

impl RealDisk {
    /// The file `name` in `directory`, which must exist: a directory made here could hide one that is not mounted yet.
    pub fn new(directory: &Path, name: &str) -> RealDisk {
        RealDisk {
            directory: directory.to_owned(),
            path: directory.join(name),
            temporary: directory.join(format!("{name}.new")),
            file: None,
        }
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("RecordFile opens or creates before it does anything else")
    }
}

impl Disk for RealDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&mut self) -> io::Result<Found> {
        match OpenOptions::new().read(true).write(true).open(&self.path) {
            Ok(file) => {
                lock(&file)?;
                self.file = Some(file);
                Ok(Found::Present)
            }
            // A missing directory is an error: only the file may be missing.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.directory.is_dir() => Ok(Found::Missing),
            Err(e) => Err(e),
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.temporary)?;
        // Emptied only under the lock: it may be the file of another process that is just being made.
        lock(&file)?;
        file.set_len(0)?;
        self.file = Some(file);
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        match renameat_with(CWD, &self.temporary, CWD, &self.path, RenameFlags::NOREPLACE) {
            // This file system cannot refuse to replace; the lock of the run-time directory guards the same thing.
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(&self.temporary, &self.path),
            other => Ok(other?),
        }
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file().write_all_at(bytes, offset)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.file().sync_all()
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.file().sync_data()
    }

    fn forget_cache(&mut self) -> io::Result<()> {
        Ok(fadvise(self.file(), 0, None, Advice::DontNeed)?)
    }

    fn read(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        read_up_to(self.file(), limit)
    }
}

/// The first `limit` bytes of the file, fewer if it is shorter.
pub fn read_up_to(file: &File, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; limit];
    let mut filled = 0;
    while filled < limit {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// An advisory lock that lasts until the file is closed, also while its holder is stopped (SIGSTOP).
fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(e) => e,
    })
}
