//! The daemon of the primary ends and another one takes its place, while clients ask the service a thousand times a second:
//! no request fails, and the same process answers all of them. Likewise for the guard.
//!
//! Real processes, killed where a service manager would restart them; `tests/lab.rs` does the same with a real service
//! manager: restart, upgrade, daemon-reexec. `LONG=1` for twenty rounds each. The figures are printed last:
//! `cargo test --test restart -- --nocapture`.

#[path = "common/clients.rs"]
mod clients;
#[path = "common/pair.rs"]
mod pairs;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use leasehold::cli::demo::pair::{Pair, What};
use leasehold::cli::demo::procs::Process;
use leasehold::cli::demo::world::{BOTH, Fencing, Guarding, Plan, Timing, quoted};
use leasehold::control::Role;
use leasehold::core::{NodeId, Span};
use leasehold::os::clock;
use rustix::process::Signal;

use clients::{Clients, Tally};

/// What config/leasehold.toml has, but for D: a daemon takes far longer to start here than on a machine of its own.
const TIMING: Timing = Timing {
    interval_ms: 100,
    dead_after_ms: 6000,
    head_start_ms: 1000,
    pause_ms: 1000,
    stop_ms: 1000,
    fence_ms: 3000,
    typical_ms: 400,
};
/// RestartSec of systemd/leasehold.service.
const RESTART_AFTER: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
/// How long the clients ask before and after.
const AROUND: Duration = Duration::from_millis(500);
/// What no daemon may decide meanwhile.
const LOST: [&str; 3] = ["peer-lost", "attempt-started", "demoting"];

/// A pair whose service answers here, and its primary.
fn serving() -> (Pair, NodeId, SocketAddr) {
    let mut pair = pairs::build(Plan { guarding: Guarding::Process, ..pairs::plan(TIMING, Fencing::StandIn) });
    let mut services = BOTH.map(|node| (node, free_port()));
    for (node, service) in services {
        let file = pair.world.home(node).join("leasehold.toml");
        let text = fs::read_to_string(&file).expect("the world has written it");
        let history = quoted(&pair.world.history());
        let listening = text.replace(&format!("{history}]"), &format!("{history}, \"--listen\", \"{service}\"]"));
        assert_ne!(text, listening, "the service of the demo is told where to listen");
        let patient = listening.replace("restarts = 0", "restarts = 2");
        assert_ne!(listening, patient, "the service of the demo is never restarted in place");
        // Not below D.
        fs::write(file, patient.replace("wait = \"2s\"", "wait = \"6s\"")).expect("it can be written");
    }
    let primary = pairs::start(&mut pair);
    services.sort_by_key(|(node, _)| *node != primary);
    pair.skip_news();
    (pair, primary, services[0].1)
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.local_addr().expect("it is bound")
}

fn until(pair: &Pair, what: &str, holds: impl Fn() -> bool) {
    let begun = clock::now();
    while !holds() {
        assert!(clock::now().since(begun) < pairs::PATIENCE, "{what}\n{}", pairs::logs(pair).concat());
        std::thread::sleep(LOOK);
    }
}

/// Until it is collected, as a service manager waits: a thread that is in the middle of a sync ends after that alone, and
/// keeps the lock so long.
fn kill(pair: &Pair, process: &Process) {
    process.signal(Signal::KILL);
    let folder = format!("/proc/{}", process.pid.as_raw_nonzero());
    until(pair, "what was killed is gone", || !Path::new(&folder).exists());
}

/// Kills the daemon and, `after` this, starts the next one: until that goes on as primary.
fn restart(pair: &Pair, node: NodeId, after: Duration) {
    kill(pair, &pair.daemon(node).expect("a daemon"));
    std::thread::sleep(after);
    pair.world.with(node, |machine| machine.start_daemon()).expect("the machine is on");
    until(pair, "the next daemon goes on as primary", || pair.status(node).is_some_and(|s| s.me.role == Role::Primary));
}

fn restart_guard(pair: &Pair, node: NodeId) {
    kill(pair, &pair.guard(node).expect("a guard"));
    pair.world.with(node, |machine| machine.start_guard()).expect("the machine is on");
    until(pair, "the next guard runs", || pair.guard(node).is_ok());
}

/// Does something while the clients ask: nothing of it reaches them, and nobody takes anybody for lost.
fn unnoticed(pair: &mut Pair, node: NodeId, service: SocketAddr, act: impl FnOnce(&Pair)) -> Tally {
    let process = pair.service(node).expect("it serves").pid;
    let clients = Clients::start(service, None, clients::EVERY);
    std::thread::sleep(AROUND);
    act(pair);
    std::thread::sleep(AROUND);
    let tally = clients.end();
    assert_eq!(pair.service(node).map(|now| now.pid).ok(), Some(process), "{}", pairs::logs(pair).concat());
    assert_eq!(tally.errors, Vec::<String>::new(), "{}", pairs::logs(pair).concat());
    assert_eq!(tally.servers(), 1, "one process answers all");
    while let Some(news) = pair.next(Duration::ZERO) {
        if let What::Decided(decision) = news.what {
            assert!(!LOST.contains(&decision.kind.as_str()), "{decision:?}\n{}", pairs::logs(pair).concat());
        }
    }
    tally
}

fn rounds() -> usize {
    if std::env::var_os("LONG").is_some() { 20 } else { 3 }
}

fn tell(what: &str, tallies: &[Tally]) -> String {
    let mut gaps: Vec<Span> = tallies.iter().map(Tally::longest_gap).collect();
    gaps.sort_unstable();
    let requests: usize = tallies.iter().map(Tally::requests).sum();
    let failed: usize = tallies.iter().map(|tally| tally.errors.len()).sum();
    let rate = tallies.iter().map(Tally::per_second).min().unwrap_or_default();
    format!(
        "  {what:<44} {:>6} {requests:>9} {rate:>7} {failed:>7}   {} / {}",
        tallies.len(),
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    )
}

#[test]
fn clients_do_not_notice_that_the_daemon_of_the_primary_is_another_one() {
    let (mut pair, node, service) = serving();
    let mut told = Vec::new();
    let mut round = |what: &str, rounds: usize, act: &dyn Fn(&Pair)| {
        let tallies: Vec<Tally> = (0..rounds).map(|_| unnoticed(&mut pair, node, service, act)).collect();
        told.push(tell(what, &tallies));
    };
    round("SIGKILL, the next one at once", rounds(), &|pair| restart(pair, node, Duration::ZERO));
    round("SIGKILL, the next one after RestartSec", rounds(), &|pair| restart(pair, node, RESTART_AFTER));
    round("ten SIGKILLs in ten seconds", rounds().div_ceil(5), &|pair| {
        (0..10).for_each(|_| {
            let second = clock::now().after(Span::from_secs(1));
            restart(pair, node, Duration::ZERO);
            std::thread::sleep(second.since(clock::now()).into());
        });
    });
    round("SIGKILL of the guard, the next one at once", rounds(), &|pair| restart_guard(pair, node));
    assert_eq!(pairs::until_whole(&mut pair), node);
    pairs::judged(&pair).expect("one writer, rising tokens");
    println!(
        "\nwhile clients ask the service                    rounds  requests   least/s  failed   longest gap p50 / max"
    );
    told.iter().for_each(|line| println!("{line}"));
}

/// As if both had been ended by one hand: nobody hands over for that, and the next daemon has the right to act from its
/// first moment on.
#[test]
fn a_service_that_ends_while_no_daemon_is_there_is_restarted_in_place_by_the_next_one() {
    let (mut pair, node, _) = serving();
    let held = pair.status(node).expect("it serves").me.token;
    let (daemon, service) = (pair.daemon(node).expect("a daemon"), pair.service(node).expect("a service"));
    pair.skip_news();
    // Not in time to see it.
    daemon.signal(Signal::STOP);
    service.signal(Signal::KILL);
    restart(&pair, node, Duration::ZERO);
    until(&pair, "another process serves", || pair.service(node).is_ok_and(|now| now.pid != service.pid));
    assert_eq!(pairs::until_whole(&mut pair), node, "{}", pairs::logs(&pair).concat());
    assert_eq!(pair.status(node).expect("it serves").me.token, held, "{}", pairs::logs(&pair).concat());
    while let Some(news) = pair.next(Duration::ZERO) {
        if let What::Decided(decision) = news.what {
            assert!(!LOST.contains(&decision.kind.as_str()), "{decision:?}\n{}", pairs::logs(&pair).concat());
        }
    }
}
