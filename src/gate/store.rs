//! The lock and the durable record of one gate.
//!
//! ```text
//! 0                                                4096
//! | JSON line, SHA-256 line, filler … | the same again |
//! ```
//!
//! *Lock.* One advisory lock on the file, held over a whole take and **inherited by every child** that the take runs: a
//! command that hangs in the kernel, or outlives a killed gate, holds it until it is gone. So no step of an older take
//! can land within a younger one.
//!
//! *Record.* Written to both places in turn, each synced, before anything is done that it stands for. A crash leaves at
//! least one whole place, and it holds the record before or after; one rotten block loses nothing. `phase` says how far
//! the owner's take has come, so that whoever comes next finishes it. The file is made once, by `leasehold gate init`:
//! a missing or damaged one is never taken for a new one.
//!
//! *Sync errors are final.* After one this object writes nothing more, and no answer counts on it. The next gate first
//! syncs, then forgets the cache, then reads: it sees what the disk has, not what a failed sync left in memory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, CWD, RenameFlags, fadvise, renameat_with};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::config::Gate;
use crate::core::{NodeId, Token};

/// One block of most disks, so that one place is torn or whole on its own.
const PLACE: usize = 4096;
/// Of the layout; rises with every change of it.
const LAYOUT: u32 = 1;

/// How far the owner's take has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Nobody took yet.
    Idle,
    /// The token is stored; the peer may still be let in, the owner not yet.
    Taking,
    /// The peer was read excluded, the owner admitted.
    Held,
    /// The owner let its peer in.
    Shared,
}

impl Phase {
    pub fn word(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Taking => "taking",
            Phase::Held => "held",
            Phase::Shared => "shared",
        }
    }
}

/// What is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub highest: Token,
    pub owner: Option<NodeId>,
    pub phase: Phase,
}

/// A place of the file, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    leasehold_gate: u32,
    gate: String,
    /// In the order of the configuration, by which tokens are even and odd.
    nodes: [String; 2],
    generation: u64,
    highest: u64,
    owner: Option<String>,
    phase: Phase,
}

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {step} {}: {source}", path.display())]
    Io { step: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "there is no record {}: this gate was never set up, or its record is lost.\n\
         New pair: leasehold gate init --gate {gate}\n\
         Lost record: stop both daemons, read the highest token of each node (leasehold status), then \
         leasehold gate init --gate {gate} --highest N with a number at least as high", path.display()
    )]
    Missing { path: PathBuf, gate: String },
    #[error(
        "the record {} is damaged: {what}. It is not reset by itself, for a lost token lets a stale node win.\n\
         Stop both daemons, move the file away, then leasehold gate init --gate {gate} --highest N, with N at least \
         the highest token that `leasehold status` shows on either node", path.display()
    )]
    Damaged { path: PathBuf, gate: String, what: String },
    #[error("{} belongs to {what}; give each gate its own name and keep the order of its nodes", path.display())]
    Foreign { path: PathBuf, what: String },
    #[error("another call has held the lock of {} for {}: it may hang in the kernel; see `ps`, \
             then ask again", path.display(), crate::core::Span::from(*patience))]
    Busy { path: PathBuf, patience: Duration },
    #[error("the record {} is there already; it is never overwritten", path.display())]
    Exists { path: PathBuf },
    #[error("the record {} is not written any more after an earlier error: what the disk holds is not known", path.display())]
    Poisoned { path: PathBuf },
}

/// Who else may look meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Nobody: for a change.
    Exclusive,
    /// Other readers: for a look.
    Shared,
}

/// The record of one gate, locked for as long as this lives, and any child started meanwhile.
#[derive(Debug)]
pub struct Store {
    file: File,
    path: PathBuf,
    gate: String,
    nodes: [String; 2],
    generation: u64,
    record: Record,
    poisoned: bool,
}

/// Where the record of a gate lies.
pub fn path_of(state: &Path, gate: &str) -> PathBuf {
    state.join(format!("{gate}.gate"))
}

/// Makes the record of a new gate; `highest` is zero but for a gate whose record was lost.
pub fn create(state: &Path, gate: &Gate, highest: Token) -> Result<PathBuf, StoreError> {
    let path = path_of(state, &gate.name);
    let failed = |step| move |source| StoreError::Io { step, path: state.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(failed("make the directory"))?;
    let record = Record { highest, owner: None, phase: Phase::Idle };
    let place = encode(&gate.name, &gate.node_names(), 0, record);
    let temporary = path.with_extension(format!("gate.new.{}", std::process::id()));
    let made = write_new(&temporary, &[place.clone(), place].concat()).and_then(|()| publish(&temporary, &path));
    if made.is_err() {
        // Only a name of this process's own is left behind, and nothing ever reads it.
        let _ = std::fs::remove_file(&temporary);
    }
    match made {
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => return Err(StoreError::Exists { path }),
        Err(source) => return Err(StoreError::Io { step: "make the record", path, source }),
        Ok(()) => {}
    }
    let mut parents = state.ancestors().take_while(|dir| !dir.as_os_str().is_empty());
    parents.try_for_each(sync_directory).map_err(failed("make durable the directory"))?;
    Ok(path)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

/// The record gets its name only when it is whole; one that is there is not replaced.
fn publish(temporary: &Path, path: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)?)
}

/// Makes names in the directory durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Store {
    /// Opens and locks the record of `gate`, waiting for at most `patience`.
    pub async fn open(state: &Path, gate: &Gate, lock: Lock, patience: Duration) -> Result<Store, StoreError> {
        let path = path_of(state, &gate.name);
        let file = match OpenOptions::new().read(true).write(lock == Lock::Exclusive).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { path, gate: gate.name.clone() });
            }
            Err(source) => return Err(StoreError::Io { step: "open", path, source }),
        };
        let file = locked(file, lock, patience, &path).await?;
        let nodes = gate.node_names();
        let (generation, record) = read(&file, &path, &gate.name, &nodes)?;
        Ok(Store { file, path, gate: gate.name.clone(), nodes, generation, record, poisoned: false })
    }

    pub fn record(&self) -> Record {
        self.record
    }

    /// Makes `record` durable. After an error nobody knows what is; the object refuses to go on.
    pub fn write(&mut self, record: Record) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned { path: self.path.clone() });
        }
        let generation = self.generation + 1;
        let place = encode(&self.gate, &self.nodes, generation, record);
        for offset in [0, PLACE as u64] {
            let written = self.file.write_all_at(&place, offset).and_then(|()| self.file.sync_data());
            if let Err(source) = written {
                self.poisoned = true;
                return Err(StoreError::Io { step: "write the record", path: self.path.clone(), source });
            }
        }
        (self.generation, self.record) = (generation, record);
        Ok(())
    }
}

/// The lock, for this process and for its children.
async fn locked(file: File, lock: Lock, patience: Duration, path: &Path) -> Result<File, StoreError> {
    let failed = |source| StoreError::Io { step: "lock", path: path.to_owned(), source };
    fcntl_setfd(&file, FdFlags::empty()).map_err(|e| failed(e.into()))?;
    let tried = match lock {
        Lock::Exclusive => file.try_lock(),
        Lock::Shared => file.try_lock_shared(),
    };
    match tried {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // A thread of its own, which the end of the program does not wait for: flock(2) knows no limit. What it gets too
    // late is let go of at once, with the file.
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let got = match lock {
            Lock::Exclusive => file.lock(),
            Lock::Shared => file.lock_shared(),
        };
        // An error means that nobody waits any more.
        let _ = tell.send(got.map(|()| file));
    });
    match tokio::time::timeout(patience, told).await {
        Ok(Ok(got)) => got.map_err(failed),
        Ok(Err(_)) => Err(failed(io::Error::other("the thread that waited for the lock died"))),
        Err(_) => Err(StoreError::Busy { path: path.to_owned(), patience }),
    }
}

/// What the medium holds: the newer of the whole places.
fn read(file: &File, path: &Path, gate: &str, nodes: &[String; 2]) -> Result<(u64, Record), StoreError> {
    let failed = |source| StoreError::Io { step: "read", path: path.to_owned(), source };
    let damaged = |what: &str| StoreError::Damaged { path: path.into(), gate: gate.into(), what: what.into() };
    file.sync_all().map_err(failed)?;
    fadvise(file, 0, None, Advice::DontNeed).map_err(|e| failed(e.into()))?;
    let mut bytes = vec![0; 2 * PLACE];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(damaged("it is not all there")),
        Err(source) => return Err(failed(source)),
    }
    let (first, second) = bytes.split_at(PLACE);
    let newer = match (decode(first), decode(second)) {
        (Some(a), Some(b)) if a.generation == b.generation && first != second => {
            return Err(damaged("its two copies contradict each other"));
        }
        (Some(a), Some(b)) => Some(if a.generation >= b.generation { a } else { b }),
        (a, b) => a.or(b),
    };
    let place = newer.ok_or_else(|| damaged("neither of its two copies is whole"))?;
    if place.leasehold_gate != LAYOUT {
        return Err(damaged(&format!("layout {} is that of another version of leasehold", place.leasehold_gate)));
    }
    if place.gate != gate || place.nodes != *nodes {
        let what = format!("gate {:?} of {} and {}, in this order", place.gate, place.nodes[0], place.nodes[1]);
        return Err(StoreError::Foreign { path: path.to_owned(), what });
    }
    let owner = place.owner.as_ref().map(|name| if *name == nodes[0] { NodeId::First } else { NodeId::Second });
    Ok((place.generation, Record { highest: Token(place.highest), owner, phase: place.phase }))
}

fn encode(gate: &str, nodes: &[String; 2], generation: u64, record: Record) -> Vec<u8> {
    let place = Place {
        leasehold_gate: LAYOUT,
        gate: gate.to_owned(),
        nodes: nodes.clone(),
        generation,
        highest: record.highest.0,
        owner: record.owner.map(|node| nodes[node.index()].clone()),
        phase: record.phase,
    };
    let json = serde_json::to_string(&place).expect("plain structs of numbers and text always become JSON");
    let mut bytes = format!("{json}\n{}\n", hex(&json)).into_bytes();
    assert!(bytes.len() <= PLACE, "names are bounded by the configuration");
    bytes.resize(PLACE, b'\n');
    bytes
}

/// `None`: not whole.
fn decode(bytes: &[u8]) -> Option<Place> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.trim_end_matches('\n').split('\n');
    let (json, sum) = (lines.next()?, lines.next()?);
    if lines.next().is_some() || sum != hex(json) {
        return None;
    }
    serde_json::from_str(json).ok()
}

fn hex(json: &str) -> String {
    Sha256::digest(json.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}
