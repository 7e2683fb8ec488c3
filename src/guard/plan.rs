//! The emergency plan: what the guard needs to end everything here, prepared by the daemon long before.
//!
//! One small file in the run-time directory, replaced whole. Its id is the beginning of its own digest, so that a plan
//! is either the one that the shared memory names or none. The guard reads it when the id changes, into memory that it
//! has from its start, and never again.
//!
//! ```text
//! | "LEASPLAN" | version u32 | length u32 | records … | SHA-256 |      record: | kind u8 | 0 0 0 | length u32 | payload |
//! ```

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use atomic_write_file::AtomicWriteFile;
use sha2::{Digest as _, Sha256};

use super::farewell::Farewell;
use crate::core::Span;
use crate::os::net::cut::Spec;
use crate::resource::{Remains, ServerRemains, UnitRemains};

/// The name of the file in the run-time directory.
pub const FILE: &str = "guard.plan";
const MAGIC: [u8; 8] = *b"LEASPLAN";
/// 2: units, servers and addresses are found by the guard itself.
const VERSION: u32 = 2;
const HEAD: usize = 16;
const SUM: usize = 32;
/// Room for hundreds of resources.
pub const LARGEST: usize = 64 << 10;

const MARK: u8 = 1;
const CGROUP: u8 = 2;
const CLIENTS: u8 = 3;
const ADDRESS: u8 = 4;
const WATCHDOG: u8 = 5;
const HIDDEN: u8 = 6;
const FAREWELL: u8 = 7;
const UNIT: u8 = 8;
const SERVER: u8 = 9;

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

/// What the plan of this id in the run-time directory names; `None` when it is not there or not whole.
pub fn remains(directory: &Path, id: u64) -> Option<Remains> {
    let mut plan = Plan::none();
    let mut file = File::open(directory.join(FILE)).ok()?;
    plan.load(&mut file, Some(id), &mut Box::new([0; LARGEST])).then(|| plan.remains())
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
    remains.clients.iter().for_each(|spec| record(CLIENTS, clients_text(spec).as_bytes()));
    remains.cgroups.iter().for_each(|path| record(CGROUP, path.as_os_str().as_encoded_bytes()));
    remains.marks.iter().for_each(|mark| record(MARK, mark.as_bytes()));
    remains.units.iter().for_each(|unit| record(UNIT, &unit_bytes(unit)));
    remains.servers.iter().for_each(|server| {
        let directory = server.directory.as_os_str().as_encoded_bytes();
        record(SERVER, &[server.program.as_bytes(), &[0], directory].concat());
    });
    remains.addresses.iter().for_each(|address| match address {
        IpAddr::V4(v4) => record(ADDRESS, &v4.octets()),
        IpAddr::V6(v6) => record(ADDRESS, &v6.octets()),
    });
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

/// A line each for the table, the addresses, the ports and the peers.
fn clients_text(spec: &Spec) -> String {
    let listed = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
    let ports = spec.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
    [spec.table.clone(), listed(&spec.addresses), ports, listed(&spec.peers)].join("\n")
}

fn clients_of(text: &str) -> Option<Spec> {
    let mut lines = text.split('\n');
    let table = lines.next()?.to_owned();
    let addresses = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok();
    let (first, ports, peers) = (lines.next()?, lines.next()?, lines.next()?);
    let ports = ports.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Spec { table, addresses: addresses(first)?, ports, peers: addresses(peers)? })
}

/// Texts that end with NUL: the name, the manager's socket, the trees; then an empty one, and the call.
fn unit_bytes(unit: &UnitRemains) -> Vec<u8> {
    let paths = std::iter::once(&unit.manager).chain(&unit.trees).map(|path| path.as_os_str().as_encoded_bytes());
    let mut bytes = Vec::new();
    for text in std::iter::once(unit.unit.as_bytes()).chain(paths).chain(std::iter::once(&[][..])) {
        bytes.extend_from_slice(text);
        bytes.push(0);
    }
    bytes.extend_from_slice(&unit.stop);
    bytes
}

/// A unit as the plan has it.
#[derive(Debug, Clone, Copy)]
pub struct UnitPlan<'p> {
    pub name: &'p [u8],
    pub manager: &'p [u8],
    pub stop: &'p [u8],
    trees: &'p [u8],
}

impl<'p> UnitPlan<'p> {
    fn of(bytes: &'p [u8]) -> Option<UnitPlan<'p>> {
        let (name, rest) = text(bytes)?;
        let (manager, trees) = text(rest)?;
        let mut stop = trees;
        while let Some((tree, rest)) = text(stop) {
            stop = rest;
            if tree.is_empty() {
                return Some(UnitPlan { name, manager, stop, trees });
            }
        }
        None
    }

    pub fn trees(self) -> impl Iterator<Item = &'p [u8]> {
        self.trees.split(|byte| *byte == 0).take_while(|tree| !tree.is_empty())
    }
}

/// Up to the next NUL, and what comes after it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
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

    /// Whose connections are cut. It allocates: for when the plan is taken over.
    pub fn clients(&self) -> Option<Spec> {
        clients_of(std::str::from_utf8(self.of(CLIENTS).next()?).ok()?)
    }

    pub fn units(&self) -> impl Iterator<Item = UnitPlan<'_>> {
        self.of(UNIT).filter_map(UnitPlan::of)
    }

    /// Program and directory.
    pub fn servers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.of(SERVER).filter_map(text)
    }

    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.of(ADDRESS).filter_map(|octets| match octets.len() {
            4 => Some(IpAddr::from(*octets.first_chunk::<4>()?)),
            _ => Some(IpAddr::from(*octets.first_chunk::<16>()?)),
        })
    }

    /// Last words, as [`Farewell`] encodes them.
    pub fn farewells(&self) -> impl Iterator<Item = &[u8]> {
        self.of(FAREWELL)
    }

    /// Whether the guard itself can see that nothing is left.
    pub fn can_prove(&self) -> bool {
        self.id != 0 && self.of(HIDDEN).next().is_none()
    }

    /// All of it as the daemon made it. It allocates.
    pub fn remains(&self) -> Remains {
        let texts = |wanted| self.of(wanted).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let server = |(program, place): (&[u8], &[u8])| ServerRemains {
            program: String::from_utf8_lossy(program).into_owned(),
            directory: path(place),
        };
        let unit = |unit: UnitPlan<'_>| UnitRemains {
            unit: String::from_utf8_lossy(unit.name).into_owned(),
            trees: unit.trees().map(path).collect(),
            manager: path(unit.manager),
            stop: unit.stop.to_vec(),
        };
        Remains {
            marks: texts(MARK).collect(),
            servers: self.servers().map(server).collect(),
            cgroups: self.cgroups().map(path).collect(),
            units: self.units().map(unit).collect(),
            clients: self.clients(),
            addresses: self.addresses().collect(),
            hidden: texts(HIDDEN).collect(),
        }
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

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
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

/// The plan of a test.
#[cfg(test)]
pub fn in_memory(remains: &Remains) -> Plan {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let id = save(dir.path(), remains, None, &[]).expect("it fits");
    let mut plan = Plan::none();
    let mut file = File::open(dir.path().join(FILE)).expect("it was written");
    assert!(plan.load(&mut file, Some(id), &mut Box::new([0; LARGEST])));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains() -> Remains {
        Remains {
            marks: vec!["LEASEHOLD_RESOURCE=db:a".into(), "LEASEHOLD_COMMAND=db:a".into()],
            cgroups: vec!["/sys/fs/cgroup/x".into()],
            servers: vec![ServerRemains { program: "postgres".into(), directory: "/srv/pg".into() }],
            units: vec![UnitRemains {
                unit: "kelp.service".into(),
                trees: vec!["/sys/fs/cgroup".into(), "/sys/fs/cgroup/systemd".into()],
                manager: "/run/systemd/private".into(),
                stop: vec![b'l', 0, 1, 0],
            }],
            clients: Some(Spec {
                table: "leasehold-a".into(),
                addresses: vec!["192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap()],
                ports: vec![5432],
                peers: Vec::new(),
            }),
            addresses: vec!["192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap()],
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
        assert_eq!(plan.remains(), remains());
        assert!(plan.units().next().unwrap().trees().eq([&b"/sys/fs/cgroup"[..], b"/sys/fs/cgroup/systemd"]));
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
        let large = Remains { marks: vec!["x".repeat(LARGEST)], ..remains() };
        assert!(save(dir.path(), &large, None, &[]).unwrap_err().to_string().contains("fewer resources"));
    }
}
