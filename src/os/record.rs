//! The durable record (protocol section 4): two preallocated slots in one file, written in turn, each sealed.
//!
//! ```text
//! open:   sync, forget the cache, read both slots, take the higher whole one
//! write:  the other slot <- generation + 1, then fdatasync, then acknowledge
//! ```
//!
//! A crash during a write spoils only the slot that held the older generation, so that a reader finds the record before
//! or after the write and nothing else, and an acknowledged write is never lost (S5). No block is allocated after the
//! file was made, so that a full disk cannot stop a promotion (but for file systems that copy on write).
//!
//! An error of a write or of a sync is final for the object: the kernel may already have forgotten what it failed to
//! write, and a second sync would succeed without having written it. For the same reason a reader first syncs and drops
//! the cache: what a former daemon failed to sync must not be read back as if it were durable.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, Found, RealDisk};
use super::slot::{self, SLOT, Slot};
use crate::core::Record;

/// Name of the file in the state directory.
pub const FILE: &str = "record";
const FILE_SIZE: usize = 2 * SLOT;

/// The record's file, open for this process alone.
#[derive(Debug)]
pub struct RecordFile<D: Disk = RealDisk> {
    disk: D,
    /// Of the newest whole slot.
    generation: u64,
    /// No record was written yet: the first one goes into both slots, so that from its acknowledgement on no slot says
    /// "never written" any more.
    unwritten: bool,
    finding: Finding,
    /// The text of the first error: nothing is written any more.
    poisoned: Option<String>,
}

/// What the reader noticed. Worth a journal line unless `Clean`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    Clean,
    /// There was no file; it was made.
    Created,
    /// One slot is not whole, the other is: a write was cut off. Expected after a crash.
    TornWrite {
        slot: u64,
    },
    /// Generations that are not neighbours: an acknowledged write never reached the medium. The disk lies about syncs.
    LostWrite {
        newest: u64,
        other: u64,
    },
}

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot {step} the record {}: {}", path.display(), reason(source))]
    Io { path: PathBuf, step: &'static str, source: io::Error },
    #[error("the record {} is in use by another process: is another leasehold daemon running with this state directory?", path.display())]
    Busy { path: PathBuf },
    #[error("the record {} is damaged: {what}.\n{}", path.display(), WayOut(path))]
    Damaged { path: PathBuf, what: String },
    #[error(
        "the record {} has layout {found}, this program knows {}: it was written by another version of leasehold.\n\
         Start that version again. If it is gone for good:\n{}", path.display(), slot::VERSION, WayOut(path)
    )]
    OtherVersion { path: PathBuf, found: u32 },
    #[error(
        "the record {} is not written any more after an earlier error ({first}): what the disk holds is not known. \
         Mend the disk, then restart the daemon.", path.display()
    )]
    Poisoned { path: PathBuf, first: String },
    #[error("there is a record already: {}. To start anew, move it away first.", path.display())]
    Exists { path: PathBuf },
}

impl RecordFile<RealDisk> {
    /// Opens the record in the state directory `dir`; makes the file if there is none. Blocks.
    ///
    /// # Errors
    /// A record that is damaged, of another version or in use is an error that names the way out; it is never reset.
    pub fn open(dir: &Path) -> Result<(RecordFile, Option<Record>), RecordError> {
        RecordFile::open_on(RealDisk::new(dir, FILE))
    }
}

impl<D: Disk> RecordFile<D> {
    /// As [`RecordFile::open`], on any disk.
    pub fn open_on(mut disk: D) -> Result<(RecordFile<D>, Option<Record>), RecordError> {
        match disk.open().map_err(|e| failed(&disk, "open", e))? {
            Found::Missing => Ok((RecordFile::create_on(disk)?, None)),
            Found::Present => {
                let bytes = read_medium(&mut disk)?;
                let (generation, record, finding) = judge(disk.path(), &bytes)?;
                Ok((RecordFile { disk, generation, unwritten: record.is_none(), finding, poisoned: None }, record))
            }
        }
    }

    /// The file gets its name only when it is whole and durable: a crash in between leaves no file at all.
    fn create_on(mut disk: D) -> Result<RecordFile<D>, RecordError> {
        let empty = [slot::encode(0, None), slot::encode(1, None)].concat();
        let made = disk
            .create()
            .and_then(|()| disk.write_at(&empty, 0))
            .and_then(|()| disk.sync_all())
            .and_then(|()| disk.publish())
            .and_then(|()| disk.sync_directory());
        made.map_err(|e| failed(&disk, "make", e))?;
        Ok(RecordFile { disk, generation: 1, unwritten: true, finding: Finding::Created, poisoned: None })
    }

    /// Writes and syncs. When this returns `Ok` the record survives any crash. Blocks for as long as the disk does.
    ///
    /// # Errors
    /// The first error is final: every later call fails without touching the file.
    pub fn write(&mut self, record: &Record) -> Result<(), RecordError> {
        if let Some(first) = &self.poisoned {
            return Err(RecordError::Poisoned { path: self.disk.path().to_owned(), first: first.clone() });
        }
        for _ in 0..if self.unwritten { 2 } else { 1 } {
            self.write_next(record).inspect_err(|e| self.poisoned = Some(e.to_string()))?;
        }
        self.unwritten = false;
        Ok(())
    }

    /// What opening noticed.
    pub fn finding(&self) -> Finding {
        self.finding
    }

    pub fn path(&self) -> &Path {
        self.disk.path()
    }

    fn write_next(&mut self, record: &Record) -> Result<(), RecordError> {
        let generation = self.generation + 1;
        let offset = (generation % 2) * SLOT as u64;
        let disk = &mut self.disk;
        disk.write_at(&slot::encode(generation, Some(record)), offset).map_err(|e| failed(disk, "write", e))?;
        disk.sync_data().map_err(|e| failed(disk, "sync", e))?;
        self.generation = generation;
        Ok(())
    }
}

/// Makes a file that holds `record`, for a node whose record was moved away.
///
/// # Errors
/// There is a file already, or the disk fails.
pub fn init(dir: &Path, record: &Record) -> Result<PathBuf, RecordError> {
    let mut disk = RealDisk::new(dir, FILE);
    if disk.open().map_err(|e| failed(&disk, "open", e))? == Found::Present {
        return Err(RecordError::Exists { path: disk.path().to_owned() });
    }
    let mut file = RecordFile::create_on(disk)?;
    file.write(record)?;
    Ok(file.path().to_owned())
}

/// The record as it stands, also while a daemon uses it: for people, not for decisions. `None` when there is none.
///
/// # Errors
/// As [`RecordFile::open`], but never `Busy`.
pub fn peek(dir: &Path) -> Result<Option<Record>, RecordError> {
    let path = dir.join(FILE);
    let read = std::fs::File::open(&path).and_then(|f| super::disk::read_up_to(&f, FILE_SIZE + 1));
    match read {
        Ok(bytes) => judge(&path, &bytes).map(|(_, record, _)| record),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RecordError::Io { path, step: "read", source }),
    }
}

/// The file as the medium has it. What a killed daemon left unsynced is synced first, or else is not read.
fn read_medium<D: Disk>(disk: &mut D) -> Result<Vec<u8>, RecordError> {
    disk.sync_all().map_err(|e| failed(disk, "sync", e))?;
    disk.forget_cache().map_err(|e| failed(disk, "read", e))?;
    // One byte more than expected tells a longer file from a right one.
    disk.read(FILE_SIZE + 1).map_err(|e| failed(disk, "read", e))
}

/// Newest generation, its record, and what is odd.
fn judge(path: &Path, bytes: &[u8]) -> Result<(u64, Option<Record>, Finding), RecordError> {
    let damaged = |what: String| RecordError::Damaged { path: path.to_owned(), what };
    if bytes.len() != FILE_SIZE {
        let length = if bytes.len() > FILE_SIZE { "longer".to_owned() } else { format!("{} bytes", bytes.len()) };
        return Err(damaged(format!("its length should be {FILE_SIZE} bytes but is {length}")));
    }
    match (slot::decode(&bytes[..SLOT], 0), slot::decode(&bytes[SLOT..], 1)) {
        (Slot::OtherVersion(found), _) | (_, Slot::OtherVersion(found)) => {
            Err(RecordError::OtherVersion { path: path.to_owned(), found })
        }
        (Slot::Invalid(a), Slot::Invalid(b)) => Err(damaged(format!("slot 0: {a}; slot 1: {b}"))),
        (Slot::Whole { generation, record }, Slot::Invalid(_)) => {
            Ok((generation, record, Finding::TornWrite { slot: 1 }))
        }
        (Slot::Invalid(_), Slot::Whole { generation, record }) => {
            Ok((generation, record, Finding::TornWrite { slot: 0 }))
        }
        (Slot::Whole { generation: a, record: in_a }, Slot::Whole { generation: b, record: in_b }) => {
            let (newest, record, other) = if a > b { (a, in_a, b) } else { (b, in_b, a) };
            let neighbours = newest - other == 1;
            Ok((newest, record, if neighbours { Finding::Clean } else { Finding::LostWrite { newest, other } }))
        }
    }
}

fn failed<D: Disk>(disk: &D, step: &'static str, source: io::Error) -> RecordError {
    let path = disk.path().to_owned();
    match source.kind() {
        io::ErrorKind::WouldBlock => RecordError::Busy { path },
        io::ErrorKind::AlreadyExists => RecordError::Exists { path },
        _ => RecordError::Io { path, step, source },
    }
}

/// The system's words, and the plain one where an operator looks for it.
fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("the disk is full ({e})"),
        io::ErrorKind::NotFound => format!("its directory is missing ({e}); make it or mount it"),
        _ => e.to_string(),
    }
}

/// The way out of a record that cannot be read.
struct WayOut<'a>(&'a Path);

impl fmt::Display for WayOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.display();
        write!(
            f,
            "It is never reset in silence, because it says which tokens were used and what was granted. To go on:\n  \
             1. make sure that the other node runs the service, or that it is switched off;\n  \
             2. mv {path} {path}.damaged\n  \
             3. leasehold init-record\n\
             The node then starts without memory: it takes over only after contact with its peer."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Token;

    fn with_token(token: u64) -> Record {
        Record { highest_token: Token(token), ..Record::missing() }
    }

    fn reopened(dir: &Path) -> (RecordFile, Option<Record>) {
        RecordFile::open(dir).unwrap()
    }

    #[test]
    fn a_record_outlives_its_daemon_and_a_missing_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(peek(dir.path()).unwrap(), None);
        let (mut file, none) = reopened(dir.path());
        assert_eq!((none, file.finding()), (None, Finding::Created));
        for token in 2..9 {
            file.write(&with_token(token)).unwrap();
            assert_eq!(peek(dir.path()).unwrap(), Some(with_token(token)));
        }
        drop(file);
        let (file, record) = reopened(dir.path());
        assert_eq!((record, file.finding()), (Some(with_token(8)), Finding::Clean));
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), FILE_SIZE as u64);
    }

    #[test]
    fn a_file_that_was_made_but_never_written_is_a_missing_record() {
        let dir = tempfile::tempdir().unwrap();
        drop(reopened(dir.path()));
        let (file, record) = reopened(dir.path());
        assert_eq!((record, file.finding()), (None, Finding::Clean));
    }

    #[test]
    fn from_the_first_acknowledged_write_on_one_rotten_slot_does_not_make_the_record_missing() {
        for rotten in [0, SLOT] {
            let dir = tempfile::tempdir().unwrap();
            let (mut file, _) = reopened(dir.path());
            file.write(&with_token(2)).unwrap();
            let mut bytes = std::fs::read(file.path()).unwrap();
            bytes[rotten + 30] ^= 1;
            std::fs::write(file.path(), bytes).unwrap();
            drop(file);
            let (file, found) = reopened(dir.path());
            assert_eq!(found, Some(with_token(2)));
            assert_eq!(file.finding(), Finding::TornWrite { slot: (rotten / SLOT) as u64 });
        }
    }

    #[test]
    fn a_second_daemon_does_not_get_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let (_held, _) = reopened(dir.path());
        assert!(matches!(RecordFile::open(dir.path()), Err(RecordError::Busy { .. })));
    }

    #[test]
    fn a_file_that_lost_its_tail_is_damaged_at_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = reopened(dir.path());
        file.write(&with_token(2)).unwrap();
        let path = file.path().to_owned();
        let whole = std::fs::read(&path).unwrap();
        drop(file);
        for length in [0, 1, SLOT - 1, SLOT, SLOT + 1, FILE_SIZE - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let text = RecordFile::open(dir.path()).unwrap_err().to_string();
            assert!(text.contains("is damaged: its length should be 8192"), "{text}");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(matches!(RecordFile::open(dir.path()), Err(RecordError::Damaged { .. })));
    }

    #[test]
    fn a_restored_older_file_reads_as_the_older_record_and_only_the_peer_can_tell() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = reopened(dir.path());
        file.write(&with_token(2)).unwrap();
        let path = file.path().to_owned();
        let image = std::fs::read(&path).unwrap();
        file.write(&with_token(4)).unwrap();
        drop(file);
        std::fs::write(&path, image).unwrap();
        assert_eq!(reopened(dir.path()).1, Some(with_token(2)));
    }

    #[test]
    fn a_damaged_record_stops_the_start_and_says_how_to_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = reopened(dir.path());
        file.write(&with_token(2)).unwrap();
        let path = file.path().to_owned();
        drop(file);
        std::fs::write(&path, vec![0; FILE_SIZE]).unwrap();
        let before = std::fs::read(&path).unwrap();
        let text = RecordFile::open(dir.path()).unwrap_err().to_string();
        let shown = path.display();
        assert!(text.contains(&format!("{shown} is damaged: slot 0: it does not begin like a record")), "{text}");
        assert!(text.contains(&format!("mv {shown} {shown}.damaged")) && text.contains("leasehold init-record"));
        assert_eq!(std::fs::read(&path).unwrap(), before, "it is left as it is");
        std::fs::rename(&path, dir.path().join("record.damaged")).unwrap();
        init(dir.path(), &Record::missing()).unwrap();
        assert_eq!(reopened(dir.path()).1, Some(Record::missing()));
    }

    #[test]
    fn init_does_not_replace_a_record() {
        let dir = tempfile::tempdir().unwrap();
        init(dir.path(), &with_token(6)).unwrap();
        assert!(matches!(init(dir.path(), &Record::missing()), Err(RecordError::Exists { .. })));
        assert_eq!(peek(dir.path()).unwrap(), Some(with_token(6)));
    }

    #[test]
    fn a_newer_layout_is_refused_even_beside_a_whole_older_slot() {
        use sha2::{Digest as _, Sha256};
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = reopened(dir.path());
        file.write(&with_token(2)).unwrap();
        let path = file.path().to_owned();
        drop(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 2;
        let sum = Sha256::digest(&bytes[..SLOT - 32]);
        bytes[SLOT - 32..SLOT].copy_from_slice(&sum);
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(RecordFile::open(dir.path()), Err(RecordError::OtherVersion { found: 2, .. })));
    }

    #[test]
    fn a_missing_state_directory_is_an_error_and_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("not-mounted");
        let text = RecordFile::open(&missing).unwrap_err().to_string();
        assert!(text.contains("its directory is missing"), "{text}");
        assert!(!missing.exists());
    }
}
