//! A pg_rewind that is killed in its middle: its data are beyond use, and only a full copy helps (casebook C29).

use std::fs;
use std::path::Path;
use std::process::Command;

use leasehold::config::{PostgresResource, Rejoin};
use leasehold::core::Standing;
use leasehold::resource::Context;

use super::{HERON, Lab, PLOVER, Pair, available, mark, pg, primary};

/// So many bytes that a rewind takes a while to fetch them.
const BALLAST: &str = "create table ballast as select n, repeat(md5(n::text), 20) from generate_series(1, 40000) n";

/// Programs with a pg_rewind that is really killed, once it has begun to write a large file.
fn killed_rewind(lab: &Lab) -> std::path::PathBuf {
    let (data, begun, killed) = (lab.data(HERON), lab.path(HERON).join("begun"), lab.path(HERON).join("killed"));
    let written =
        format!("find {} -path '*/base/*' -size +64k -newer {} -print -quit", data.display(), begun.display());
    let script = format!(
        "case \"$*\" in *--dry-run*) exec $REAL \"$@\";; esac; touch {}; $REAL \"$@\" & pid=$!\n\
         until [ -n \"$({written})\" ]; do kill -0 $pid || exit 1; done\n\
         kill -9 $pid; wait $pid; echo $? > {}; exit 137",
        begun.display(),
        killed.display()
    );
    lab.stand_ins("killing", &[("pg_rewind", &script)])
}

/// A former primary whose rewind was killed, and the new one with rows that the other lacks.
async fn pair_with(change: impl Fn(&mut PostgresResource)) -> Pair {
    let lab = Lab::new();
    let bin = killed_rewind(&lab);
    let pair = Pair::of(lab, |config| {
        config.bin_directory = bin.clone();
        change(config);
    });
    pair.whole().await;
    pair.lab.kill_all(HERON);
    pair.start(PLOVER, 3).await.unwrap();
    pair.group(PLOVER).set_standing(Standing::Sole);
    pair.sql(PLOVER, &format!("set synchronous_commit = local; {BALLAST}"));
    pair.sql(PLOVER, "checkpoint");
    pair.stop(HERON).await;
    pair
}

/// By SIGKILL, before pg_rewind itself called anything done: the last that it writes is the control file.
fn was_cut_off(data: &Path) {
    let killed = fs::read_to_string(data.parent().unwrap().join("killed")).unwrap();
    assert_eq!(killed.trim(), "137");
    let control = Command::new(format!("{}/pg_controldata", pg::BIN)).arg("-D").arg(data).output().unwrap();
    let text = String::from_utf8_lossy(&control.stdout).into_owned();
    let timeline = text.lines().find_map(|line| line.strip_prefix("Latest checkpoint's TimeLineID:"));
    assert_eq!(timeline.map(str::trim), Some("1"), "{text}");
}

#[tokio::test]
async fn after_a_rewind_that_was_killed_the_full_copy_follows_by_itself_where_it_may() {
    if !available("after_a_rewind_that_was_killed_the_full_copy_follows_by_itself_where_it_may") {
        return;
    }
    let pair = pair_with(|config| config.rejoin = Rejoin::RewindOrClone).await;
    pair.follow(HERON).await;
    pair.until_ready(HERON).await;
    was_cut_off(&pair.lab.path(HERON).join("data.old-1"));
    assert!(mark(&pair.lab, HERON).contains("following"), "{}", mark(&pair.lab, HERON));
    assert_eq!(pair.sql(HERON, "select count(*) || ' ' || pg_is_in_recovery() from ballast"), "40000 true");
    assert_eq!(pair.sql(HERON, "select status from pg_stat_wal_receiver"), "streaming");
}

#[tokio::test]
async fn after_a_rewind_that_was_killed_no_server_starts_where_nothing_may_be_copied() {
    if !available("after_a_rewind_that_was_killed_no_server_starts_where_nothing_may_be_copied") {
        return;
    }
    let pair = pair_with(|config| config.rejoin = Rejoin::Rewind).await;
    let told = pair.group(HERON).stand_by(&Context::idle("test")).await.unwrap_err().to_string();
    println!("{told}");
    assert!(told.contains("needs a full copy") && told.contains("data.leasehold"), "{told}");
    was_cut_off(&pair.lab.data(HERON));
    let mut pair = pair;
    for life in 4..7 {
        // The next daemon, with a pg_rewind that would work.
        pair = Pair::of(pair.lab, |_| {});
        assert!(!pair.group(HERON).adopt(&primary(life)).await.unwrap().is_empty());
        let told = pair.group(HERON).stand_by(&Context::idle("test")).await.unwrap_err().to_string();
        assert!(told.contains("needs a full copy"), "{told}");
        assert!(pair.why_not_ready(HERON).await.contains("needs a full copy"));
        let refused = pair.start(HERON, life).await.unwrap_err().to_string();
        assert!(refused.contains("not started") && refused.contains("needs a full copy"), "{refused}");
        assert!(pg::processes_in(&pair.lab.data(HERON)).is_empty(), "no server may run on these data");
        assert!(mark(&pair.lab, HERON).contains("rewinding"), "{}", mark(&pair.lab, HERON));
    }
    assert_eq!(pair.sql(PLOVER, "select count(*) from ballast"), "40000", "the primary goes on meanwhile");
}
