//! The journal of fence attempts: chained, bounded, synced, honest about what it lacks, and never in the way.

#[path = "common/need.rs"]
mod need;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::config::ExecAgent;
use leasehold::core::{AgentSet, FenceResult, Scope, Seen, Span, Take, Token};
use leasehold::fence::journal::{
    Action, Case, Entry, Exchange, FILE, Journal, JournalFile, News, Trouble, Verdict, history,
};
use leasehold::fence::{Agent, Entry as Placed, Exec, FencePlan, Order};

const LIMIT: u64 = 1 << 20;
const NOW: &str = "2026-11-30T03:12:03Z";
/// Far beyond what any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn case(read: &str) -> Case {
    let exchange = |sent: &str, read: &str| Exchange {
        agent: "bmc".into(),
        at: NOW.into(),
        sent: sent.into(),
        read: read.into(),
        times: 1,
    };
    Case {
        at: NOW.into(),
        until: NOW.into(),
        action: Action::Off,
        target: "heron".into(),
        token: Some(4),
        verdict: Verdict::Unknown,
        result: "fence unknown".into(),
        over_limit: false,
        agents: Vec::new(),
        evidence: vec![exchange("off", "accepted"), exchange("status", read)],
        left_out: 0,
    }
}

fn open(dir: &Path) -> JournalFile {
    JournalFile::open(dir, LIMIT, NOW)
}

fn entries(dir: &Path) -> Vec<Entry> {
    let history = history(dir).unwrap().expect("a journal");
    assert_eq!(history.trouble, None);
    history.entries
}

fn filled(dir: &Path, count: usize) -> JournalFile {
    let mut journal = open(dir);
    for n in 0..count {
        assert_eq!(journal.append(&case(&n.to_string())).unwrap().0, n as u64 + 1);
    }
    assert_eq!(journal.take_told(), Vec::<String>::new());
    journal
}

fn trouble(dir: &Path) -> Option<Trouble> {
    history(dir).unwrap().expect("a journal").trouble
}

#[test]
fn what_was_written_is_read_back_chained_also_by_the_next_life() {
    let dir = tempfile::tempdir().unwrap();
    assert!(history(dir.path()).unwrap().is_none());
    filled(dir.path(), 3);
    let mut next = open(dir.path());
    let (number, head) = next.append(&case("last")).unwrap();
    assert_eq!((number, next.take_told()), (4, Vec::new()));
    let found = history(dir.path()).unwrap().unwrap();
    assert_eq!(found.head, head);
    let cases: Vec<Case> = found.entries.into_iter().map(|entry| entry.case).collect();
    assert_eq!(cases, ["0", "1", "2", "last"].map(case));
    assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn no_changed_byte_passes_unseen() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 3);
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        fs::write(&path, changed).unwrap();
        assert!(trouble(dir.path()).is_some(), "byte {place} was changed: {}", String::from_utf8_lossy(&whole));
    }
}

#[test]
fn no_line_can_be_taken_out_or_moved() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 4);
    let path = dir.path().join(FILE);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // The newest one can: its hash is in the system journal.
    for place in 0..lines.len() - 1 {
        let without: String = lines.iter().enumerate().filter(|(n, _)| *n != place).map(|(_, line)| *line).collect();
        fs::write(&path, without).unwrap();
        assert!(trouble(dir.path()).is_some(), "without line {}", place + 1);
        let mut moved = lines.clone();
        moved.swap(place, place + 1);
        fs::write(&path, moved.concat()).unwrap();
        assert!(trouble(dir.path()).is_some(), "lines {} and {} exchanged", place + 1, place + 2);
    }
}

/// Wherever a crash cuts the file: what is whole stays, the damaged file is kept, and both are told.
#[test]
fn a_cut_off_tail_is_told_and_kept_aside_and_the_chain_goes_on() {
    let whole = {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), 2);
        fs::read(dir.path().join(FILE)).unwrap()
    };
    for length in (0..whole.len()).step_by(7) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), &whole[..length]).unwrap();
        let before = history(dir.path()).unwrap().unwrap();
        let mut journal = open(dir.path());
        journal.append(&case("next")).unwrap();
        let told = journal.take_told();
        let found = entries(dir.path());
        let kept = found.iter().filter(|entry| entry.case.action != Action::Damage).count();
        assert_eq!(kept, before.entries.len() + 1, "cut at {length}");
        let aside = dir.path().join("fence-journal.damaged-1");
        if before.trouble.is_some() {
            assert!(told[0].contains("damaged") && told[0].contains("fence-journal.damaged-1"), "{told:?}");
            assert_eq!(fs::read(aside).unwrap(), &whole[..length]);
            assert!(found.iter().any(|entry| entry.case.action == Action::Damage));
        } else {
            assert!(!aside.exists() && told.is_empty(), "cut between two lines at {length}: {told:?}");
        }
    }
}

#[test]
fn damaged_journals_are_kept_but_not_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    for _ in 0..12 {
        fs::write(dir.path().join(FILE), "garbage\n").unwrap();
        told.extend(open(dir.path()).take_told());
    }
    let mut kept: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    kept.sort();
    assert_eq!(kept.len(), 9, "{kept:?}");
    assert!(told.iter().any(|text| text.contains("damaged-1 was removed")), "{told:?}");
}

#[test]
fn it_stays_within_its_bound_and_its_anchor_names_the_last_that_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let limit = 20_000;
    let mut journal = JournalFile::open(dir.path(), limit, NOW);
    let mut heads = BTreeMap::new();
    for n in 1..=500 {
        let (number, head) = journal.append(&case(&n.to_string())).unwrap();
        assert_eq!(number, n);
        heads.insert(number, head);
        assert!(fs::metadata(dir.path().join(FILE)).unwrap().len() <= limit);
    }
    let found = history(dir.path()).unwrap().unwrap();
    assert_eq!((found.trouble.clone(), found.last_number()), (None, 500));
    assert!(found.anchor.dropped > 400 && found.entries.len() > 5, "{:?}", found.anchor);
    assert_eq!(found.anchor.hash, heads[&found.anchor.dropped]);
    assert_eq!(found.entries[0].number, found.anchor.dropped + 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn attempts_that_tell_the_same_are_all_there_but_their_evidence_only_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path());
    for read in ["on", "on", "on", "off", "off"] {
        journal.append(&case(read)).unwrap();
    }
    let same: Vec<Option<u64>> = entries(dir.path()).iter().map(|entry| entry.same_as).collect();
    assert_eq!(same, [None, Some(1), Some(1), None, Some(4)]);
    let mut next = open(dir.path());
    next.append(&case("off")).unwrap();
    assert_eq!(entries(dir.path()).last().unwrap().same_as, Some(4));
}

#[test]
fn a_huge_story_is_kept_by_its_beginning_and_its_end() {
    let one = |n: u32| leasehold::fence::Evidence {
        agent: "bmc".into(),
        at: NOW.into(),
        sent: n.to_string(),
        read: "x".repeat(400),
        times: 1,
    };
    let evidence: Vec<_> = (0..6400).map(one).collect();
    let kept = case("on").with_evidence(&evidence);
    let sent: Vec<&str> = kept.evidence.iter().map(|e| e.sent.as_str()).collect();
    assert_eq!((sent.len(), sent[9], sent[10], sent[39], kept.left_out), (40, "9", "6370", "6399", 6360));
    assert_eq!(case("on").with_evidence(&evidence[..40]).left_out, 0);
}

/// A small file system of its own; gone when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Small {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(dir.path()).status();
        assert!(mounted.unwrap().success());
        Small(dir)
    }

    fn fill(&self) {
        let _ = fs::write(self.0.path().join("filler"), vec![0; 1 << 20]);
    }

    fn make_room(&self) {
        fs::remove_file(self.0.path().join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_costs_entries_which_are_counted_and_no_whole_one() {
    if !need::all("a_full_disk_costs_entries", &[need::root(), need::program("mount")]) {
        return;
    }
    let small = Small::mount();
    let mut journal = filled(small.0.path(), 2);
    small.fill();
    let mut failed = 0;
    // The page in which the file ends still takes a few.
    while failed < 3 {
        let result = journal.append(&case(&"x".repeat(300)).clone());
        failed += u64::from(result.is_err());
        if let Err(error) = result {
            assert!(error.to_string().contains("No space left"), "{error}");
        }
    }
    assert_eq!(journal.missed(), 3);
    let whole = entries(small.0.path()).len();
    small.make_room();
    journal.append(&case("after")).unwrap();
    let found = entries(small.0.path());
    assert_eq!((found.len(), found.last().unwrap().missed), (whole + 1, 3));
    assert_eq!(journal.missed(), 0);
}

// --- through a plan ---------------------------------------------------------------------------------------------------

/// A node behind a program.
struct Device(tempfile::TempDir);

const HONEST: &str = "case $1 in
    status) cat state; grep -q on state && exit 0; exit 2 ;;
    take) echo off > state; echo '{\"highest\":7}' > stored ;;
    highest) cat stored ;;
    off|on) echo $1 > state ;;
esac";

impl Device {
    fn new(script: &str) -> Device {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("agent"), format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\n{script}\n")).unwrap();
        fs::write(dir.path().join("state"), "on\n").unwrap();
        fs::set_permissions(dir.path().join("agent"), fs::Permissions::from_mode(0o700)).unwrap();
        Device(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn entry(&self, name: &str, scope: Scope, takes: bool, limit: Span) -> Placed {
        let config = ExecAgent { program: self.path("agent"), args: Vec::new(), settings: BTreeMap::new(), takes };
        let agent: Arc<dyn Agent> = Arc::new(Exec::new(name, scope, limit, &config, "heron", "plover").unwrap());
        Placed { index: 0, name: name.to_owned(), level: 1, limit: limit.into(), agent }
    }
}

const LONG: Span = Span::from_secs(30);

fn order() -> Order {
    Order { token: Token(7), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(60) }
}

/// A journal with what it tells.
fn journal(dir: &Path) -> (Journal, Receiver<News>) {
    let (tell, news) = channel();
    let tell = Mutex::new(tell);
    let told = move |news| drop(tell.lock().unwrap().send(news));
    (Journal::start(dir, || NOW.to_owned(), told).unwrap().0, news)
}

fn written(news: &Receiver<News>) -> u64 {
    match news.recv_timeout(PATIENCE).expect("news of the journal") {
        News::Written { number, .. } => number,
        other => panic!("not written: {other:?}"),
    }
}

#[tokio::test]
async fn every_kind_of_attempt_is_recorded_with_what_was_sent_and_read() {
    let (dir, power, store, own) =
        (tempfile::tempdir().unwrap(), Device::new(HONEST), Device::new(HONEST), Device::new(HONEST));
    let (journal, news) = journal(dir.path());
    let plan = |against, own| FencePlan::of(against, own).with_journal(journal.clone()).with_stamp(|| NOW.to_owned());
    let peer = plan(vec![power.entry("pdu", Scope::Node, false, LONG)], Vec::new());
    peer.probe(AgentSet::EMPTY).await;
    assert!(matches!(peer.off(&order()).await.result, FenceResult::Confirmed { .. }));
    peer.probe(AgentSet::EMPTY).await;
    peer.power_on(Token(7)).await;
    peer.drill(&order()).await;
    let storage = plan(vec![store.entry("nfs", Scope::Resource, true, LONG)], Vec::new());
    storage.highest().await;
    storage.take(Take { new: Token(7), seen: Seen::Whatever }).await;
    plan(Vec::new(), vec![own.entry("nfs", Scope::Resource, false, LONG)]).ensure_access(Token(7)).await;
    for _ in 0..6 {
        written(&news);
    }
    let found = entries(dir.path());
    let actions: Vec<Action> = found.iter().map(|entry| entry.case.action).collect();
    assert_eq!(actions, [Action::Off, Action::Probe, Action::On, Action::Drill, Action::Take, Action::Access]);
    assert!(found.iter().all(|entry| entry.case.verdict == Verdict::Confirmed), "{found:#?}");
    let off = &found[0].case;
    let exchanges: Vec<String> = off.evidence.iter().map(|e| format!("{}: {}", e.sent, e.read)).collect();
    assert_eq!(exchanges, ["status: exit status 0: on", "off: exit status 0", "status: exit status 2: off"]);
    assert_eq!((off.token, off.agents[0].agent.as_str(), off.agents[0].identity.as_str()), (Some(7), "pdu", "unknown"));
    assert_eq!(off.evidence[2].times, 2, "off was read twice");
}

#[tokio::test]
async fn limits_that_were_hit_are_in_the_record() {
    let (dir, deaf) = (tempfile::tempdir().unwrap(), Device::new("[ $1 = status ] && { echo on; exit 0; }; sleep 60"));
    let (journal, news) = journal(dir.path());
    let plan = |limit| {
        FencePlan::of(vec![deaf.entry("pdu", Scope::Node, false, limit)], Vec::new()).with_journal(journal.clone())
    };
    plan(Span::from_ms(700)).off(&order()).await;
    plan(LONG).off(&Order { deadline_after: Duration::from_millis(700), ..order() }).await;
    for _ in 0..2 {
        written(&news);
    }
    let found = entries(dir.path());
    let limits: Vec<[bool; 2]> = found.iter().map(|e| [e.case.over_limit, e.case.agents[0].over_limit]).collect();
    assert_eq!(limits, [[false, true], [true, false]]);
}

/// Contact voids an attempt, and what it sent may land all the same.
#[tokio::test]
async fn an_attempt_that_is_cut_off_leaves_what_it_sent() {
    let (dir, slow) =
        (tempfile::tempdir().unwrap(), Device::new("[ $1 = status ] && { echo on; exit 0; }; touch sent; exit 0"));
    let (journal, news) = journal(dir.path());
    let plan = FencePlan::of(vec![slow.entry("pdu", Scope::Node, false, LONG)], Vec::new()).with_journal(journal);
    let order = order();
    let mut attempt = Box::pin(plan.off(&order));
    while !slow.path("sent").exists() {
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut attempt).await.is_err());
    }
    // One more turn, so that the end of the program is seen as well.
    let _ = tokio::time::timeout(Duration::from_millis(500), &mut attempt).await;
    drop(attempt);
    written(&news);
    let case = &entries(dir.path())[0].case;
    assert_eq!((case.action, case.verdict), (Action::Off, Verdict::CutOff));
    assert!(case.evidence.iter().any(|e| e.sent == "off"), "{case:#?}");
}

#[tokio::test]
async fn a_journal_that_cannot_be_written_is_told_and_delays_nothing() {
    let power = Device::new(HONEST);
    let missing = power.path("no-such-directory");
    let (journal, news) = journal(&missing);
    let plan = FencePlan::of(vec![power.entry("pdu", Scope::Node, false, LONG)], Vec::new()).with_journal(journal);
    assert!(matches!(plan.off(&order()).await.result, FenceResult::Confirmed { .. }));
    assert!(matches!(news.recv_timeout(PATIENCE).unwrap(), News::Told(text) if text.contains("cannot be opened")));
    match news.recv_timeout(PATIENCE).unwrap() {
        News::Failed { error, missed: 1 } => assert!(error.contains("no-such-directory"), "{error}"),
        other => panic!("{other:?}"),
    }
    fs::create_dir(&missing).unwrap();
    plan.off(&order()).await;
    assert_eq!(written(&news), 1);
    assert_eq!(entries(&missing)[0].missed, 1);
}

// --- for people -------------------------------------------------------------------------------------------------------

fn fence_history(dir: &Path, options: &[&str]) -> Output {
    let config = dir.join("leasehold.toml");
    // An error elsewhere in the file is no reason to hide the history.
    fs::write(&config, format!("nonsense = 1\n[paths]\nstate = {:?}\n", dir.to_str().unwrap())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["fence", "--history"]).args(options).arg("--config").arg(&config);
    command.output().unwrap()
}

#[test]
fn the_history_is_shown_without_a_daemon_and_says_that_the_chain_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let shown = fence_history(dir.path(), &[]);
    assert!(shown.status.success());
    assert!(String::from_utf8_lossy(&shown.stdout).contains("No fence attempt is recorded"));
    filled(dir.path(), 3);
    let shown = fence_history(dir.path(), &["-n", "1"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{text}");
    for wanted in [
        "#3 2026-11-30T03:12:03Z fence heron (token 4): UNKNOWN",
        "bmc: off → accepted",
        "3 entries, the chain is whole",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("#2"), "{text}");
    let json = fence_history(dir.path(), &["--json", "-n", "2"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["verified"], &json["entries"][1]["number"]), (&true.into(), &3.into()));
    assert_eq!(json["entries"].as_array().unwrap().len(), 2);
}

#[test]
fn a_broken_chain_is_shown_as_such_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 3);
    let path = dir.path().join(FILE);
    let forged = fs::read_to_string(&path).unwrap().replacen("fence unknown", "fence certain", 2);
    fs::write(&path, forged).unwrap();
    let shown = fence_history(dir.path(), &[]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(1), "{text}");
    assert!(text.contains("THE CHAIN IS BROKEN after 0 whole entries: line 2") && text.contains("checksum"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&fence_history(dir.path(), &["--json"]).stdout).unwrap();
    assert_eq!(json["verified"], serde_json::Value::from(false));
    assert_eq!(fs::read_to_string(&path).unwrap().matches("fence certain").count(), 2, "showing mends nothing");
}
