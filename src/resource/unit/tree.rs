//! The control group of a unit, found and emptied without asking the service manager.
//!
//! systemd keeps each unit in a control group of the unit's name, below slices only: in the tree of version 2, and on
//! older setups in that of version 1 named `systemd`, or in both. A group of the same name elsewhere belongs to another
//! systemd, in a container, whose groups lie below a scope or a service: there nobody looks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::super::mounts::{self, MountLine};
use super::super::search::{self, Found};

/// What systemd's own group is called, below which is nothing but itself.
const INIT_SCOPE: &str = "/init.scope";

/// Where a service manager's groups begin, in each tree that it uses.
#[derive(Debug, Clone)]
pub struct Trees(Vec<PathBuf>);

/// The directories that are one unit's control group: none while it has no process.
#[derive(Debug)]
pub struct ControlGroup(Vec<PathBuf>);

impl Trees {
    /// Of the service manager with this process id.
    pub fn of(manager: i32) -> io::Result<Trees> {
        let places = fs::read_to_string(format!("/proc/{manager}/cgroup"))?;
        let bases = bases(&mounts::of_process("self")?, &places);
        match bases.is_empty() {
            true => Err(io::Error::other("no control groups of a service manager are mounted")),
            false => Ok(Trees(bases)),
        }
    }

    pub fn into_paths(self) -> Vec<PathBuf> {
        self.0
    }

    pub fn group(&self, unit: &str) -> io::Result<ControlGroup> {
        let mut found = Vec::new();
        for base in &self.0 {
            find(base, unit, &mut found)?;
        }
        Ok(ControlGroup(found))
    }
}

impl ControlGroup {
    /// All living processes in it and below.
    pub fn processes(&self) -> io::Result<Vec<Found>> {
        let mut pids = Vec::new();
        for dir in &self.0 {
            collect(dir, &mut pids)?;
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids.into_iter().filter_map(search::look).collect())
    }

    /// SIGKILL to all of it: at once where the kernel can, and one by one.
    pub fn kill(&self) {
        for dir in &self.0 {
            let _ = fs::write(dir.join("cgroup.kill"), "1");
        }
        self.signal(Signal::KILL);
    }

    pub fn signal(&self, signal: Signal) {
        self.processes().unwrap_or_default().iter().for_each(|process| process.signal(signal));
    }
}

fn bases(mounts: &[MountLine], places: &str) -> Vec<PathBuf> {
    let of = |is_it: &dyn Fn(&&MountLine) -> bool, prefix: &str| {
        let mount = mounts.iter().find(is_it)?;
        let place = places.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(prefix))?;
        let own = place.strip_suffix(INIT_SCOPE).unwrap_or(place);
        let below = Path::new(own).strip_prefix(&mount.root).unwrap_or(Path::new("")).to_owned();
        Some(mount.point.join(below))
    };
    let second = |m: &&MountLine| m.file_system == "cgroup2";
    let first = |m: &&MountLine| m.file_system == "cgroup" && m.options.iter().any(|o| o == "name=systemd");
    [of(&second, ":"), of(&first, "name=systemd:")].into_iter().flatten().collect()
}

fn find(dir: &Path, unit: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in entries(dir)? {
        let name = entry.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        // systemd puts a `_` before names that the kernel's own files could have.
        match name.as_str() {
            own if own == unit || own.strip_prefix('_') == Some(unit) => found.push(entry),
            slice if slice.ends_with(".slice") => find(&entry, unit, found)?,
            _ => {}
        }
    }
    Ok(())
}

fn collect(dir: &Path, pids: &mut Vec<i32>) -> io::Result<()> {
    match fs::read_to_string(dir.join("cgroup.procs")) {
        Ok(text) => {
            for pid in text.lines() {
                pids.push(pid.parse().map_err(io::Error::other)?);
            }
        }
        // A group of threads: their processes are listed in the group above.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(error),
    }
    entries(dir)?.iter().try_for_each(|below| collect(below, pids))
}

/// The directories in a directory; none in one that is gone.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let listed = match fs::read_dir(dir) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        listed => listed?,
    };
    let dirs = listed.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    Ok(dirs.map(|e| e.path()).collect())
}

/// A group may be removed while somebody reads it: the kernel then says "no such device".
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 25 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                          32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                          33 25 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

    #[test]
    fn both_trees_begin_where_the_manager_lives() {
        let places = "9:name=systemd:/payload/init.scope\n8:pids:/\n0::/payload/init.scope\n";
        let found = bases(&mounts::parse(HYBRID), places);
        let expected = ["/sys/fs/cgroup/unified/payload", "/sys/fs/cgroup/systemd/payload"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!(bases(&mounts::parse(HYBRID), "0::/init.scope\n"), [PathBuf::from("/sys/fs/cgroup/unified/")]);
        assert!(bases(&[], places).is_empty());
    }

    #[test]
    fn a_unit_is_looked_for_in_slices_only() {
        let dir = tempfile::tempdir().unwrap();
        let group = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
            path
        };
        let own = group("system.slice/system-kelp.slice/kelp.service");
        group("system.slice/system-kelp.slice/kelp.service/below");
        group("machine.slice/box.scope/payload/system.slice/kelp.service");
        group("system.slice/kelp.service.d");
        let trees = Trees(vec![dir.path().to_owned()]);
        let found = trees.group("kelp.service").unwrap();
        assert_eq!(found.0, [own]);
        let pids: Vec<i32> = found.processes().unwrap().iter().map(|p| p.pid).collect();
        assert_eq!(pids, [std::process::id().cast_signed()]);
        assert!(trees.group("eelgrass.service").unwrap().processes().unwrap().is_empty());
    }
}
