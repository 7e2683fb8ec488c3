//! The record on a disk that fails: at every step, in every way, with every kind of loss afterwards (S5).
//!
//! The made-up disk keeps what is cached apart from what is durable. A fault is an error of a step (with part of its
//! effect), or the power going out in the middle of it; then what was pending survives wholly, partly or not at all.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use super::disk::{Disk, Found};
use super::record::{Finding, RecordError, RecordFile};
use super::slot::SLOT;
use crate::core::{Record, Token};

const RECORD: usize = 0;
const TEMPORARY: usize = 1;

/// Where a write is cut: edges of the sealed fields, of a sector, of the sum, of the slot; beyond it for the first write.
const CUTS: [usize; 17] = [0, 1, 8, 12, 16, 20, 24, 25, 26, 60, 111, 512, 2048, 4064, 4065, 4095, 4096];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The step fails with this error number; a write has put this many bytes into the cache, a sync made nothing
    /// durable and the kernel takes the pages for clean.
    Error { errno: i32, wrote: usize },
    /// The step says that it failed, but it was done.
    DoneButFailed,
    /// The power goes out; a write has put this many bytes into the cache.
    PowerCut { wrote: usize },
    /// The step says that it was done, but it was not: a disk that lies.
    Lie,
}

/// What of the pending writes a crash leaves.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Everything,
    Nothing,
    /// Only this many bytes of the newest write reached the medium.
    AllButFirst(usize),
    /// Sectors of 512 bytes survive by these bits, in no order.
    Sectors(u16),
}

const LOSSES: [Loss; 9] = [
    Loss::Everything,
    Loss::Nothing,
    Loss::AllButFirst(1),
    Loss::AllButFirst(25),
    Loss::AllButFirst(40),
    Loss::AllButFirst(4095),
    Loss::Sectors(0b0101_0101),
    Loss::Sectors(0b1000_0000),
    Loss::Sectors(0b0111_1111),
];

#[derive(Debug, Clone, Default)]
struct Inode {
    cached: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Clone, Default)]
struct World {
    inodes: Vec<Inode>,
    names: [Option<usize>; 2],
    durable_names: [Option<usize>; 2],
    fault: Option<(usize, Fault)>,
    steps: Vec<&'static str>,
    dead: bool,
}

#[derive(Debug, Clone)]
struct FakeDisk {
    world: Arc<Mutex<World>>,
    open: Option<usize>,
}

impl World {
    /// Counts the step and says which fault strikes it.
    fn step(&mut self, name: &'static str) -> io::Result<Option<Fault>> {
        if self.dead {
            return Err(io::Error::other("no power"));
        }
        self.steps.push(name);
        let now = self.steps.len() - 1;
        Ok(self.fault.filter(|(at, _)| *at == now).map(|(_, fault)| fault))
    }

    /// The outcome of a step that is done wholly or not at all.
    fn whole(&mut self, name: &'static str, act: impl FnOnce(&mut World)) -> io::Result<()> {
        match self.step(name)? {
            None => act(self),
            Some(Fault::Lie) => {}
            Some(Fault::Error { errno, .. }) => return Err(io::Error::from_raw_os_error(errno)),
            Some(Fault::DoneButFailed) => {
                act(self);
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Some(Fault::PowerCut { .. }) => {
                self.dead = true;
                return Err(io::Error::other("no power"));
            }
        }
        Ok(())
    }

    fn crash(&self, loss: Loss) -> World {
        let names = if matches!(loss, Loss::Everything) { self.durable_names } else { self.names };
        let inodes = self.inodes.iter().map(|inode| Inode::from_medium(inode.after(loss))).collect();
        World { inodes, names, durable_names: names, ..World::default() }
    }

    /// The process is started again; the machine goes on.
    fn restart(&self) -> World {
        World { fault: None, steps: Vec::new(), dead: false, ..self.clone() }
    }
}

impl Inode {
    fn from_medium(durable: Vec<u8>) -> Inode {
        Inode { cached: durable.clone(), durable, pending: Vec::new() }
    }

    fn after(&self, loss: Loss) -> Vec<u8> {
        let mut medium = self.durable.clone();
        let newest = self.pending.len().saturating_sub(1);
        for (i, (offset, bytes)) in self.pending.iter().enumerate() {
            match loss {
                Loss::Everything => {}
                Loss::AllButFirst(n) if i == newest => put(&mut medium, *offset, &bytes[..n.min(bytes.len())]),
                Loss::Nothing | Loss::AllButFirst(_) => put(&mut medium, *offset, bytes),
                Loss::Sectors(kept) => {
                    for (s, sector) in bytes.chunks(512).enumerate().filter(|(s, _)| kept >> (s % 8) & 1 == 1) {
                        put(&mut medium, offset + s * 512, sector);
                    }
                }
            }
        }
        medium
    }
}

fn put(medium: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    medium.resize(medium.len().max(offset + bytes.len()), 0);
    medium[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl FakeDisk {
    fn on(world: World) -> FakeDisk {
        FakeDisk { world: Arc::new(Mutex::new(world)), open: None }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test thread panics with the world in hand")
    }

    fn inode(&self) -> usize {
        self.open.expect("a file is open")
    }

    fn sync(&mut self, name: &'static str) -> io::Result<()> {
        let inode = self.inode();
        let mut world = self.world();
        let result = world.whole(name, |w| {
            let durable = w.inodes[inode].after(Loss::Nothing);
            w.inodes[inode].durable = durable;
            w.inodes[inode].pending.clear();
        });
        if matches!(world.fault, Some((at, Fault::Error { .. })) if at + 1 == world.steps.len()) {
            world.inodes[inode].pending.clear();
        }
        result
    }
}

impl Disk for FakeDisk {
    fn path(&self) -> &Path {
        Path::new("/state/record")
    }

    fn open(&mut self) -> io::Result<Found> {
        self.world().whole("open", |_| {})?;
        let inode = self.world().names[RECORD];
        self.open = inode;
        Ok(if self.open.is_some() { Found::Present } else { Found::Missing })
    }

    fn create(&mut self) -> io::Result<()> {
        self.world().whole("create", |w| {
            w.inodes.push(Inode::default());
            w.names[TEMPORARY] = Some(w.inodes.len() - 1);
        })?;
        let inode = self.world().names[TEMPORARY];
        self.open = inode;
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        self.world().whole("publish", |w| w.names = [w.names[TEMPORARY], None])
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.world().whole("sync directory", |w| w.durable_names = w.names)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (inode, offset) = (self.inode(), offset as usize);
        let mut world = self.world();
        let (wrote, result) = match world.step("write")? {
            None => (bytes.len(), Ok(())),
            Some(Fault::Lie) => (0, Ok(())),
            Some(Fault::DoneButFailed) => (bytes.len(), Err(io::Error::from_raw_os_error(libc::EIO))),
            Some(Fault::Error { errno, wrote }) => (wrote, Err(io::Error::from_raw_os_error(errno))),
            Some(Fault::PowerCut { wrote }) => {
                world.dead = true;
                (wrote, Err(io::Error::other("no power")))
            }
        };
        let part = &bytes[..wrote.min(bytes.len())];
        put(&mut world.inodes[inode].cached, offset, part);
        world.inodes[inode].pending.push((offset, part.to_vec()));
        result
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.sync("sync all")
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.sync("sync data")
    }

    fn forget_cache(&mut self) -> io::Result<()> {
        let inode = self.inode();
        self.world().whole("forget cache", |w| w.inodes[inode].cached = w.inodes[inode].after(Loss::Nothing))
    }

    fn read(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        self.world().whole("read", |_| {})?;
        let cached = self.world().inodes[self.inode()].cached.clone();
        Ok(cached[..cached.len().min(limit)].to_vec())
    }
}

fn with_token(token: u64) -> Record {
    Record { highest_token: Token(token), ..Record::missing() }
}

/// What a daemon achieved before the fault: the last acknowledged record, and the one whose write failed.
#[derive(Debug, Clone, Copy, Default)]
struct Story {
    acknowledged: Option<Record>,
    attempted: Option<Record>,
}

/// Opens and writes three records, until something fails; a failed file is asked again, and must not touch the disk.
fn live(disk: &FakeDisk, mut story: Story) -> Story {
    let Ok((mut file, found)) = RecordFile::open_on(disk.clone()) else { return story };
    assert!(found == story.acknowledged || found == story.attempted, "opened with {found:?} after {story:?}");
    for token in (1..=3).map(|n| found.map_or(0, |r| r.highest_token.0) + n) {
        let record = with_token(token);
        if file.write(&record).is_err() {
            story.attempted = Some(record);
            let steps = disk.world().steps.len();
            assert!(matches!(file.write(&record), Err(RecordError::Poisoned { .. })));
            assert_eq!(disk.world().steps.len(), steps, "a poisoned file touches nothing");
            return story;
        }
        story = Story { acknowledged: Some(record), attempted: Some(record) };
    }
    story
}

fn faults_of(step: &str) -> Vec<Fault> {
    let cuts: Vec<usize> = if step == "write" { CUTS.iter().flat_map(|c| [*c, c + SLOT]).collect() } else { vec![0] };
    let cut = cuts.iter().map(|&wrote| Fault::PowerCut { wrote });
    let errors = [libc::EIO, libc::ENOSPC, libc::EDQUOT]
        .into_iter()
        .flat_map(|errno| cuts.iter().map(move |&wrote| Fault::Error { errno, wrote }));
    cut.chain(errors).chain([Fault::DoneButFailed]).collect()
}

/// The state before the story: nothing at all, a fresh file, or a file with a few records.
fn beginnings() -> Vec<(World, Story)> {
    let fresh = FakeDisk::on(World::default());
    drop(RecordFile::open_on(fresh.clone()).unwrap());
    let used = FakeDisk::on(World::default());
    let story = live(&used, Story::default());
    let (fresh, used) = (fresh.world().restart(), used.world().restart());
    vec![(World::default(), Story::default()), (fresh, Story::default()), (used, story)]
}

/// Every world in which a fault has struck once, with what its daemon knows.
fn struck() -> Vec<(String, World, Story)> {
    let mut worlds = Vec::new();
    for (start, before) in beginnings() {
        let calm = FakeDisk::on(start.clone());
        live(&calm, before);
        let steps = calm.world().steps.clone();
        for (at, step) in steps.iter().enumerate() {
            for fault in faults_of(step) {
                let disk = FakeDisk::on(World { fault: Some((at, fault)), ..start.clone() });
                let story = live(&disk, before);
                let world = disk.world().clone();
                worlds.push((format!("{fault:?} at step {at}, {step}"), world, story));
            }
        }
    }
    worlds
}

fn read_back(world: World) -> Result<Option<Record>, RecordError> {
    RecordFile::open_on(FakeDisk::on(world)).map(|(_, record)| record)
}

#[test]
fn the_story_without_faults_passes_every_step_of_the_disk() {
    let disk = FakeDisk::on(World::default());
    live(&disk, Story::default());
    let restarted = FakeDisk::on(disk.world().restart());
    live(&restarted, Story { acknowledged: Some(with_token(3)), attempted: None });
    let all = [disk.world().steps.clone(), restarted.world().steps.clone()].concat();
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 9, "all steps of the trait");
}

#[test]
fn after_a_crash_at_any_point_the_old_or_the_new_record_is_read_and_no_acknowledged_one_is_lost() {
    let worlds = struck();
    assert!(worlds.len() > 1000, "only {} faults", worlds.len());
    for (fault, world, story) in worlds {
        for loss in LOSSES {
            let found = read_back(world.crash(loss)).unwrap_or_else(|e| panic!("{fault}, {loss:?}: {e}"));
            let fine = found == story.acknowledged || found == story.attempted;
            assert!(fine, "{fault}, {loss:?}: read {found:?} after {story:?}");
        }
    }
}

#[test]
fn after_any_fault_and_crash_the_record_can_be_written_again() {
    for (fault, world, story) in struck() {
        for loss in LOSSES {
            let disk = FakeDisk::on(world.crash(loss));
            let done = live(&disk, story);
            let found = read_back(disk.world().crash(Loss::Everything)).unwrap_or_else(|e| panic!("{fault}: {e}"));
            assert_eq!(found, done.acknowledged, "{fault}, {loss:?}");
        }
    }
}

#[test]
fn what_a_restarted_daemon_reads_after_a_failed_sync_is_what_a_later_crash_leaves() {
    for (fault, world, story) in struck().into_iter().filter(|(_, world, _)| !world.dead) {
        let disk = FakeDisk::on(world.restart());
        let (file, relied_on) = RecordFile::open_on(disk.clone()).unwrap_or_else(|e| panic!("{fault}: {e}"));
        drop(file);
        assert!(relied_on == story.acknowledged || relied_on == story.attempted, "{fault}");
        // Where there is no record yet, nothing is relied on.
        if relied_on.is_some() {
            let found = read_back(disk.world().crash(Loss::Everything)).unwrap();
            assert_eq!(found, relied_on, "{fault}: read from the cache, not from the medium");
        }
    }
}

#[test]
fn a_write_torn_at_any_byte_leaves_the_record_before_it_and_is_told() {
    let disk = FakeDisk::on(World::default());
    let story = live(&disk, Story::default());
    let old = story.acknowledged;
    let world = disk.world().restart();
    for wrote in 0..SLOT {
        let disk = FakeDisk::on(world.clone());
        let (mut file, _) = RecordFile::open_on(disk.clone()).unwrap();
        let step = disk.world().steps.len();
        disk.world().fault = Some((step, Fault::PowerCut { wrote }));
        let new = with_token(u64::MAX);
        file.write(&new).unwrap_err();
        let after = disk.world().crash(Loss::Nothing);
        let (file, found) = RecordFile::open_on(FakeDisk::on(after)).unwrap();
        let same_head = wrote <= 16;
        assert_eq!(found, old, "cut after {wrote} bytes");
        assert!(matches!(file.finding(), Finding::TornWrite { .. }) || same_head, "cut after {wrote} bytes");
    }
}

#[test]
fn a_disk_that_lies_gives_an_older_record_never_garbage_and_is_caught_when_it_can_be() {
    let start = FakeDisk::on(World::default());
    live(&start, Story::default());
    let world = start.world().restart();
    let calm = FakeDisk::on(world.clone());
    live(&calm, Story { acknowledged: Some(with_token(3)), attempted: None });
    let mut caught = 0;
    for at in 0..calm.world().steps.len() {
        let disk = FakeDisk::on(World { fault: Some((at, Fault::Lie)), ..world.clone() });
        live(&disk, Story { acknowledged: Some(with_token(3)), attempted: None });
        for loss in LOSSES {
            let (file, found) = RecordFile::open_on(FakeDisk::on(disk.world().crash(loss))).unwrap();
            let token = found.expect("there was a record before").highest_token.0;
            assert!((3..=6).contains(&token), "lie at step {at}, {loss:?}: {token}");
            caught += usize::from(matches!(file.finding(), Finding::LostWrite { .. }));
        }
    }
    assert!(caught > 0, "a lost write between two others shows in the generations");
}

#[test]
fn a_full_disk_is_told_by_that_word_and_by_path_in_the_first_line() {
    let disk =
        FakeDisk::on(World { fault: Some((2, Fault::Error { errno: libc::ENOSPC, wrote: 100 })), ..World::default() });
    let text = RecordFile::open_on(disk).unwrap_err().to_string();
    let first = text.lines().next().unwrap();
    assert!(first.contains("full") && first.contains("/state/record"), "{text}");
}
