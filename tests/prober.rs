//! Fence agents that break while nothing is wrong: real daemons notice, say so once, and say what it costs.

#[path = "common/need.rs"]
mod need;
#[path = "common/pair.rs"]
mod pairs;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use leasehold::cli::demo::pair::Pair;
use leasehold::cli::demo::world::{BOTH, Fencing, Timing, name, quoted};
use leasehold::control::{Answer, Client, Decision, FencingState, Op, Status, Verdict};
use leasehold::core::{NodeId, Span};
use rustix::process::Signal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

/// A pair whose agents are looked at as often as the configuration allows.
fn build(fencing: Fencing, timing: Timing) -> Pair {
    let pair = pairs::build(pairs::plan(timing, fencing));
    for node in BOTH {
        change_config(&pair, node, "[fence]\n", "[fence]\nprobe_interval = \"5s\"\n");
    }
    pair
}

fn change_config(pair: &Pair, node: NodeId, old: &str, new: &str) {
    let path = config(pair, node);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{old}: {text}");
    fs::write(&path, text.replace(old, new)).unwrap();
}

fn config(pair: &Pair, node: NodeId) -> PathBuf {
    pair.world.home(node).join("leasehold.toml")
}

/// The agents become programs that work until the file `broken` says otherwise.
fn make_breakable(pair: &Pair) {
    let broken = pair.world.directory().join("broken");
    let script =
        format!("#!/bin/sh\n[ -e {0} ] && {{ cat {0} >&2; exit 1; }}\nexec {PROGRAM} \"$@\"\n", broken.display());
    let program = pair.world.directory().join("agent");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    for node in BOTH {
        let line = |path: &std::path::Path| format!("kind = \"exec\"\nprogram = {}\n", quoted(path));
        change_config(pair, node, &line(PROGRAM.as_ref()), &line(&program));
    }
}

fn leasehold(pair: &Pair, node: NodeId, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--config").arg(config(pair, node)).env_remove("LEASEHOLD_SOCKET");
    command.output().unwrap()
}

fn status(pair: &Pair, node: NodeId) -> Status {
    pair.status(node).expect("the daemon answers")
}

fn reasons(status: &Status) -> String {
    assert_eq!(status.can_fail_over.answer, Verdict::No, "{status:#?}");
    status.can_fail_over.reasons.iter().map(|r| format!("{} -> {:?}\n", r.text, r.remedy)).collect()
}

fn decided(pair: &Pair, node: NodeId) -> Vec<Decision> {
    let mut client = Client::connect(&pair.world.socket(node), pairs::PATIENCE.into()).unwrap();
    match client.ask(Op::Why { last: None }).unwrap() {
        Answer::Decisions(decisions) => decisions,
        other => panic!("no decisions: {other:?}"),
    }
}

#[test]
fn an_agent_that_breaks_in_peace_is_told_once_and_turns_the_answer_to_no_until_it_works_again() {
    let mut pair = build(Fencing::StandIn, Timing::DEMO);
    make_breakable(&pair);
    let primary = pairs::start(&mut pair);
    let standby = primary.peer();
    for node in BOTH {
        pairs::told(pair.until("every agent is proven", pairs::PATIENCE, |pair, _| {
            Ok((status(pair, node).can_fence == Some(true)).then_some(()))
        }));
        let shown = &status(&pair, node).fencing;
        assert_eq!((shown.len(), shown[0].state), (1, FencingState::Proven), "{shown:#?}");
        assert_eq!(shown[0].agent, format!("bmc-{}", name(node.peer())));
        assert!(shown[0].age_ms.is_some() && shown[0].faults.is_empty());
    }
    let broken = pair.world.directory().join("broken");
    fs::write(&broken, "login refused: the password is wrong\n").unwrap();

    let failing = pairs::until_decided(&mut pair, standby, "agent-failing");
    assert!(
        failing.contains(&format!("bmc-{}", name(primary))) && failing.contains("the password is wrong"),
        "{failing}"
    );
    let cannot = pairs::until_decided(&mut pair, standby, "cannot-fence");
    assert!(cannot.contains("last proven"), "{cannot}");
    let status_of_standby = status(&pair, standby);
    assert_eq!(status_of_standby.can_fence, Some(false));
    let text = reasons(&status_of_standby);
    assert!(text.contains("this node does not take over") && text.contains("leasehold failover"), "{text}");
    let screen = leasehold(&pair, standby, &["status", "--exit-code"]);
    let shown = String::from_utf8(screen.stdout).unwrap();
    assert_eq!(screen.status.code(), Some(4), "{shown}");
    assert!(shown.contains("IN DANGER") && shown.contains("FAILING"), "{shown}");

    pairs::told(pair.until("the primary knows it too", pairs::PATIENCE, |pair, _| {
        Ok((status(pair, primary).can_fence == Some(false)).then_some(()))
    }));
    pairs::told(pair.until("the primary heard it of its standby", pairs::PATIENCE, |pair, _| {
        Ok(status(pair, primary).peer.said.is_some_and(|said| said.cannot_fence).then_some(()))
    }));
    let text = reasons(&status(&pair, primary));
    assert!(text.contains(&format!("{} cannot fence {}: if", name(standby), name(primary))), "{text}");
    assert!(text.contains("the service stops here when the lease ends") && text.contains("would still go"), "{text}");

    fs::remove_file(&broken).unwrap();
    pairs::until_decided(&mut pair, standby, "can-fence");
    assert_eq!(status(&pair, standby).can_fail_over.answer, Verdict::Yes);
    let kinds: Vec<String> = decided(&pair, standby).into_iter().map(|decision| decision.kind).collect();
    for kind in ["agent-failing", "cannot-fence", "can-fence"] {
        assert_eq!(kinds.iter().filter(|k| *k == kind).count(), 1, "{kind} in {kinds:?}");
    }
    assert_eq!(kinds.iter().filter(|k| *k == "agent-proven").count(), 2, "first, and again: {kinds:?}");
}

#[test]
fn a_wrong_bmc_password_is_known_before_anybody_fails() {
    let test = "a_wrong_bmc_password_is_known_before_anybody_fails";
    if !need::all(test, &[need::program("ipmi_sim"), need::program("ipmitool")]) {
        return;
    }
    let timing = Timing { fence_ms: 3000, ..Timing::DEMO };
    let mut pair = build(Fencing::Ipmi, timing);
    for node in BOTH {
        pair.world.with_bmc(node, |bmc| Ok(fs::write(bmc.password_file(), "wr0ng-M4RK\n")?)).unwrap();
    }
    let primary = pairs::start_unproven(&mut pair);
    pairs::told(pair.until("the standby knows", pairs::PATIENCE, |pair, _| {
        Ok((status(pair, primary.peer()).can_fence == Some(false)).then_some(()))
    }));
    let shown = status(&pair, primary.peer());
    let text = reasons(&shown);
    assert!(text.contains("password"), "{text}");
    assert_eq!(shown.fencing[0].state, FencingState::Failing);
    assert_eq!((shown.fencing[0].age_ms, shown.fencing[0].kind.as_str()), (None, "ipmi"));
    assert!(!format!("{shown:?}").contains("M4RK"), "the password itself is told");
}

#[test]
fn what_a_real_failover_sent_and_read_is_in_the_survivors_history() {
    let mut pair = build(Fencing::StandIn, Timing { interval_ms: 100, ..Timing::DEMO });
    let primary = pairs::start(&mut pair);
    let token = status(&pair, primary).me.token.expect("a primary has a token");
    pair.signal_all(primary, Signal::KILL).unwrap();
    pairs::until_written(&mut pair, primary.peer(), token);
    // The journal has its own thread: the entry may come a moment after the promotion.
    let history = pairs::told(pair.until("the history", pairs::PATIENCE, |pair, _| {
        let shown = leasehold(pair, primary.peer(), &["fence", "--history", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&shown.stdout)?;
        Ok(json["entries"].as_array().is_some_and(|entries| !entries.is_empty()).then_some(json))
    }));
    assert_eq!(history["verified"], serde_json::Value::from(true));
    let entries = history["entries"].as_array().unwrap();
    let proof = entries.iter().find(|entry| entry["verdict"] == "confirmed").expect("a verified fence");
    assert_eq!(proof["target"], name(primary));
    assert!(proof["evidence"].to_string().contains("off"), "{proof:#}");
    let number = status(&pair, primary.peer()).fence_journal.entries;
    assert!(number >= proof["number"].as_u64().unwrap(), "{number}");
    assert!(
        pairs::logs(&pair)[primary.peer().index()].contains(history["head"].as_str().unwrap()),
        "the head is logged"
    );
}

/// A node that is down for hours must not push out of `why` how it began.
#[test]
fn attempts_that_fail_the_same_way_are_told_at_growing_gaps() {
    let mut pair = build(Fencing::StandIn, Timing::SHORT);
    make_breakable(&pair);
    let primary = pairs::start(&mut pair);
    let standby = primary.peer();
    fs::write(pair.world.directory().join("broken"), "no route to the BMC\n").unwrap();
    pair.signal_all(primary, Signal::KILL).unwrap();
    // A loaded machine may let an attempt end in two or three ways: of so many, four end the same way.
    let many = Span::from_secs(120);
    pairs::told(pair.until("a dozen attempts", many, |pair, _| {
        Ok(status(pair, standby).blocked.is_some_and(|blocked| blocked.attempts >= 13).then_some(()))
    }));
    let told = decided(&pair, standby);
    let of = |kind: &str| told.iter().filter(|d| d.kind == kind).map(|d| d.text.clone()).collect::<Vec<_>>();
    let failed = of("attempt-failed");
    assert!((3..=10).contains(&failed.len()), "{failed:#?}");
    assert!(failed.iter().any(|text| text.contains("times the same by now, ")), "{failed:#?}");
    assert!(of("attempt-started").len() <= 10, "{told:#?}");
    let history = leasehold(&pair, standby, &["fence", "--history", "--json"]);
    let history: serde_json::Value = serde_json::from_slice(&history.stdout).unwrap();
    let entries = history["entries"].as_array().unwrap();
    assert!(entries.len() >= 12, "each attempt is in the journal: {history:#}");
    assert!(entries.iter().any(|entry| entry["same_as"].is_u64()), "{history:#}");
}
