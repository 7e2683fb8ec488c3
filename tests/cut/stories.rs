//! The cut as part of real daemons: at every demotion, at a self-stop, over the daemon's death, and without the right to it.

use std::io::ErrorKind::{ConnectionRefused, ConnectionReset};
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, SystemTime};

use leasehold::control::{ClientsState, Op, Role, Status};
use leasehold::core::NodeId;

use crate::daemons::{Daemons, Rights, at, name, since, until};
use crate::net::{CLIENT, answers, error, p50_and_max};
use crate::{OTHER, PORT, ROUNDS, can_run, need};

/// So long the service hangs in its stop: far beyond the time in which its clients must know.
const HANGS: Duration = Duration::from_secs(4);
/// What the issue of the cut asks for.
const KNOWN_WITHIN: Duration = Duration::from_millis(100);
/// Where a busy machine lets the test itself wait, it is not the cut's fault.
const AT_MOST: Duration = Duration::from_secs(1);

fn can_start(test: &str) -> bool {
    can_run(test) && need::all(test, &[need::program("python3"), need::program("setpriv")])
}

fn state(daemons: &Daemons, node: NodeId) -> Option<ClientsState> {
    daemons.status(node).map(|status: Status| status.clients.state)
}

#[test]
fn a_client_in_the_middle_of_a_request_learns_of_the_self_stop_at_once() {
    if !can_start("a_client_in_the_middle_of_a_request_learns_of_the_self_stop_at_once") {
        return;
    }
    let (daemons, primary) = Daemons::started(HANGS);
    assert_eq!(state(&daemons, primary), Some(ClientsState::Open));
    let connect = |port| daemons.net.connect(CLIENT, &at(primary, port));
    let (mut asking, mut idle, mut other) = (connect(PORT), connect(PORT), connect(OTHER));
    asking.write_all(b"slow\n").expect("a request under way");
    daemons.isolate(primary);
    let kinds = [error(&mut asking).0, error(&mut idle).0];
    let known = SystemTime::now();
    // The service itself has not stopped, and serves whom it may.
    assert!(answers(&mut other), "another port is cut too");
    let refused = daemons.net.try_connect(CLIENT, &at(primary, PORT)).expect_err("it is cut").kind();
    assert_eq!((kinds, refused), ([ConnectionReset; 2], ConnectionRefused));
    let decision = until("the decision", || daemons.decided(primary, "demoting"));
    let after = since(&decision, known);
    println!("self-stop ({}): clients know {after:?} after the decision", decision.text);
    assert!(after < KNOWN_WITHIN, "{after:?}");
    let status = until("told", || daemons.status(primary).filter(|s| s.clients.state == ClientsState::Cut));
    assert_eq!(status.clients.reset, Some(2), "{:?}", status.clients);

    daemons.heal(primary);
    let next = daemons.until_whole();
    if next != primary {
        daemons.command(next, Op::Failover { force: false });
        until("the service is back", || daemons.status(primary).filter(|s| s.me.role == Role::Primary));
    }
    until("clients are back", || {
        Some(answers(&mut daemons.net.try_connect(CLIENT, &at(primary, PORT)).ok()?)).filter(|is| *is)
    });
    assert_eq!(state(&daemons, primary), Some(ClientsState::Open));
}

#[test]
fn a_cut_outlives_the_daemon_and_is_lifted_by_the_next_start() {
    if !can_start("a_cut_outlives_the_daemon_and_is_lifted_by_the_next_start") {
        return;
    }
    let (mut daemons, primary) = Daemons::started(HANGS);
    let mut client = daemons.net.connect(CLIENT, &at(primary, PORT));
    daemons.isolate(primary);
    assert_eq!(error(&mut client).0, ConnectionReset);
    // In the middle of its stop.
    daemons.kill(primary);
    assert!(daemons.tables(primary).contains("elements = { tcp, udp }"), "{}", daemons.tables(primary));
    daemons.start(primary, Rights::All);
    until("the next one says so", || state(&daemons, primary).filter(|state| *state == ClientsState::Cut));
    assert!(daemons.tables(primary).contains("elements = { tcp, udp }"), "{}", daemons.tables(primary));
    daemons.heal(primary);
    let next = daemons.until_whole();
    assert_eq!(state(&daemons, next), Some(ClientsState::Open));
    if next != primary {
        daemons.command(next, Op::Failover { force: false });
        until("the service is back", || daemons.status(primary).filter(|s| s.me.role == Role::Primary));
    }
    until("clients are back", || {
        Some(answers(&mut daemons.net.try_connect(CLIENT, &at(primary, PORT)).ok()?)).filter(|is| *is)
    });
    assert!(!daemons.tables(primary).contains("tcp, udp"), "{}", daemons.tables(primary));
}

#[test]
fn an_adopted_service_keeps_its_clients_when_its_daemon_is_killed() {
    if !can_start("an_adopted_service_keeps_its_clients_when_its_daemon_is_killed") {
        return;
    }
    let (mut daemons, primary) = Daemons::started(HANGS);
    let mut client = daemons.net.connect(CLIENT, &at(primary, PORT));
    daemons.kill(primary);
    daemons.start(primary, Rights::All);
    until("it is adopted", || daemons.status(primary).filter(|s| s.me.role == Role::Primary));
    assert!(answers(&mut client));
    assert_eq!(state(&daemons, primary), Some(ClientsState::Open));
    // A firewall that is loaded anew takes the table away.
    daemons.net.run(name(primary), &["nft", "flush", "ruleset"]);
    until("the table is put back", || Some(daemons.tables(primary)).filter(|tables| tables.contains("@cut jump")));
}

#[test]
fn at_every_handover_clients_know_at_once_and_a_clean_end_leaves_nothing() {
    if !can_start("at_every_handover_clients_know_at_once_and_a_clean_end_leaves_nothing") {
        return;
    }
    let (mut daemons, mut primary) = Daemons::started(Duration::from_millis(500));
    let (mut known, mut refused, mut reset) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut client = daemons.net.connect(CLIENT, &at(primary, PORT));
        client.write_all(b"slow\n").expect("a request under way");
        daemons.command(primary, Op::Failover { force: false });
        assert_eq!(error(&mut client).0, ConnectionReset);
        let now = SystemTime::now();
        let decision = until("the decision", || daemons.decided(primary, "demoting"));
        known.push(since(&decision, now));
        let clients =
            until("told", || daemons.status(primary).map(|s| s.clients).filter(|c| c.state == ClientsState::Cut));
        refused.push(Duration::from_micros(clients.refused_us.expect("a cut")));
        reset.push(Duration::from_micros(clients.reset_us.expect("a cut")));
        primary = daemons.until_whole();
    }
    for (what, all) in [("are refused", refused), ("are reset", reset), ("know", known)] {
        let (p50, max) = p50_and_max(all);
        println!("{ROUNDS} handovers, after the decision clients {what}: p50 {p50:?}, max {max:?}");
        assert!(p50 < KNOWN_WITHIN && max < AT_MOST, "{what}: p50 {p50:?}, max {max:?}");
    }
    daemons.stop(primary.peer());
    assert_eq!(daemons.tables(primary.peer()), "");
}

#[test]
fn without_the_right_to_it_the_daemon_runs_and_says_that_it_cannot() {
    if !can_start("without_the_right_to_it_the_daemon_runs_and_says_that_it_cannot") {
        return;
    }
    let mut daemons = Daemons::new(HANGS);
    let node = NodeId::First;
    daemons.start(node, Rights::NoNetAdmin);
    let status = until("it runs", || daemons.status(node).filter(|s| s.clients.state != ClientsState::None));
    assert_eq!(status.clients.state, ClientsState::Unable);
    assert!(status.clients.detail.expect("why").contains("CAP_NET_ADMIN"));
    let log = daemons.logs();
    assert_eq!(log.lines().filter(|line| line.contains("clients cannot be cut")).count(), 1, "{log}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("status").arg("--config").arg(daemons.path(name(node)).join("leasehold.toml")).env("COLUMNS", "160");
    let shown = String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8");
    assert!(shown.contains("clients cannot be cut at once") && shown.contains("CANNOT BE CUT"), "{shown}");
}
