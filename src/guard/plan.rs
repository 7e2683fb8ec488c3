//! The emergency plan: what the guard needs to end everything here, prepared by the daemon long before.
//!
//! One small file in the run-time directory, replaced whole. Its id is the beginning of its own digest, so that a plan
//! is either the one that the shared memory names or none. The guard reads it when the id changes, into memory that it
//! has from its start, and never again.
//!
//! ```text
//! | "LEASPLAN" | version u32 | length u32 | records … | SHA-256 |      record: | kind u8 | 0 0 0 | length u32 | payload |
//! ```

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use sha2::{Digest as _, Sha256};

use super::farewell::Farewell;
use crate::core::Span;
use crate::resource::Remains;

/// The name of the file in the run-time directory.
pub const FILE: &str = "guard.plan";
const MAGIC: [u8; 8] = *b"LEASPLAN";
const VERSION: u32 = 1;
const HEAD: usize = 16;
const SUM: usize = 32;
/// Room for hundreds of resources.
pub const LARGEST: usize = 64 << 10;

const MARK: u8 = 1;
const CGROUP: u8 = 2;
const CUT: u8 = 3;
const ADDRESS: u8 = 4;
const WATCHDOG: u8 = 5;
const HIDDEN: u8 = 6;
const FAREWELL: u8 = 7;

/// The hardware watchdog that the guard is to arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dog {
    pub device: PathBuf,
    /// W
    pub most: Span,
    /// S + H
    pub least: Span,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("cannot {step} the emergency plan {}: {source}", path.display())]
    Io { path: PathBuf, step: &'static str, source: io::Error },
    #[error("the emergency plan needs {0} bytes and has {LARGEST}: configure fewer resources, or shorter names")]
    TooLarge(usize),
}

/// Writes the plan into the run-time directory and gives its id.
///
/// # Errors
/// The directory cannot be written, or the plan is too large.
pub fn save(directory: &Path, remains: &Remains, dog: Option<&Dog>, farewells: &[Farewell]) -> Result<u64, PlanError> {
    let bytes = encode(remains, dog, farewells);
    if bytes.len() > LARGEST {
        return Err(PlanError::TooLarge(bytes.len()));
    }
    let path = directory.join(FILE);
    let written = AtomicWriteFile::open(&path).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.commit()
    });
    written.map_err(|source| PlanError::Io { path, step: "write", source })?;
    Ok(id_of(&bytes))
}

fn encode(remains: &Remains, dog: Option<&Dog>, farewells: &[Farewell]) -> Vec<u8> {
    let mut records = Vec::new();
    let mut record = |kind: u8, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        records.extend([kind, 0, 0, 0]);
        records.extend(length.to_le_bytes());
        records.extend_from_slice(payload);
    };
    if let Some(dog) = dog {
        let device = dog.device.as_os_str().as_encoded_bytes();
        record(WATCHDOG, &[&dog.most.0.to_le_bytes(), &dog.least.0.to_le_bytes(), device].concat());
    }
    remains.cuts.iter().for_each(|batch| record(CUT, batch));
    remains.cgroups.iter().for_each(|path| record(CGROUP, path.as_os_str().as_encoded_bytes()));
    remains.marks.iter().for_each(|mark| record(MARK, mark.as_bytes()));
    remains.addresses.iter().for_each(|message| record(ADDRESS, message));
    remains.hidden.iter().for_each(|name| record(HIDDEN, name.as_bytes()));
    farewells.iter().for_each(|farewell| record(FAREWELL, &farewell.encode()));
    let length = u32::try_from(HEAD + records.len() + SUM).unwrap_or(u32::MAX);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(records);
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    bytes
}

fn id_of(bytes: &[u8]) -> u64 {
    let sum: [u8; SUM] = bytes.last_chunk().copied().unwrap_or_default();
    // Zero stands for "none yet".
    u64::from_le_bytes(std::array::from_fn(|i| sum[i])).max(1)
}

/// The plan in the guard's memory.
pub struct Plan {
    bytes: Box<[u8; LARGEST]>,
    /// Where the records end; zero without a plan.
    end: usize,
    id: u64,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("id", &self.id).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Plan {
    /// All the memory that any plan will take. Without a plan nothing is known to end, and nothing is proven.
    pub fn none() -> Plan {
        Plan { bytes: Box::new([0; LARGEST]), end: 0, id: 0 }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Reads the file if it is the plan of this id, or any where none is named; what is no such plan leaves the one in
    /// memory. Allocates nothing.
    pub fn load(&mut self, file: &mut File, id: Option<u64>, space: &mut [u8; LARGEST]) -> bool {
        let mut length = 0;
        loop {
            match file.read(&mut space[length..]) {
                Ok(0) => break,
                Ok(n) => length += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        let found = id_of(&space[..length]);
        let Some(end) = whole(&space[..length]).filter(|_| id.is_none_or(|id| id == found)) else { return false };
        self.bytes[..length].copy_from_slice(&space[..length]);
        (self.end, self.id) = (end, found);
        true
    }

    pub fn marks(&self) -> impl Iterator<Item = &[u8]> {
        self.of(MARK)
    }

    pub fn cgroups(&self) -> impl Iterator<Item = &[u8]> {
        self.of(CGROUP)
    }

    /// Messages for netfilter, in their order.
    pub fn cuts(&self) -> impl Iterator<Item = &[u8]> {
        self.of(CUT)
    }

    /// Messages that each take one address away.
    pub fn addresses(&self) -> impl Iterator<Item = &[u8]> {
        self.of(ADDRESS)
    }

    /// Last words, as [`Farewell`] encodes them.
    pub fn farewells(&self) -> impl Iterator<Item = &[u8]> {
        self.of(FAREWELL)
    }

    /// Whether the guard itself can see that nothing is left.
    pub fn can_prove(&self) -> bool {
        self.id != 0 && self.of(HIDDEN).next().is_none()
    }

    /// Not for after the start of the first resource: it allocates.
    pub fn dog(&self) -> Option<Dog> {
        let (most, rest) = self.of(WATCHDOG).next()?.split_first_chunk()?;
        let (least, device) = rest.split_first_chunk()?;
        let device = PathBuf::from(String::from_utf8_lossy(device).into_owned());
        Some(Dog { device, most: Span(u64::from_le_bytes(*most)), least: Span(u64::from_le_bytes(*least)) })
    }

    fn of(&self, wanted: u8) -> impl Iterator<Item = &[u8]> {
        let records = Records(self.bytes.get(HEAD..self.end).unwrap_or_default());
        records.filter(move |(kind, _)| *kind == wanted).map(|(_, payload)| payload)
    }
}

/// Where the records end, if these bytes are a plan of this version.
fn whole(bytes: &[u8]) -> Option<usize> {
    let end = bytes.len().checked_sub(SUM).filter(|end| *end >= HEAD)?;
    let length = u32::from_le_bytes(*bytes.get(12..16)?.first_chunk()?) as usize;
    let ours = bytes[..8] == MAGIC && bytes[8..12] == VERSION.to_le_bytes() && length == bytes.len();
    (ours && Sha256::digest(&bytes[..end])[..] == bytes[end..]).then_some(end)
}

struct Records<'p>(&'p [u8]);

impl<'p> Iterator for Records<'p> {
    type Item = (u8, &'p [u8]);

    fn next(&mut self) -> Option<(u8, &'p [u8])> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((head[0], payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains() -> Remains {
        Remains {
            marks: vec!["LEASEHOLD_RESOURCE=db:a".into(), "LEASEHOLD_COMMAND=db:a".into()],
            cgroups: vec!["/sys/fs/cgroup/x".into()],
            cuts: vec![vec![1, 2, 3], vec![]],
            addresses: vec![vec![9; 40]],
            hidden: Vec::new(),
        }
    }

    fn loaded(directory: &Path, id: u64) -> (Plan, bool) {
        let mut plan = Plan::none();
        let mut file = File::open(directory.join(FILE)).unwrap();
        let took = plan.load(&mut file, Some(id), &mut Box::new([0; LARGEST]));
        (plan, took)
    }

    #[test]
    fn what_the_daemon_prepared_is_what_the_guard_holds() {
        let dir = tempfile::tempdir().unwrap();
        let dog = Dog { device: "/dev/watchdog0".into(), most: Span::from_secs(5), least: Span::from_secs(3) };
        let id = save(dir.path(), &remains(), Some(&dog), &[]).unwrap();
        let (plan, took) = loaded(dir.path(), id);
        assert!(took && plan.can_prove());
        assert_eq!(plan.marks().collect::<Vec<_>>(), [&b"LEASEHOLD_RESOURCE=db:a"[..], b"LEASEHOLD_COMMAND=db:a"]);
        assert_eq!(plan.cgroups().collect::<Vec<_>>(), [b"/sys/fs/cgroup/x"]);
        assert_eq!(plan.cuts().collect::<Vec<_>>(), [&[1u8, 2, 3][..], &[]]);
        assert_eq!(plan.addresses().collect::<Vec<_>>(), [[9; 40]]);
        assert_eq!(plan.dog(), Some(dog));
        assert_eq!(save(dir.path(), &remains(), None, &[]).unwrap(), save(dir.path(), &remains(), None, &[]).unwrap());
    }

    #[test]
    fn a_plan_of_another_id_and_a_damaged_one_leave_the_old_one_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let id = save(dir.path(), &remains(), None, &[]).unwrap();
        let (mut plan, took) = loaded(dir.path(), id);
        assert!(took);
        let whole = std::fs::read(dir.path().join(FILE)).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(dir.path().join("damaged"), &damaged).unwrap();
            let mut file = File::open(dir.path().join("damaged")).unwrap();
            assert!(!plan.load(&mut file, Some(id), &mut Box::new([0; LARGEST])), "byte {at}");
        }
        assert_eq!((plan.id(), plan.marks().count()), (id, 2));
        assert!(!loaded(dir.path(), id ^ 1).1);
    }

    #[test]
    fn no_plan_and_one_with_a_hidden_resource_prove_nothing() {
        assert!(!Plan::none().can_prove());
        let dir = tempfile::tempdir().unwrap();
        let id = save(dir.path(), &Remains { hidden: vec!["db".into()], ..remains() }, None, &[]).unwrap();
        let (plan, took) = loaded(dir.path(), id);
        assert!(took && !plan.can_prove());
    }

    #[test]
    fn a_plan_that_would_not_fit_is_refused_where_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let large = Remains { cuts: vec![vec![0; LARGEST]], ..remains() };
        assert!(save(dir.path(), &large, None, &[]).unwrap_err().to_string().contains("fewer resources"));
    }
}
