//! The guard on real processes: whatever becomes of daemon or guard, the service writes no longer than the lease allows,
//! while it writes all the time.
//!
//! `LONG=1` strikes each fault 20 times instead of twice. The figures are printed last: `cargo test --test guard --
//! --nocapture`.

#[path = "common/pair.rs"]
mod pairs;

#[path = "common/need.rs"]
mod need;

#[path = "common/page.rs"]
mod shared_page;

#[path = "common/systemd.rs"]
mod systemd;

#[path = "guard/alone.rs"]
mod alone;

#[path = "guard/displaced.rs"]
mod displaced;

#[path = "guard/oom.rs"]
mod oom;

#[path = "guard/units.rs"]
mod units;

use std::fs;
use std::time::Duration;

use leasehold::cli::demo::history;
use leasehold::cli::demo::pair::Pair;
use leasehold::cli::demo::procs::Process;
use leasehold::cli::demo::world::{BOTH, Fencing, Guarding, Plan, Timing, name};
use leasehold::core::{Instant, NodeId, Span};
use leasehold::os::clock;
use leasehold::os::shared::Shared;
use rustix::process::Signal;

use shared_page::{page_in, said, told};

/// Side by side: a pair mostly waits.
const LANES: usize = 3;
/// Looked at again this often while waiting for a process to end.
const LOOK: Duration = Duration::from_millis(10);
/// Writes this long after the deadline are no slip: nobody enforces it.
const BEYOND: Span = Span::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Daemon,
    Guard,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Signal(Signal),
    /// The kernel, when memory has run out.
    Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    victim: Victim,
    by: By,
    what: &'static str,
}

const fn fault(victim: Victim, signal: Signal, what: &'static str) -> Fault {
    Fault { victim, by: By::Signal(signal), what }
}

const fn out_of_memory(victim: Victim, what: &'static str) -> Fault {
    Fault { victim, by: By::Kernel, what }
}

const MATRIX: &[Fault] = &[
    fault(Victim::Daemon, Signal::KILL, "daemon SIGKILL"),
    fault(Victim::Daemon, Signal::STOP, "daemon SIGSTOP"),
    fault(Victim::Daemon, Signal::ABORT, "daemon SIGABRT"),
    fault(Victim::Daemon, Signal::USR1, "daemon panic"),
    fault(Victim::Daemon, Signal::USR2, "daemon deadlock"),
    fault(Victim::Guard, Signal::KILL, "guard SIGKILL"),
    fault(Victim::Guard, Signal::STOP, "guard SIGSTOP"),
    fault(Victim::Guard, Signal::ABORT, "guard SIGABRT"),
    fault(Victim::Both, Signal::KILL, "both SIGKILL"),
    fault(Victim::Both, Signal::STOP, "both SIGSTOP"),
    out_of_memory(Victim::Daemon, "daemon OOM kill"),
    out_of_memory(Victim::Guard, "guard OOM kill"),
    out_of_memory(Victim::Both, "both OOM kill"),
];

/// A pair whose machines have a guard each.
fn guarded() -> Pair {
    pair_with(Guarding::Process)
}

fn pair_with(guarding: Guarding) -> Pair {
    pairs::build(Plan { guarding, ..pairs::plan(Timing::SHORT, Fencing::StandIn) })
}

/// What daemon and guard of a node share.
fn page(pair: &Pair, node: NodeId) -> Shared {
    page_in(&pair.world.home(node).join("run"))
}

/// Nobody hears anybody, and no fence device answers: only the end of the lease is left.
fn isolate(pair: &Pair) {
    for node in BOTH {
        let home = pair.world.home(node);
        fs::rename(home.join("power"), home.join("power-unreachable")).expect("the BMC has a power file");
    }
    pair.world.network.set_all_cut(true);
}

/// The fence devices answer again.
fn mend_fencing(pair: &Pair) {
    for node in BOTH {
        let home = pair.world.home(node);
        fs::rename(home.join("power-unreachable"), home.join("power")).expect("it was moved away");
    }
}

fn strike(pair: &Pair, node: NodeId, fault: Fault) {
    let victims: Vec<Process> = match fault.victim {
        Victim::Daemon => vec![pair.daemon(node).expect("a daemon")],
        Victim::Guard => vec![pair.guard(node).expect("a guard")],
        Victim::Both => vec![pair.daemon(node).expect("a daemon"), pair.guard(node).expect("a guard")],
    };
    match fault.by {
        By::Signal(signal) => victims.iter().for_each(|victim| victim.signal(signal)),
        By::Kernel => oom::strike(&victims),
    }
}

fn last_write(pair: &Pair, node: NodeId) -> Instant {
    let lines = history::read(&pair.world.history()).expect("a history");
    let of_node = lines.iter().flatten().filter(|line| line.node == name(node));
    Instant(of_node.map(|line| line.boottime_ns).max().expect("it has written"))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = clock::now();
    while !holds() {
        assert!(clock::now().since(begun) < pairs::PATIENCE, "not within {}: {what}", pairs::PATIENCE);
        std::thread::sleep(LOOK);
    }
}

/// How late the last write was, in nanoseconds after the deadline; negative: before it.
fn round(fault: Fault) -> i128 {
    let mut pair = guarded();
    let node = pairs::start(&mut pair);
    isolate(&pair);
    strike(&pair, node, fault);
    let page = page(&pair, node);
    match fault.victim {
        Victim::Daemon | Victim::Guard => {
            until("the service is gone", || pair.service(node).is_err());
        }
        Victim::Both => fencing_ends_it(&pair, node, &page),
    }
    let told = told(&page);
    let late = i128::from(last_write(&pair, node).0) - i128::from(told.deadline.0);
    if fault.victim != Victim::Both {
        let limit = i128::from(told.reset_after.0);
        let logs = pairs::logs(&pair).concat();
        assert!(late < limit, "{}: the last write came {late} ns after the lease, beyond {limit}\n{logs}", fault.what);
        let reset = fs::read_to_string(pair.world.home(node).join("reset")).unwrap_or_default();
        assert_eq!(reset, "", "{}: what is killed in time needs no reset\n{logs}", fault.what);
    }
    pairs::judged(&pair).unwrap_or_else(|broken| panic!("{}: {broken}", fault.what));
    late
}

/// With daemon and guard gone nobody enforces the lease: the service writes on, until the peer's fence.
fn fencing_ends_it(pair: &Pair, node: NodeId, page: &Shared) {
    let deadline = told(page).deadline;
    until("the service writes beyond its lease", || last_write(pair, node) > deadline.after(BEYOND));
    mend_fencing(pair);
    until("the machine is off", || !pair.world.is_on(node).expect("its BMC answers"));
}

fn rounds() -> usize {
    if std::env::var_os("LONG").is_some() { 20 } else { 2 }
}

/// Each fault in its rounds, some at once.
fn strike_all(matrix: &[Fault]) -> Vec<(Fault, Vec<i128>)> {
    let work: Vec<Fault> = matrix.iter().flat_map(|fault| std::iter::repeat_n(*fault, rounds())).collect();
    let lane = |lane: usize| {
        let work: Vec<Fault> = work.iter().skip(lane).step_by(LANES).copied().collect();
        std::thread::spawn(move || work.into_iter().map(|fault| (fault, round(fault))).collect::<Vec<_>>())
    };
    let lanes: Vec<_> = (0..LANES).map(lane).collect();
    let done: Vec<(Fault, i128)> = lanes.into_iter().flat_map(|lane| lane.join().expect("each round holds")).collect();
    let of = |fault: &Fault| done.iter().filter(|(f, _)| f == fault).map(|(_, late)| *late).collect();
    matrix.iter().map(|fault| (*fault, of(fault))).collect()
}

#[test]
fn whoever_is_killed_stopped_or_hangs_the_service_does_not_write_beyond_its_lease() {
    let test = "whoever_is_killed_stopped_or_hangs_the_service_does_not_write_beyond_its_lease: OOM kill";
    let with_kernel = need::all(test, &oom::needs());
    let matrix: Vec<Fault> = MATRIX.iter().filter(|f| with_kernel || f.by != By::Kernel).copied().collect();
    let struck = strike_all(&matrix);
    println!("\nlast write after the end of the lease (negative: before), ms   p50      max   rounds");
    for (fault, mut late) in struck {
        late.sort_unstable();
        let ms = |ns: i128| ns as f64 / 1e6;
        let (p50, max) = (late[late.len() / 2], late[late.len() - 1]);
        println!("  {:<58} {:8.1} {:8.1}   {}", fault.what, ms(p50), ms(max), late.len());
        match fault.victim {
            Victim::Both => assert!(late[0] > i128::from(BEYOND.0), "only fencing covers {}", fault.what),
            Victim::Daemon | Victim::Guard => {}
        }
    }
}

#[test]
fn a_guard_that_dies_under_a_healthy_primary_changes_nothing_and_its_successor_holds_the_same_lease() {
    let mut pair = guarded();
    let node = pairs::start(&mut pair);
    let page = page(&pair, node);
    let (before, lease) = (said(&page), told(&page));
    assert_eq!(before.plan, lease.plan, "the plan was there before the first resource");
    pair.guard(node).expect("a guard").signal(Signal::KILL);
    until("the guard is gone", || pair.guard(node).is_err());
    let written = last_write(&pair, node);
    pair.world.with(node, |machine| machine.start_guard()).expect("the machine is on");
    until("the next guard holds the plan", || {
        let after = said(&page);
        after.guard != before.guard && after.plan == before.plan
    });
    until("the service goes on", || last_write(&pair, node) > written.after(Span::from_secs(1)));
    assert_eq!(told(&page).token, lease.token, "no failover");
    assert!(pair.service(node).is_ok());
}

#[test]
fn without_a_guard_no_resource_starts_and_status_says_why() {
    // A guard that were killed here might have seen a service start before.
    let mut pair = pair_with(Guarding::Missing);
    BOTH.into_iter().for_each(|node| pair.switch_on(node).expect("a machine starts"));
    until("both say why they cannot serve", || {
        BOTH.into_iter().all(|node| {
            let status = pair.status(node).map(|status| serde_json::to_string(&status).expect("JSON"));
            status.is_some_and(|text| text.contains("the guard does not run"))
        })
    });
    assert!(BOTH.iter().all(|node| pair.service(*node).is_err()));
    for node in BOTH {
        pair.world.with(node, |machine| machine.start_guard()).expect("the machine is on");
    }
    pairs::until_whole(&mut pair);
}

/// What a guard costs while its node serves.
#[test]
fn a_guard_takes_little_memory_and_next_to_no_time() {
    let mut pair = guarded();
    let node = pairs::start(&mut pair);
    let pid = pair.guard(node).expect("a guard").pid.as_raw_nonzero();
    let page = page(&pair, node);
    let (begun, cost) = (clock::now(), cpu_ns(pid.get()));
    let wakes = said(&page).late.count;
    until("it was woken ten more times", || said(&page).late.count >= wakes + 10);
    let share = (cpu_ns(pid.get()) - cost) as f64 / clock::now().since(begun).0 as f64 * 100.0;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let rss: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .expect("kB");
    let late = said(&page).late;
    println!(
        "\nguard of a primary: {share:.3} % of a CPU, {rss} kB resident; woken late by p50 {} p99.9 {} max {} of {}",
        late.p50, late.p99_9, late.longest, late.count
    );
    // What is asked for: 3 MiB, and 0.05 % on a machine that has nothing else to do.
    assert!(rss < 3 << 10 && share < 0.5);
}

fn cpu_ns(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let spent = |path: std::path::PathBuf| -> Option<u64> {
        fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    tasks.filter_map(|task| spent(task.path())).sum()
}
