//! A cgroup for each service, where the service manager has given this daemon a tree of its own (cgroup v2,
//! `Delegate=yes`): there no process can hide, and one write kills them all at once, also those that fork faster than
//! anybody can look.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use sha2::{Digest as _, Sha256};

/// The extended attributes by which systemd marks the root of a delegated tree.
const DELEGATED: [&str; 2] = ["trusted.delegate", "user.delegate"];

/// One service's cgroup; it exists from the first start on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// The same place after each restart, another for each instance.
    pub fn below(base: &Path, name: &str, instance: &str) -> Cgroup {
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let digest = Sha256::digest(format!("{name}:{instance}"));
        let tag: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
        Cgroup(base.join(format!("resource-{plain}-{tag}")))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves a process in; its children follow.
    pub fn adopt(&self, pid: Pid) -> io::Result<()> {
        match fs::create_dir(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::write(self.0.join("cgroup.procs"), pid.as_raw_nonzero().to_string())
    }

    /// The processes in it; none while it does not exist.
    pub fn processes(&self) -> Vec<i32> {
        let listed = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        listed.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// SIGKILL to all of it at once. Kernels before 5.14 cannot; there the processes are killed one by one.
    pub fn kill(&self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

/// The root of the tree that was given to this daemon, if any.
pub fn delegated() -> Option<PathBuf> {
    let mount = mount_point(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    let own = own_path(&fs::read_to_string("/proc/self/cgroup").ok()?)?;
    let mine = mount.join(own.trim_start_matches('/'));
    mine.ancestors().take_while(|dir| dir.starts_with(&mount)).find(|dir| is_delegated(dir)).map(Path::to_owned)
}

fn is_delegated(dir: &Path) -> bool {
    DELEGATED.iter().any(|name| {
        let mut value = [0; 8];
        rustix::fs::getxattr(dir, *name, &mut value).is_ok_and(|n| value.starts_with(b"1") && n == 1)
    })
}

/// Where the cgroup v2 tree is mounted (proc(5), mountinfo: the type comes after the dash).
pub fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// This process's place in the cgroup v2 tree (cgroups(7): the line with hierarchy 0).
fn own_path(cgroup: &str) -> Option<String> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_and_the_place_in_it_are_read_from_the_kernels_tables() {
        let mounts = "23 1 0:20 / /proc rw - proc proc rw\n\
                      30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(
            own_path("9:name=systemd:/\n0::/system.slice/a.service\n").as_deref(),
            Some("/system.slice/a.service")
        );
        assert_eq!(mount_point("23 1 0:20 / /proc rw - proc proc rw\n"), None);
    }

    #[test]
    fn each_instance_has_its_own_place_and_no_name_leaves_the_tree() {
        let base = Path::new("/base");
        let one = Cgroup::below(base, "../../etc", "a");
        assert_eq!(one.0.parent(), Some(base));
        assert_eq!(one, Cgroup::below(base, "../../etc", "a"));
        assert_ne!(one, Cgroup::below(base, "../../etc", "b"));
        assert!(one.processes().is_empty());
    }

    /// On a machine that lets this user make cgroups.
    #[tokio::test]
    async fn a_process_that_hides_from_every_mark_is_found_and_killed_by_its_cgroup() {
        let Some(mount) = fs::read_to_string("/proc/self/mountinfo").ok().and_then(|m| mount_point(&m)) else { return };
        let base = mount.join(format!("leasehold-test-{}", std::process::id()));
        if fs::create_dir(&base).is_err() {
            return;
        }
        let pid = super::super::exec::hidden_process_is_stopped(&base).await;
        let removed = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            fs::read_dir(&base).unwrap().flatten().filter(|e| e.path().is_dir()).for_each(|e| {
                let _ = fs::remove_dir(e.path());
            });
            fs::remove_dir(&base).is_ok()
        });
        assert!(removed, "process {pid} may be left");
    }
}
