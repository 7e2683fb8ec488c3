//! Kind `mount`, with real file systems: ext4 on a loop device, and one that stops answering.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use leasehold::config::{Fsck, MountResource, Probe, ResourceKind};
use leasehold::core::Span;
use leasehold::resource::{Mount, Resource, ResourceError};
use tokio::time::timeout;

use crate::hang::{self, Hanging};
use crate::lab::{PATIENCE, configured, down, is_alive, primary, stuck, until, until_hanging, up};
use crate::need;

const STOP: Span = Span::from_secs(8);

fn can_run(test: &str) -> bool {
    let programs = ["losetup", "mkfs.ext4", "fsck.ext4", "mount", "umount", "nsenter", "unshare"].map(need::program);
    need::all(test, &[need::root(), need::file("/dev/loop-control")].into_iter().chain(programs).collect::<Vec<_>>())
}

/// A device with a file system, and a mount point. Dropping it takes both away, whatever has become of them.
struct Disk {
    dir: tempfile::TempDir,
    device: String,
}

impl Disk {
    fn new() -> Disk {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        fs::create_dir(dir.path().join("point")).unwrap();
        let device = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
        Disk { dir, device }
    }

    fn point(&self) -> PathBuf {
        self.dir.path().join("point")
    }

    fn mount(&self) -> Mount {
        self.mount_with(|_| {})
    }

    fn mount_with(&self, change: impl FnOnce(&mut MountResource)) -> Mount {
        let mut config = MountResource {
            what: self.device.clone(),
            point: self.point(),
            file_system: "ext4".to_owned(),
            options: Some("noatime".to_owned()),
            fsck: Fsck::Preen,
            probe: Probe::None,
            probe_timeout: Span::from_secs(5),
            interval: Span::from_ms(50),
        };
        change(&mut config);
        resource(&config, self.dir.path())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.point()).stderr(Stdio::null()).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

fn resource(config: &MountResource, dir: &Path) -> Mount {
    let configured = configured("kelp", STOP, ResourceKind::Mount(config.clone()));
    Mount::new(&configured, config, &dir.display().to_string())
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn is_mounted(point: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", point.display()))
}

/// A process in a folder, killed at the end.
struct Guest(Child);

impl Guest {
    fn shell(folder: &Path, script: &str) -> Guest {
        let mut command = Command::new("/bin/sh");
        Guest(command.args(["-c", script]).current_dir(folder).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_device_is_checked_mounted_adopted_and_unmounted() {
    if !can_run("a_device_is_checked_mounted_adopted_and_unmounted") {
        return;
    }
    let disk = Disk::new();
    let kelp = disk.mount();
    kelp.ready().await.unwrap();
    assert!(kelp.is_stopped().await.unwrap());
    up(&kelp).await;
    fs::write(disk.point().join("row"), "1").unwrap();
    let next = disk.mount();
    assert!(next.adopt(&primary()).await.unwrap());
    kelp.ready().await.unwrap();
    let again = next.start(&primary()).await.unwrap_err();
    assert!(matches!(again, ResourceError::Leftovers { .. }), "{again}");
    down(&kelp).await;
    assert!(!is_mounted(&disk.point()) && !next.adopt(&primary()).await.unwrap());
    up(&kelp).await;
    assert_eq!(fs::read_to_string(disk.point().join("row")).unwrap(), "1");
    // Also where somebody has mounted it besides, and something else upon it.
    let (other, above) = (disk.dir.path().join("other"), disk.point().join("above"));
    [&other, &above].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    run("mount", &["--bind", disk.point().to_str().unwrap(), other.to_str().unwrap()]);
    run("mount", &["-t", "tmpfs", "tmpfs", above.to_str().unwrap()]);
    down(&kelp).await;
    assert!(!is_mounted(&other) && !is_mounted(&above));
}

#[tokio::test]
async fn users_are_asked_then_killed_and_others_are_left_alone() {
    if !can_run("users_are_asked_then_killed_and_others_are_left_alone") {
        return;
    }
    let disk = Disk::new();
    let kelp = disk.mount();
    up(&kelp).await;
    let bystander = Guest::shell(disk.dir.path(), "exec sleep 4321");
    let polite = Guest::shell(&disk.point(), "exec sleep 4321");
    let deaf = Guest::shell(disk.dir.path(), "trap '' TERM; exec 3> point/open; echo >&3; while :; do sleep 1; done");
    until("the file is open", || fs::metadata(disk.point().join("open")).is_ok_and(|m| m.len() > 0)).await;
    down(&kelp).await;
    assert!(!is_alive(&polite.pid()) && !is_alive(&deaf.pid()) && is_alive(&bystander.pid()));
}

#[tokio::test]
async fn a_copy_in_another_mount_namespace_is_unmounted_too() {
    if !can_run("a_copy_in_another_mount_namespace_is_unmounted_too") {
        return;
    }
    let disk = Disk::new();
    let kelp = disk.mount();
    up(&kelp).await;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", "touch copied; exec sleep 4321"]);
    let elsewhere = Guest(command.current_dir(disk.dir.path()).spawn().unwrap());
    until("the copy", || disk.dir.path().join("copied").exists()).await;
    down(&kelp).await;
    assert!(is_alive(&elsewhere.pid()), "who lives beside it is no user of it");
}

/// It is out of sight, and the kernel still writes to the device.
#[tokio::test]
async fn a_file_system_that_somebody_detached_while_it_was_in_use_is_not_stopped() {
    if !can_run("a_file_system_that_somebody_detached_while_it_was_in_use_is_not_stopped") {
        return;
    }
    let disk = Disk::new();
    let kelp = disk.mount();
    up(&kelp).await;
    let guest = Guest::shell(&disk.point(), "touch here; exec sleep 4321");
    until("the guest", || disk.point().join("here").exists()).await;
    run("umount", &["-l", disk.point().to_str().unwrap()]);
    let told = stuck(&kelp).await;
    assert!(told.contains(&disk.device) && told.contains("held by the kernel"), "{told}");
    drop(guest);
    down(&kelp).await;
}

#[tokio::test]
async fn what_cannot_be_mounted_is_told() {
    if !can_run("what_cannot_be_mounted_is_told") {
        return;
    }
    let disk = Disk::new();
    let told = async |mount: Mount| {
        let told = mount.start(&primary()).await.unwrap_err().to_string();
        down(&mount).await;
        told
    };
    let missing = told(disk.mount_with(|c| c.what = "/dev/disk/by-id/no-such-disk".to_owned())).await;
    assert!(missing.contains("no block device /dev/disk/by-id/no-such-disk"), "{missing}");
    let folder = told(disk.mount_with(|c| c.point = disk.dir.path().join("none"))).await;
    assert!(folder.contains("mkdir -p"), "{folder}");
    let option = told(disk.mount_with(|c| c.options = Some("no-such-option".to_owned()))).await;
    assert!(option.contains("mount: exit status"), "{option}");
    // The superblock and its first copies are gone: nothing that may be repaired without asking.
    fs::write(disk.dir.path().join("image"), vec![0x5a; 16 << 20]).unwrap();
    let broken = told(disk.mount()).await;
    assert!(broken.contains("fsck.ext4 -p does not dare"), "{broken}");
}

#[tokio::test]
async fn what_becomes_of_it_behind_our_back_is_told() {
    if !can_run("what_becomes_of_it_behind_our_back_is_told") {
        return;
    }
    let disk = Disk::new();
    let kelp = disk.mount_with(|config| config.probe = Probe::Fsync);
    up(&kelp).await;
    let watch = kelp.watch();
    let probed = until("a probe", || disk.point().join(".leasehold-probe").exists());
    tokio::select! {
        told = watch => panic!("it is well: {told}"),
        () = probed => {}
    }
    // A probe that is being killed may hold its file for a moment.
    let remount =
        || Command::new("mount").args(["-o", "remount,ro"]).arg(disk.point()).output().unwrap().status.success();
    until("a remount", remount).await;
    let told = timeout(PATIENCE, kelp.watch()).await.unwrap();
    assert!(told.contains("read-only"), "{told}");
    run("umount", &[disk.point().to_str().unwrap()]);
    let told = timeout(PATIENCE, kelp.watch()).await.unwrap();
    assert!(told.contains("nothing is mounted"), "{told}");
    down(&kelp).await;
}

#[tokio::test]
async fn a_start_that_was_dropped_is_over_before_the_stop() {
    if !can_run("a_start_that_was_dropped_is_over_before_the_stop") {
        return;
    }
    let disk = Disk::new();
    let kelp = disk.mount();
    for wait in [0, 1, 5, 20, 60] {
        let context = primary();
        let mut start = kelp.start(&context);
        let _ = timeout(std::time::Duration::from_millis(wait), &mut start).await;
        drop(start);
        down(&kelp).await;
        assert!(!is_mounted(&disk.point()));
    }
}

/// One file system that was mounted by somebody else and stops answering while a process waits for it in the kernel.
#[tokio::test]
async fn a_dead_file_system_is_forced_away_with_those_who_hang_on_it() {
    if !need::all("a_dead_file_system_is_forced_away_with_those_who_hang_on_it", &hang::needs()) {
        return;
    }
    let (dir, dead) = (tempfile::tempdir().unwrap(), Hanging::mount());
    let device = dead.path("device");
    let point = device.parent().unwrap().to_owned();
    let kelp = fuse(&point, dir.path());
    assert!(kelp.adopt(&primary()).await.unwrap());
    dead.hang();
    let script = format!("exec dd if=/dev/zero of={} count=1 conv=notrunc,fsync", device.display());
    let guest = Guest::shell(dir.path(), &script);
    until_hanging(|| vec![guest.pid()]).await;
    let told = timeout(PATIENCE, kelp.watch()).await.unwrap();
    assert!(told.contains("synced write"), "{told}");
    down(&kelp).await;
    assert!(!is_alive(&guest.pid()) && !is_mounted(&point));
}

/// The resource for a file system that is mounted already, by the name that the kernel shows.
fn fuse(point: &Path, dir: &Path) -> Mount {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(&format!(" {} ", point.display()))).unwrap();
    let mut words = line.split_once(" - ").unwrap().1.split(' ').map(str::to_owned);
    let (file_system, what) = (words.next().unwrap(), words.next().unwrap());
    let config = MountResource {
        what,
        point: point.to_owned(),
        file_system,
        options: None,
        fsck: Fsck::None,
        probe: Probe::Fsync,
        probe_timeout: Span::from_ms(300),
        interval: Span::from_ms(50),
    };
    resource(&config, dir)
}
