//! Control groups: killed whole, and seen to be empty, without the heap.
//!
//! The group of a unit is looked for as `resource::unit` does: by its name, below slices only, in each tree of its
//! manager. A tree of version 1 has neither `cgroup.kill` nor `cgroup.events`: there each process is killed, and counted.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::plan::UnitPlan;
use super::scan::Name;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// Deeper than systemd nests slices, and shallow enough for the stack.
const DEEPEST: usize = 12;
const LISTED: usize = 1 << 10;
const NUMBERS: usize = 1 << 10;

/// What is done with a group that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Kill,
    Look,
}

/// SIGKILL to all of a group.
pub fn kill(path: &[u8]) {
    if let Ok(group) = openat(CWD, Name::new().with(path), FOLDER, Mode::empty()) {
        kill_group(&group, 0);
    }
}

/// A group that does not exist has no processes.
pub fn is_empty(path: &[u8]) -> bool {
    match openat(CWD, Name::new().with(path), FOLDER, Mode::empty()) {
        Ok(group) => is_empty_group(&group, 0),
        Err(error) => error == Errno::NOENT,
    }
}

/// SIGKILL to all of a unit.
pub fn kill_unit(unit: UnitPlan<'_>) {
    unit.trees().for_each(|tree| {
        in_tree(tree, unit.name, Deed::Kill);
    });
}

/// Whether no tree has a process of it. A tree that cannot be read proves nothing.
pub fn is_unit_empty(unit: UnitPlan<'_>) -> bool {
    unit.trees().next().is_some() && unit.trees().all(|tree| in_tree(tree, unit.name, Deed::Look))
}

fn in_tree(tree: &[u8], unit: &[u8], deed: Deed) -> bool {
    let opened = openat(CWD, Name::new().with(tree), OFlags::difference(FOLDER, OFlags::NOFOLLOW), Mode::empty());
    opened.is_ok_and(|folder| in_folder(&folder, unit, deed, 0))
}

/// Whether nothing of it is left in this folder.
fn in_folder(folder: &OwnedFd, unit: &[u8], deed: Deed, depth: usize) -> bool {
    let mut clean = depth < DEEPEST;
    let read = for_each_folder(folder, |name, below| {
        let text = name.to_bytes();
        // systemd puts a `_` before names that the kernel's own files could have.
        clean &= if text == unit || text.strip_prefix(b"_") == Some(unit) {
            match deed {
                Deed::Kill => {
                    kill_group(below, 0);
                    false
                }
                Deed::Look => is_empty_group(below, 0),
            }
        } else if text.ends_with(b".slice") && depth < DEEPEST {
            in_folder(below, unit, deed, depth + 1)
        } else {
            true
        };
    });
    read && clean
}

fn kill_group(group: &OwnedFd, depth: usize) {
    if let Ok(file) = openat(group, c"cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        && rustix::io::write(&file, b"1").is_ok()
    {
        return;
    }
    let _ = for_each_process(group, |pid| {
        let _ = kill_process(pid, Signal::KILL);
    });
    if depth < DEEPEST {
        for_each_folder(group, |_, below| kill_group(below, depth + 1));
    }
}

fn is_empty_group(group: &OwnedFd, depth: usize) -> bool {
    match openat(group, c"cgroup.events", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => {
            let mut text = [0; 256];
            let Ok(length) = rustix::io::read(&file, &mut text) else { return false };
            text[..length].split(|byte| *byte == b'\n').any(|line| line == b"populated 0")
        }
        Err(Errno::NOENT) => {
            let mut any = false;
            let read = for_each_process(group, |_| any = true);
            let mut clean = depth < DEEPEST;
            clean &= for_each_folder(group, |_, below| clean &= depth < DEEPEST && is_empty_group(below, depth + 1));
            read && !any && clean
        }
        Err(_) => false,
    }
}

/// Whether all could be read. A group that went away meanwhile has none.
fn for_each_process(group: &OwnedFd, mut each: impl FnMut(Pid)) -> bool {
    let file = match openat(group, c"cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(error) => return is_gone(error),
    };
    let (mut text, mut pid) = ([0; NUMBERS], 0i32);
    loop {
        match rustix::io::read(&file, &mut text) {
            Ok(0) => return true,
            Ok(length) => text[..length].iter().for_each(|byte| match byte {
                b'0'..=b'9' => pid = pid.wrapping_mul(10).wrapping_add(i32::from(byte - b'0')),
                _ => {
                    if let Some(found) = Pid::from_raw(std::mem::take(&mut pid)) {
                        each(found);
                    }
                }
            }),
            Err(Errno::INTR) => {}
            Err(error) => return is_gone(error),
        }
    }
}

/// Whether all could be read.
fn for_each_folder(folder: &OwnedFd, mut each: impl FnMut(&CStr, &OwnedFd)) -> bool {
    // Another open folder has another place in its list.
    let Ok(list) = openat(folder, c".", FOLDER, Mode::empty()) else { return false };
    let mut space = [MaybeUninit::uninit(); LISTED];
    let mut entries = RawDir::new(list.as_fd(), &mut space);
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return is_gone(error),
        };
        if entry.file_name().to_bytes().starts_with(b".") {
            continue;
        }
        match openat(folder, entry.file_name(), FOLDER, Mode::empty()) {
            Ok(below) => each(entry.file_name(), &below),
            Err(Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) if is_gone(error) => {}
            Err(_) => return false,
        }
    }
    true
}

fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NODEV)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn bytes(path: &Path) -> &[u8] {
        path.as_os_str().as_encoded_bytes()
    }

    #[test]
    fn a_group_is_empty_by_the_kernels_word_or_because_it_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = bytes(dir.path());
        std::fs::write(dir.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert!(!is_empty(path));
        std::fs::write(dir.path().join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert!(is_empty(path));
        assert!(is_empty(b"/nonexistent/cgroup"));
        std::fs::write(dir.path().join("cgroup.kill"), "").unwrap();
        kill(path);
        assert_eq!(std::fs::read(dir.path().join("cgroup.kill")).unwrap(), b"1");
    }

    #[test]
    fn in_a_tree_of_version_1_every_process_below_is_killed_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        let mut child = std::process::Command::new("sleep").arg("981").spawn().unwrap();
        std::fs::write(below.join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
        assert!(!is_empty(bytes(dir.path())));
        kill(bytes(dir.path()));
        assert!(!child.wait().unwrap().success());
        std::fs::write(below.join("cgroup.procs"), "").unwrap();
        assert!(is_empty(bytes(dir.path())));
    }

    #[test]
    fn a_unit_is_looked_for_in_slices_only_and_a_tree_that_is_not_there_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let group = |path: &str, populated: u8| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("cgroup.events"), format!("populated {populated}\n")).unwrap();
            std::fs::write(path.join("cgroup.kill"), "").unwrap();
            path
        };
        let own = group("system.slice/system-kelp.slice/kelp.service", 1);
        let strange = group("machine.slice/box.scope/system.slice/kelp.service", 1);
        let unit = |name: &'static [u8], tree: &Path, check: &dyn Fn(UnitPlan<'_>)| {
            let remains = crate::resource::UnitRemains {
                unit: String::from_utf8_lossy(name).into_owned(),
                trees: vec![tree.to_owned()],
                manager: "/nonexistent".into(),
                stop: b"call".to_vec(),
            };
            let remains = crate::resource::Remains { units: vec![remains], ..Default::default() };
            let plan = super::super::plan::in_memory(&remains);
            check(plan.units().next().unwrap());
        };
        unit(b"kelp.service", dir.path(), &|unit| {
            assert_eq!(unit.stop, b"call");
            assert!(!is_unit_empty(unit));
            kill_unit(unit);
        });
        assert_eq!(std::fs::read(own.join("cgroup.kill")).unwrap(), b"1");
        assert_eq!(std::fs::read(strange.join("cgroup.kill")).unwrap(), b"", "of another manager");
        unit(b"eelgrass.service", dir.path(), &|unit| assert!(is_unit_empty(unit)));
        unit(b"eelgrass.service", Path::new("/nonexistent"), &|unit| assert!(!is_unit_empty(unit)));
    }
}
