//! `leasehold drill` with real daemons: the standby is really switched off and comes back, the service goes on.

#[path = "common/need.rs"]
mod need;
#[path = "common/pair.rs"]
mod pairs;

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use leasehold::cli::demo::pair::Pair;
use leasehold::cli::demo::world::{BOTH, Fencing, Timing, name};
use leasehold::cli::drill::reasons;
use leasehold::config;
use leasehold::control::{DrillState, Op, ProofKind, Role};
use leasehold::core::NodeId;
use serde_json::Value;

/// A call of ipmitool takes some 50 ms, and an attempt has several.
const OVER_RMCP: Timing = Timing { fence_ms: 4000, ..Timing::DEMO };

/// A pair with which nothing is wrong any more: the first packets find nobody, which counts as loss for a while.
fn started(timing: Timing, fencing: Fencing) -> (Pair, NodeId) {
    let mut pair = pairs::build(pairs::plan(timing, fencing));
    let primary = pairs::start(&mut pair);
    let file = pair.world.home(primary).join("leasehold.toml");
    let config = config::load(&file).unwrap_or_else(|why| panic!("{why}")).config;
    let well = pair.until("nothing is wrong with the pair", pairs::PATIENCE, |pair, _| {
        Ok(pair.status(primary).filter(|status| reasons(status, &config).is_empty()))
    });
    well.unwrap_or_else(|why| panic!("{why:#}"));
    (pair, primary)
}

/// The command as an operator of this node gives it.
fn leasehold(pair: &Pair, node: NodeId, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(args).arg("--config").arg(pair.world.home(node).join("leasehold.toml"));
    command.env_remove("LEASEHOLD_SOCKET").env_remove("LEASEHOLD_CONFIG").env("COLUMNS", "160");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn give(pair: &Pair, node: NodeId, args: &[&str], typed: &str) -> Output {
    let mut child = leasehold(pair, node, args).spawn().expect("leasehold runs");
    // Refused before it asks, it reads nothing.
    let _ = child.stdin.take().expect("piped").write_all(typed.as_bytes());
    child.wait_with_output().expect("its output")
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Plays the hand of the BMC that switches the standby on when its plan says so, until the command has ended.
fn watch_over(pair: &mut Pair, standby: NodeId, mut child: Child) -> (Output, usize) {
    let mut switched_on = 0;
    let ended = pair.until("the drill is over", pairs::PATIENCE, |pair, _| {
        if pair.world.is_asked_for_on(standby) {
            pair.switch_on(standby)?;
            switched_on += 1;
        }
        Ok(child.try_wait()?.map(drop))
    });
    if let Err(error) = ended {
        child.kill().expect("it is ours");
        panic!("{error:#}\n{}", text(&child.wait_with_output().expect("its output")));
    }
    (child.wait_with_output().expect("its output"), switched_on)
}

fn drilled(timing: Timing, fencing: Fencing) -> (Pair, NodeId, String) {
    let (mut pair, primary) = started(timing, fencing);
    let token = pair.status(primary).unwrap().me.token;
    let standby = name(primary.peer());
    let child = leasehold(&pair, primary, &["drill", "--yes-fence", standby]).spawn().unwrap();
    let (output, switched_on) = watch_over(&mut pair, primary.peer(), child);
    let told = text(&output);
    assert_eq!((output.status.code(), switched_on), (Some(0), 1), "{told}\n{:#?}", pairs::logs(&pair));
    let status = pair.status(primary).unwrap();
    assert_eq!((status.me.role, status.me.token), (Role::Primary, token), "the service has not moved: {told}");
    assert!(status.me.admitted, "the standby is admitted again");
    (pair, primary, told)
}

/// The service wrote on one node alone, under one token, from beginning to end.
fn assert_one_term(pair: &Pair) {
    let terms = pairs::judged(pair).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(terms.len(), 1, "{terms:#?}");
}

#[test]
fn the_standby_is_fenced_and_brought_back_and_the_figures_are_kept_and_shown() {
    let (mut pair, primary, told) = drilled(Timing::DEMO, Fencing::StandIn);
    let standby = name(primary.peer());
    for step in ["verified off after", "told to go on after", "heard again after", "ready standby after"] {
        assert!(
            told.lines().any(|line| line.contains(step) && line.chars().any(|c| c.is_ascii_digit())),
            "{step}: {told}"
        );
    }
    assert!(told.contains("a drill begins") && told.contains("the drill switches the fenced standby on"), "{told}");
    let drill = pair.status(primary).unwrap().last_drill.unwrap();
    let steps = [drill.off_ms, drill.on_ms, drill.contact_ms, drill.ready_ms].map(|ms| ms.expect("measured"));
    assert!(drill.state == DrillState::Ready && drill.node == standby && steps.is_sorted(), "{drill:?}");
    let shown = text(&give(&pair, primary, &["status"], ""));
    assert!(shown.contains("last drill") && shown.contains(&format!("ago: {standby} off in ")), "{shown}");
    let other = text(&give(&pair, primary.peer(), &["status"], ""));
    assert!(other.contains("never drilled from here"), "{other}");
    // The file is written beside the loop.
    let file = pair.world.home(primary).join("state/drills.json");
    let kept = pair.until("the figures are on the disk", pairs::PATIENCE, |_, _| {
        Ok(std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()))
    });
    assert_eq!(kept.unwrap()[0]["ready_ms"].as_u64(), drill.ready_ms);
    let history = give(&pair, primary, &["fence", "--history", "--json"], "");
    let history: Value = serde_json::from_slice(&history.stdout).unwrap();
    let drills: Vec<_> = history["entries"].as_array().unwrap().iter().filter(|e| e["action"] == "drill").collect();
    assert_eq!(drills.len(), 1, "{history:#}");
    assert_eq!((drills[0]["verdict"].as_str(), drills[0]["target"].as_str()), (Some("confirmed"), Some(standby)));
    // The pair is as good as before: it survives its primary.
    let token = pair.status(primary).unwrap().me.token.unwrap();
    pair.world.switch_off(primary).unwrap();
    pairs::until_written(&mut pair, primary.peer(), token);
    assert_eq!(pair.status(primary.peer()).unwrap().last_proof.unwrap().kind, ProofKind::Fenced);
}

#[test]
fn the_service_does_not_move_while_its_standby_is_gone() {
    let (pair, ..) = drilled(Timing::DEMO, Fencing::StandIn);
    assert_one_term(&pair);
}

#[test]
fn a_drill_through_a_real_bmc() {
    let needs = [need::program("ipmi_sim"), need::program("ipmitool")];
    if !need::all("a_drill_through_a_real_bmc", &needs) {
        return;
    }
    let (pair, _, told) = drilled(OVER_RMCP, Fencing::Ipmi);
    assert!(told.contains("Done: ") && told.contains("is a ready standby again"), "{told}");
    assert_one_term(&pair);
}

/// The configuration of the demo says that a late `off` cannot land at all: the drill knows better.
#[test]
fn times_that_do_not_fit_what_was_measured_are_named_with_better_ones() {
    let timing = Timing { typical_ms: 1, ..Timing::DEMO };
    let (_pair, primary, told) = drilled(timing, Fencing::StandIn);
    assert!(told.contains("settle is 0") && told.contains("set `settle` of the agents to at least"), "{told}");
    let agent = format!("typical of bmc-{} is set to 1ms, measured ", name(primary.peer()));
    assert!(told.contains(&agent) && told.contains("set `typical` to "), "{told}");
}

#[test]
fn the_wrong_name_does_nothing() {
    let (pair, primary) = started(Timing::DEMO, Fencing::StandIn);
    for (args, typed) in [(&["drill"][..], "yes\n"), (&["drill", "--yes-fence", name(primary)], ""), (&["drill"], "")] {
        let output = give(&pair, primary, args, typed);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("nothing was done"), "{}", text(&output));
    }
    assert!(BOTH.iter().all(|node| pair.world.is_on(*node).unwrap()));
    assert!(pair.status(primary).unwrap().last_drill.is_none());
}

#[test]
fn the_right_name_typed_is_a_yes() {
    let (mut pair, primary) = started(Timing::DEMO, Fencing::StandIn);
    let standby = name(primary.peer());
    let mut child = leasehold(&pair, primary, &["drill"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{standby}\n").as_bytes()).unwrap();
    let (output, switched_on) = watch_over(&mut pair, primary.peer(), child);
    assert_eq!((output.status.code(), switched_on), (Some(0), 1), "{}", text(&output));
    assert!(text(&output).contains(&format!("This really switches {standby} off")), "{}", text(&output));
}

#[test]
fn on_the_standby_it_is_refused_and_the_primary_lives() {
    let (pair, primary) = started(Timing::DEMO, Fencing::StandIn);
    let output = give(&pair, primary.peer(), &["drill", "--yes-fence", name(primary)], "");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("is not the primary"), "{}", text(&output));
    let asked = pair.command(primary.peer(), Op::Drill { node: name(primary).to_owned() });
    assert!(format!("{:#}", asked.unwrap_err()).contains("not the primary"), "the daemon says no by itself too");
    assert!(pair.world.is_on(primary).unwrap());
}

#[test]
fn with_anything_wrong_it_is_refused_with_the_reasons() {
    let (mut pair, primary) = started(Timing::DEMO, Fencing::StandIn);
    pair.command(primary, Op::Freeze).unwrap();
    pairs::until_decided(&mut pair, primary, "frozen");
    let output = give(&pair, primary, &["drill", "--yes-fence", name(primary.peer())], "");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("role changes are frozen"), "{}", text(&output));
    assert!(text(&output).contains("`leasehold thaw`"), "{}", text(&output));
    assert!(pair.world.is_on(primary.peer()).unwrap());
}

#[test]
fn a_daemon_asked_with_the_wrong_name_refuses() {
    let (pair, primary) = started(Timing::DEMO, Fencing::StandIn);
    let asked = pair.command(primary, Op::Drill { node: name(primary).to_owned() });
    let told = format!("{:#}", asked.unwrap_err());
    assert!(told.contains(&format!("the peer of this node is `{}`", name(primary.peer()))), "{told}");
}

/// Nobody switches it on here: the command gives up, and says that the drill itself goes on.
#[test]
fn a_standby_that_does_not_come_back_is_an_error_in_time() {
    let (mut pair, primary) = started(Timing::DEMO, Fencing::StandIn);
    let standby = primary.peer();
    let output = give(&pair, primary, &["drill", "--yes-fence", name(standby), "--timeout", "3"], "");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains(&format!("{} is not back after 3 s", name(standby))), "{}", text(&output));
    let running = pair.status(primary).unwrap().last_drill.unwrap();
    assert_eq!((running.state, running.ready_ms), (DrillState::Running, None));
    pair.switch_on(standby).unwrap();
    pairs::until_decided(&mut pair, primary, "drill-done");
    assert_eq!(pair.status(primary).unwrap().last_drill.unwrap().state, DrillState::Ready);
}
