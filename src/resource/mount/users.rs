//! Who uses a file system, found without touching it: one that is dead would hold up whoever looks.
//!
//! `/proc/PID/fdinfo` names the mount of each open file by number, `maps` the device of each mapped one, and the links
//! `cwd`, `root` and `exe` are texts that the kernel makes without asking the file system. A process in another mount
//! namespace sees the same file system under another number, which its own table of mounts tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::unit::witness_of_mounts;

use super::super::mounts::{self, MountLine};
use super::super::search::{self, Found};

/// What tells the file system apart, wherever it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As the tables of mounts show it, where the source is a device.
    pub sources: BTreeSet<String>,
    pub devices: BTreeSet<(u32, u32)>,
}

impl Target {
    pub fn is(&self, mount: &MountLine) -> bool {
        self.sources.contains(&mount.source) || self.devices.contains(&mount.device)
    }
}

/// All that use it, and in which other mount namespaces it is mounted: for each, a process that lives there, and where.
#[derive(Debug, Default)]
pub struct Users {
    pub processes: Vec<Found>,
    pub elsewhere: Vec<(Found, Vec<PathBuf>)>,
}

/// One mount namespace, as far as it shows the file system.
#[derive(Debug, Clone, Default)]
struct View {
    ids: BTreeSet<u64>,
    points: Vec<PathBuf>,
}

/// Looks at every process but this one. May take a while on a busy machine: call it off the loop.
pub fn find(target: &Target) -> io::Result<Users> {
    let own = namespace(witness_of_mounts());
    let mut views: BTreeMap<PathBuf, View> = BTreeMap::new();
    let mut users = Users::default();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if pid.cast_unsigned() == std::process::id() {
            continue;
        }
        // A process that is ending has no namespace, and no files.
        let (Some(place), Some(found)) = (namespace(&pid.to_string()), search::look(pid)) else { continue };
        let first = !views.contains_key(&place);
        let view = views.entry(place.clone()).or_insert_with(|| view(target, pid)).clone();
        if first && !view.ids.is_empty() && own.as_ref() != Some(&place) {
            users.elsewhere.push((found.clone(), view.points.clone()));
        }
        if !view.ids.is_empty() && uses(pid, &view, &target.devices) {
            users.processes.push(found);
        }
    }
    Ok(users)
}

fn namespace(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

fn view(target: &Target, pid: i32) -> View {
    let mounts = mounts::of_process(&pid.to_string()).unwrap_or_default();
    let mine: Vec<&MountLine> = mounts.iter().filter(|m| target.is(m)).collect();
    View { ids: mine.iter().map(|m| m.id).collect(), points: mine.iter().map(|m| m.point.clone()).collect() }
}

fn uses(pid: i32, view: &View, devices: &BTreeSet<(u32, u32)>) -> bool {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let links = ["cwd", "root", "exe"].iter().any(|name| points_into(&dir.join(name), &view.points));
    links || opens(&dir, view) || maps(&dir, devices)
}

fn points_into(link: &Path, points: &[PathBuf]) -> bool {
    fs::read_link(link).is_ok_and(|path| points.iter().any(|point| path.starts_with(point)))
}

fn opens(dir: &Path, view: &View) -> bool {
    let listed = fs::read_dir(dir.join("fdinfo")).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).any(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        mount_id(&text).is_some_and(|id| view.ids.contains(&id))
    })
}

fn mount_id(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

fn maps(dir: &Path, devices: &BTreeSet<(u32, u32)>) -> bool {
    let text = fs::read(dir.join("maps")).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(mapped_device).any(|device| devices.contains(&device))
}

/// proc_pid_maps(5): the fourth field is the device, in hexadecimal.
fn mapped_device(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.split_whitespace().nth(3)?.split_once(':')?;
    Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_the_kernels_texts() {
        assert_eq!(mount_id("pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t5\n"), Some(29));
        assert_eq!(mount_id("pos:\t0\n"), None);
        let line = "7f00-7f10 r--p 00000000 fd:0a 1311 /usr/lib/libc.so";
        assert_eq!(mapped_device(line), Some((0xfd, 10)));
        assert_eq!(mapped_device(""), None);
    }

    #[test]
    fn a_target_is_known_by_its_source_or_its_device() {
        let mounts = mounts::parse("40 35 8:1 / /a rw - ext4 /dev/sda1 rw\n41 35 0:9 / /b rw - nfs4 nas:/kelp rw\n");
        let target = |sources: &[&str], devices: &[(u32, u32)]| Target {
            sources: sources.iter().map(|s| (*s).to_owned()).collect(),
            devices: devices.iter().copied().collect(),
        };
        let found = |t: Target| mounts.iter().map(|m| t.is(m)).collect::<Vec<_>>();
        assert_eq!(found(target(&["nas:/kelp"], &[])), [false, true]);
        assert_eq!(found(target(&[], &[(8, 1)])), [true, false]);
    }
}
