//! Disks that fill up under a server (casebook C31).

use std::fs;
use std::process::Command;
use std::time::Duration;

use leasehold::core::Standing;
use leasehold::resource::Failure;
use tokio::time::timeout;

use super::{HERON, Lab, PATIENCE, PLOVER, Pair, available, need, pg, until};

const MEGABYTE: u64 = 1 << 20;

async fn failure(pair: &Pair) -> Failure {
    timeout(PATIENCE, pair.group(HERON).failed()).await.expect("a full disk is told")
}

/// C31 A: "stopped" is judged by what runs, not by what the control file says.
#[tokio::test]
async fn a_full_disk_is_told_and_the_remains_of_a_crashed_server_count_as_stopped() {
    if !available("a_full_disk_is_told_and_the_remains_of_a_crashed_server_count_as_stopped") {
        return;
    }
    let lab = Lab::new();
    let data = lab.data(HERON);
    lab.on_own_disk(HERON, &["-t", "tmpfs", "-o", "size=160m", "tmpfs"]);
    let pair = Pair::of(lab, |_| {});
    pair.start(HERON, 2).await.unwrap();
    assert_eq!(pair.group(HERON).strained(), []);
    pair.lab.fill(HERON, MEGABYTE);
    let failure = failure(&pair).await;
    let first = failure.what.lines().next().unwrap_or_default();
    assert!(first.contains("full") && first.contains(data.to_str().unwrap()), "{first}");
    assert_eq!(pair.group(HERON).strained()[0].what, failure.what, "it still runs");

    pair.lab.kill_all(HERON);
    let control = Command::new(format!("{}/pg_controldata", pg::BIN)).args(["-D"]).arg(&data).output().unwrap();
    assert!(String::from_utf8_lossy(&control.stdout).contains("in production"));
    pair.stop(HERON).await;
    assert_eq!(pair.group(HERON).strained(), [], "what does not run is under no strain");
    let told = pair.why_not_ready(HERON).await;
    assert!(told.contains("full") && told.contains(data.to_str().unwrap()), "{told}");
    let told = pair.start(HERON, 4).await.unwrap_err().to_string();
    assert!(told.contains("full") && told.contains(data.to_str().unwrap()), "{told}");
    pair.lab.make_room(HERON);
    pair.start(HERON, 4).await.unwrap();
    pair.stop(HERON).await;
}

/// One that stays on a full disk is watched on: it is well when there is room again, and its end is an end.
#[tokio::test]
async fn a_server_that_stays_on_a_full_disk_is_watched_on() {
    if !available("a_server_that_stays_on_a_full_disk_is_watched_on") {
        return;
    }
    let lab = Lab::new();
    lab.on_own_disk(HERON, &["-t", "tmpfs", "-o", "size=160m", "tmpfs"]);
    let pair = Pair::of(lab, |_| {});
    pair.group(HERON).set_standing(Standing::Sole);
    pair.start(HERON, 2).await.unwrap();
    pair.lab.fill(HERON, 4 * MEGABYTE);
    assert!(failure(&pair).await.what.contains("full"));
    pair.group(HERON).watch_on("db");
    pair.sql(HERON, "create table row (number int)");
    pair.lab.make_room(HERON);
    until("it is well", || pair.group(HERON).strained().is_empty()).await;

    pair.lab.fill(HERON, 4 * MEGABYTE);
    assert!(failure(&pair).await.what.contains("full"));
    pair.group(HERON).watch_on("db");
    pair.lab.kill_all(HERON);
    let what = failure(&pair).await.what;
    assert!(what.starts_with("the disk is full") && what.contains("the server ended"), "{what}");
    assert_eq!(pair.group(HERON).strained(), [], "it has failed");
    pair.stop(HERON).await;
}

/// C31 E: what a file system keeps for root is of no use to the server.
#[tokio::test]
async fn a_disk_that_is_full_for_everybody_but_root_is_full() {
    let test = "a_disk_that_is_full_for_everybody_but_root_is_full";
    if !available(test) || !need::all(test, &[need::program("mkfs.ext4"), need::program("losetup")]) {
        return;
    }
    let lab = Lab::new();
    let image = lab.path("image");
    fs::File::create(&image).unwrap().set_len(320 * MEGABYTE).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "40"]).arg(&image).status();
    assert!(made.unwrap().success());
    lab.on_own_disk(HERON, &["-o", "loop", image.to_str().unwrap()]);
    let data = lab.data(HERON);
    let pair = Pair::of(lab, |_| {});
    pair.start(HERON, 2).await.unwrap();
    pair.lab.fill(HERON, 2 * MEGABYTE);
    let disk = rustix::fs::statvfs(&data).unwrap();
    assert!(disk.f_bfree * disk.f_frsize > 64 * MEGABYTE, "root has more than min_free_mb");
    let what = failure(&pair).await.what;
    println!("{what}");
    assert!(what.starts_with("the disk is full") && what.contains("kept for root"), "{what}");
    pair.stop(HERON).await;
    let told = pair.why_not_ready(HERON).await;
    assert!(told.contains("full") && told.contains(data.to_str().unwrap()), "{told}");
}

/// C31 D: a server that cannot write its log goes on, and so does the daemon.
#[tokio::test]
async fn a_full_disk_for_the_servers_log_is_no_failure() {
    if !available("a_full_disk_for_the_servers_log_is_no_failure") {
        return;
    }
    let lab = Lab::new();
    let log = lab.data(HERON).join("log");
    pg::as_postgres("mkdir", &["-m", "0700", log.to_str().unwrap()]);
    let small = Small::mount(&log);
    let settings = "logging_collector = on\nlog_directory = 'log'\nlog_statement = 'all'\n";
    pg::append(&lab.data(HERON).join("postgresql.conf"), settings);
    let pair = Pair::of(lab, |_| {});
    pair.whole().await;
    fs::write(log.join("filler"), vec![0; 2 << 20]).expect_err("it is full");
    let failed = pair.group(HERON).failed();
    tokio::pin!(failed);
    // More than a block of its log, and longer than its watch takes to see trouble.
    for number in 0..60 {
        pair.sql(HERON, &format!("insert into row values ({number}); select '{}'", "x".repeat(400)));
        if let Ok(failure) = timeout(Duration::from_millis(100), &mut failed).await {
            panic!("{failure:?}");
        }
    }
    let free = rustix::fs::statvfs(&log).unwrap();
    assert_eq!(free.f_bavail, 0, "nothing more could be logged");
    pair.group(HERON).readiness().await.expect("it serves");
    pair.until_ready(PLOVER).await;
    assert_eq!(pair.sql(PLOVER, "select count(*) from row"), "60");
    drop(small);
}

/// Unmounted before the data around it.
struct Small<'a>(&'a std::path::Path);

impl Small<'_> {
    fn mount(at: &std::path::Path) -> Small<'_> {
        let (uid, gid) = pg::postgres();
        let options = format!("size=256k,mode=0700,uid={uid},gid={gid}");
        assert!(
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).status().unwrap().success()
        );
        Small(at)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
