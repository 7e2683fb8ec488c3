//! Failover of real daemons through a real BMC: `ipmi_sim` for each node, spoken to over RMCP+.

#[path = "common/need.rs"]
mod need;
#[path = "common/pair.rs"]
mod pairs;

use std::fs;

use leasehold::cli::demo::pair::{Pair, What};
use leasehold::cli::demo::world::{BOTH, Fencing, Timing, name};
use leasehold::config;
use leasehold::control::{ProofKind, Role};
use leasehold::core::{NodeId, Span};
use leasehold::os::clock;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A call of ipmitool takes some 50 ms, and an attempt has four; an attempt at a silent BMC uses this up.
const TIMING: Timing = Timing { fence_ms: 3000, ..Timing::DEMO };

fn available(test: &str) -> bool {
    need::all(test, &[need::program("ipmi_sim"), need::program("ipmitool")])
}

fn start() -> (Pair, NodeId, u64) {
    let mut pair = pairs::build(pairs::plan(TIMING, Fencing::Ipmi));
    let primary = pairs::start(&mut pair);
    let token = acting_token(&pair, primary);
    (pair, primary, token)
}

fn acting_token(pair: &Pair, node: NodeId) -> u64 {
    pair.status(node).and_then(|status| status.me.token).expect("a primary has a token")
}

/// T of the pair's configuration.
fn term(pair: &Pair) -> Span {
    let checked = config::load(&pair.world.home(NodeId::First).join("leasehold.toml")).expect("it runs with this");
    checked.config.timing.term
}

/// The standby took over by a fence of which the BMC's own words are kept.
fn assert_fenced(pair: &Pair, survivor: NodeId) {
    let status = pair.status(survivor).expect("the survivor answers");
    let proof = status.last_proof.expect("a promotion has a proof");
    assert_eq!(proof.kind, ProofKind::Fenced);
    let evidence = format!("{:?}", proof.evidence);
    assert!(evidence.contains(&format!("bmc-{}", name(survivor.peer()))), "{evidence}");
    assert!(evidence.contains("Chassis Power is off"), "{evidence}");
    assert!(!pair.world.is_on(survivor.peer()).unwrap());
}

fn unplug(pair: &Pair, node: NodeId) {
    let unplugged = pair.world.with_bmc(node, |bmc| {
        bmc.unplug();
        Ok(())
    });
    unplugged.unwrap();
}

fn assert_history(pair: &Pair, terms: usize) {
    let judged = pairs::judged(pair).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(judged.len(), terms, "{judged:#?}");
}

#[test]
fn a_killed_primary_is_powered_off_over_rmcp_before_the_standby_serves_under_a_higher_token() {
    if !available("a_killed_primary_is_powered_off_over_rmcp_before_the_standby_serves_under_a_higher_token") {
        return;
    }
    let (mut pair, primary, token) = start();
    pair.signal_all(primary, Signal::KILL).unwrap();
    pairs::until_written(&mut pair, primary.peer(), token);
    assert_fenced(&pair, primary.peer());
    assert_history(&pair, 2);
}

/// The worst pause: everything of the node stands still beyond its lease, while its BMC cannot be reached; then it goes
/// on at the moment at which its peer serves already.
#[test]
fn a_primary_stopped_beyond_its_term_never_writes_again_under_its_old_token() {
    if !available("a_primary_stopped_beyond_its_term_never_writes_again_under_its_old_token") {
        return;
    }
    let (mut pair, primary, token) = start();
    unplug(&pair, primary);
    let stopped = pair.world.with(primary, |machine| machine.processes()).unwrap();
    let handles: Vec<_> = stopped.iter().map(|process| pidfd_open(process.pid, PidfdFlags::empty()).unwrap()).collect();
    let begun = clock::now();
    pair.signal_all(primary, Signal::STOP).unwrap();
    let beyond = begun.after(term(&pair)).after(Span::from_secs(1));
    let still_stopped =
        pair.until("the term is over", pairs::PATIENCE, |_, _| Ok((clock::now() > beyond).then_some(())));
    still_stopped.unwrap();
    assert_eq!(pair.status(primary.peer()).unwrap().me.token, None, "nobody is promoted while nothing is proven");
    pair.world.with_bmc(primary, |bmc| bmc.plug()).unwrap();
    let new = pairs::until_written(&mut pair, primary.peer(), token);
    assert_fenced(&pair, primary.peer());
    for handle in &handles {
        assert!(pidfd_send_signal(handle, Signal::CONT).is_err(), "fencing has ended what was stopped");
    }
    for _ in 0..20 {
        pairs::until_written(&mut pair, primary.peer(), new - 1);
    }
    assert_history(&pair, 2);
}

#[test]
fn with_a_wrong_bmc_password_the_takeover_is_blocked_and_says_why() {
    if !available("with_a_wrong_bmc_password_the_takeover_is_blocked_and_says_why") {
        return;
    }
    let mut pair = pairs::build(pairs::plan(TIMING, Fencing::Ipmi));
    for node in BOTH {
        pair.world.with_bmc(node, |bmc| Ok(fs::write(bmc.password_file(), "wrong\n")?)).unwrap();
    }
    let primary = pairs::start_unproven(&mut pair);
    let standby = primary.peer();
    pair.signal_all(primary, Signal::KILL).unwrap();
    pairs::until_decided(&mut pair, standby, "attempt-failed");
    let second = pairs::until_decided(&mut pair, standby, "attempt-failed");
    let status = pair.status(standby).unwrap();
    assert_ne!(status.me.role, Role::Primary);
    let blocked = status.blocked.unwrap_or_else(|| panic!("blocked after: {second}"));
    let reason = format!("{} {:?}", blocked.reason.text, status.incident);
    assert!(reason.contains("password"), "{reason}");
    assert!(!reason.contains("wrong\n") && !reason.contains("wrong\\n"), "the password itself is told: {reason}");
    assert!(blocked.attempts >= 2 && blocked.reason.remedy.is_some(), "{blocked:?}");
    assert!(pair.world.is_on(primary).unwrap());
    assert_history(&pair, 1);
}

#[test]
fn a_bmc_that_cannot_be_reached_blocks_the_takeover_until_it_is_back() {
    if !available("a_bmc_that_cannot_be_reached_blocks_the_takeover_until_it_is_back") {
        return;
    }
    let (mut pair, primary, token) = start();
    unplug(&pair, primary);
    pair.signal_all(primary, Signal::KILL).unwrap();
    pairs::until_decided(&mut pair, primary.peer(), "attempt-failed");
    assert!(pair.status(primary.peer()).unwrap().blocked.is_some());
    pair.world.with_bmc(primary, |bmc| bmc.plug()).unwrap();
    pairs::until_written(&mut pair, primary.peer(), token);
    assert_fenced(&pair, primary.peer());
    assert_history(&pair, 2);
}

#[test]
fn a_primary_without_power_is_succeeded_at_the_first_reading() {
    if !available("a_primary_without_power_is_succeeded_at_the_first_reading") {
        return;
    }
    let (mut pair, primary, token) = start();
    pair.skip_news();
    pair.world.switch_off(primary).unwrap();
    let mut attempts = 0;
    pairs::until(&mut pair, "the standby serves", primary.peer(), |what| match what {
        What::Decided(decision) => {
            attempts += u32::from(decision.kind == "attempt-started");
            None
        }
        What::Wrote(line) => (line.token > token).then_some(()),
        What::Ready | What::Gone | What::Off => None,
    });
    assert_eq!(attempts, 0, "it reads off already: nothing had to be sent");
    assert_fenced(&pair, primary.peer());
    assert_history(&pair, 2);
}
