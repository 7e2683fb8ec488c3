//! A made-up disk for the tests of the record: it keeps what is cached apart from what is durable, and fails as told.
//!
//! A fault is an error of a step (with part of its effect), the power going out in the middle of it, or a lie about it.
//! After a crash what was pending survives wholly, partly or not at all.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use super::disk::{Disk, Found};

const RECORD: usize = 0;
const TEMPORARY: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
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
pub(super) enum Loss {
    Everything,
    Nothing,
    /// Only this many bytes of the newest write reached the medium.
    AllButFirst(usize),
    /// Sectors of 512 bytes survive by these bits, in no order.
    Sectors(u16),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    cached: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct World {
    inodes: Vec<Inode>,
    names: [Option<usize>; 2],
    durable_names: [Option<usize>; 2],
    pub fault: Option<(usize, Fault)>,
    pub steps: Vec<&'static str>,
    pub dead: bool,
}

#[derive(Debug, Clone)]
pub(super) struct FakeDisk {
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

    /// This world, where `fault` strikes at that step.
    pub fn with_fault(self, step: usize, fault: Fault) -> World {
        World { fault: Some((step, fault)), ..self }
    }

    pub fn crash(&self, loss: Loss) -> World {
        let names = if matches!(loss, Loss::Everything) { self.durable_names } else { self.names };
        let inodes = self.inodes.iter().map(|inode| Inode::from_medium(inode.after(loss))).collect();
        World { inodes, names, durable_names: names, ..World::default() }
    }

    /// The process is started again; the machine goes on.
    pub fn restart(&self) -> World {
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
    pub fn on(world: World) -> FakeDisk {
        FakeDisk { world: Arc::new(Mutex::new(world)), open: None }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
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
