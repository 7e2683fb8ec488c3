//! The record on a disk that fails: at every step, in every way, with every kind of loss afterwards (S5); then on a
//! real one that is full, and under a process that is killed.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::apart;
use super::fake_disk::{FakeDisk, Fault, Loss, World};
use super::record::{Finding, RecordError, RecordFile};
use super::slot::SLOT;
use crate::core::{Record, Token};

/// Where a write is cut: edges of the sealed fields, of a sector, of the sum, of the slot; beyond it for the first write.
const CUTS: [usize; 17] = [0, 1, 8, 12, 16, 20, 24, 25, 26, 60, 111, 512, 2048, 4064, 4065, 4095, 4096];

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
                let disk = FakeDisk::on(start.clone().with_fault(at, fault));
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
        let disk = FakeDisk::on(world.clone().with_fault(at, Fault::Lie));
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
    let disk = FakeDisk::on(World::default().with_fault(2, Fault::Error { errno: libc::ENOSPC, wrote: 100 }));
    let text = RecordFile::open_on(disk).unwrap_err().to_string();
    let first = text.lines().next().unwrap();
    assert!(first.contains("full") && first.contains("/state/record"), "{text}");
}

/// 64 KiB of memory as a disk, with nothing left on it.
fn full_disk(mount: &Path) -> std::path::PathBuf {
    let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(mount).status().unwrap();
    assert!(done.success());
    let filler = mount.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write(&[1; 512]).is_ok() {}
    filler
}

#[test]
fn on_a_real_full_disk_no_record_is_made_but_one_that_was_made_goes_on_being_written() {
    let me = "os::record_faults::on_a_real_full_disk_no_record_is_made_but_one_that_was_made_goes_on_being_written";
    if !apart::inside(me, "--mount") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let filler = full_disk(dir.path());
    let text = RecordFile::open(dir.path()).unwrap_err().to_string();
    let first = text.lines().next().unwrap();
    assert!(first.contains("full") && first.contains(&dir.path().join("record").display().to_string()), "{text}");
    assert!(!dir.path().join("record").exists(), "no half of a record is left");

    std::fs::remove_file(&filler).unwrap();
    let (mut file, none) = RecordFile::open(dir.path()).unwrap();
    assert_eq!(none, None);
    std::fs::write(&filler, [1; 65536]).unwrap_err();
    for token in 2..20 {
        file.write(&with_token(token)).unwrap();
    }
    drop(file);
    assert_eq!(RecordFile::open(dir.path()).unwrap().1, Some(with_token(19)));

    let read_only = Command::new("mount").args(["-o", "remount,ro"]).arg(dir.path()).status().unwrap();
    assert!(read_only.success());
    let text = RecordFile::open(dir.path()).unwrap_err().to_string();
    assert!(text.contains("Read-only file system"), "{text}");
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
}

const WRITER_DIR: &str = "LEASEHOLD_TEST_WRITER_DIR";

/// Not a test of its own: the process that the next one kills. Tells each acknowledged write on stderr.
#[test]
fn writer_that_is_killed() {
    let Some(dir) = std::env::var_os(WRITER_DIR) else { return };
    let (mut file, found) = RecordFile::open(Path::new(&dir)).unwrap();
    for token in found.map_or(1, |r| r.highest_token.0 + 1).. {
        file.write(&with_token(token)).unwrap();
        writeln!(std::io::stderr(), "{token}").unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_at_any_moment_leaves_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 1..=15 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "os::record_faults::writer_that_is_killed"]).env(WRITER_DIR, dir.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = std::io::BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        told.by_ref().take(round * 3).for_each(drop);
        child.kill().unwrap();
        child.wait().unwrap();
        // What it told between the signal and its end counts as well.
        let acknowledged = told.filter_map(|line| line.parse::<u64>().ok()).last();
        let (_, found) = RecordFile::open(dir.path()).unwrap();
        let found = found.expect("it acknowledged some").highest_token.0;
        assert!(found >= acknowledged.unwrap_or(last) && found > last, "{found} after {acknowledged:?} and {last}");
        last = found;
    }
}
