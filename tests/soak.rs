//! 200 random faults on real daemons: kills, stops, partitions, power cuts, handovers. Whatever happens, no two writers
//! at once, and tokens rise; and each time the pair becomes whole again without an operator.
//!
//! `LEASEHOLD_SOAK_SEED=N` repeats the choices of a run; the timing is that of real processes and does not repeat.
//! `LEASEHOLD_SOAK_FAULTS=N` sets how many; with `LEASEHOLD_SOAK_KEEP=1` the directories with all logs stay.

#[path = "common/pair.rs"]
mod pairs;

use std::time::Duration;

use leasehold::cli::demo::pair::Pair;
use leasehold::cli::demo::partition::LINKS;
use leasehold::cli::demo::world::{BOTH, Fencing, Plan, Timing, name};
use leasehold::control::Op;
use leasehold::core::{FirstShooter, NodeId, PromoteAfter, Span};
use leasehold::os::clock;
use leasehold::sim::Rng;
use rustix::process::Signal;

const FAULTS: u64 = 200;
/// Side by side: a pair mostly waits.
const PAIRS: u64 = 6;
/// Beyond D, and beyond the term of the lease (some 2.5 s with this timing).
const LONGEST_MS: u64 = 3500;
/// How long a pair may take to heal: several attempts and restarts, on a machine that does much else.
const HEAL: Span = Span::from_secs(60);
/// What no daemon may ever say here: the BMC tells the truth, the disks are whole, and the core keeps its invariants.
const NEVER: [&str; 5] = ["panicked", "a fence device lied", "invariant", "was rolled back", "cannot be written"];

#[derive(Debug, Clone, Copy)]
enum Fault {
    KillDaemon(NodeId),
    KillService(NodeId),
    KillBoth(NodeId),
    StopDaemon(NodeId),
    StopAll(NodeId),
    PullPlug(NodeId),
    CutAll,
    CutDirection(NodeId),
    CutLink(usize),
    HandOver,
}

impl Fault {
    fn draw(rng: &mut Rng) -> Fault {
        let (node, link) = (rng.pick(&BOTH), rng.below(LINKS.len() as u64) as usize);
        rng.pick(&[
            Fault::KillDaemon(node),
            Fault::KillService(node),
            Fault::KillBoth(node),
            Fault::StopDaemon(node),
            Fault::StopAll(node),
            Fault::PullPlug(node),
            Fault::CutAll,
            Fault::CutDirection(node),
            Fault::CutLink(link),
            Fault::HandOver,
        ])
    }

    /// A node may be off, or run nothing, from an earlier fault: then there is nothing to break, and that is fine.
    fn strike(self, pair: &Pair) {
        let signal = |process: anyhow::Result<leasehold::cli::demo::procs::Process>, signal| {
            let _ = process.map(|process| process.signal(signal));
        };
        match self {
            Fault::KillDaemon(node) => signal(pair.daemon(node), Signal::KILL),
            Fault::KillService(node) => signal(pair.service(node), Signal::KILL),
            Fault::KillBoth(node) => drop(pair.signal_all(node, Signal::KILL)),
            Fault::StopDaemon(node) => signal(pair.daemon(node), Signal::STOP),
            Fault::StopAll(node) => drop(pair.signal_all(node, Signal::STOP)),
            Fault::PullPlug(node) => drop(pair.world.switch_off(node)),
            Fault::CutAll => pair.world.network.set_all_cut(true),
            Fault::CutDirection(sender) => {
                (0..LINKS.len()).for_each(|link| pair.world.network.set_cut(link, sender, true));
            }
            Fault::CutLink(link) => BOTH.iter().for_each(|sender| pair.world.network.set_cut(link, *sender, true)),
            Fault::HandOver => {
                let _ = pair.primary().map(|node| pair.command(node, Op::Failover { force: false }));
            }
        }
    }
}

/// What an operator and a service manager do: mend, go on, switch on, start.
fn repair(pair: &mut Pair) -> anyhow::Result<()> {
    pair.world.network.set_all_cut(false);
    for node in BOTH {
        if !pair.world.is_on(node)? {
            pair.switch_on(node)?;
        } else if pair.daemon(node).is_err() {
            // Fenced between the two looks: then the next round switches it on.
            let _ = pair.world.with(node, |machine| machine.start_daemon());
        } else {
            let _ = pair.signal_all(node, Signal::CONT);
        }
    }
    Ok(())
}

/// Repairs until the pair is whole: while it heals, one node may still fence the other. Gives how long that took.
fn heal(pair: &mut Pair) -> anyhow::Result<Span> {
    let begun = clock::now();
    let mut last = begun;
    repair(pair)?;
    pair.until("the pair is whole again", HEAL, |pair, _| {
        if clock::now().since(last) > Span::from_secs(1) {
            last = clock::now();
            repair(pair)?;
        }
        Ok(pair.whole())
    })?;
    Ok(clock::now().since(begun))
}

/// Each kind of pair gets its share.
fn plan(number: u64) -> Plan {
    let plan = Plan { keep: given("LEASEHOLD_SOAK_KEEP").is_some(), ..pairs::plan(Timing::SHORT, Fencing::StandIn) };
    match number % 3 {
        0 => plan,
        1 => Plan { after: PromoteAfter::FenceAndLease, ..plan },
        _ => Plan { first: FirstShooter::Standby, ..plan },
    }
}

/// What came of a campaign.
#[derive(Default)]
struct Outcome {
    terms: usize,
    writes: u64,
    admissions: usize,
    longest_heal: Span,
}

impl Outcome {
    fn plus(&self, other: &Outcome) -> Outcome {
        Outcome {
            terms: self.terms + other.terms,
            writes: self.writes + other.writes,
            admissions: self.admissions + other.admissions,
            longest_heal: self.longest_heal.max(other.longest_heal),
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { terms, writes, admissions, longest_heal } = self;
        write!(f, "{terms} terms, {writes} writes, {admissions} admissions; healed within {longest_heal} each time")
    }
}

fn run(number: u64, seed: u64, faults: u64) -> Result<Outcome, String> {
    let mut rng = Rng::new(seed.wrapping_add(number));
    let mut pair = pairs::build(plan(number));
    let mut done = Vec::new();
    let result = campaign(&mut pair, &mut rng, faults, &mut done);
    let told = |what: String| {
        let [first, second] = pairs::logs(&pair).map(|log| last_lines(&log, 60));
        format!("pair {number} of seed {seed}: {what}\nfaults: {done:?}\n\n{first}\n\n{second}")
    };
    let longest_heal = result.map_err(|error| told(format!("{error:#}")))?;
    let terms = pairs::judged(&pair).map_err(&told)?;
    for (node, log) in BOTH.iter().zip(pairs::logs(&pair)) {
        if let Some(line) = log.lines().find(|line| NEVER.iter().any(|word| line.contains(word))) {
            return Err(told(format!("{}: {line}", name(*node))));
        }
    }
    let admissions = pairs::logs(&pair).iter().map(|log| log.matches("admitted the peer").count()).sum();
    let writes = terms.iter().map(|term| term.writes).sum();
    Ok(Outcome { terms: terms.len(), writes, admissions, longest_heal })
}

/// Gives the longest time that the pair took to heal.
fn campaign(pair: &mut Pair, rng: &mut Rng, faults: u64, done: &mut Vec<(Fault, u64)>) -> anyhow::Result<Span> {
    BOTH.into_iter().try_for_each(|node| pair.switch_on(node))?;
    let mut longest = heal(pair)?;
    for _ in 0..faults {
        let (fault, ms) = (Fault::draw(rng), rng.between(0, LONGEST_MS));
        done.push((fault, ms));
        fault.strike(pair);
        // Troubles like company: a quarter of them strike together with another one.
        if rng.below(4) == 0 {
            let second = Fault::draw(rng);
            done.push((second, 0));
            second.strike(pair);
        }
        // The fault lasts; it is no waiting for something.
        std::thread::sleep(Duration::from_millis(ms));
        pair.skip_news();
        // Now and then the next fault meets a pair that has not healed, or has not even been repaired.
        match rng.below(8) {
            0 => {}
            1 => repair(pair)?,
            _ => longest = longest.max(heal(pair)?),
        }
    }
    Ok(longest.max(heal(pair)?))
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn given(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn two_hundred_random_faults_make_no_two_writers_and_tokens_rise() {
    let seed = given("LEASEHOLD_SOAK_SEED").unwrap_or_else(|| clock::now().0);
    let faults = given("LEASEHOLD_SOAK_FAULTS").unwrap_or(FAULTS);
    println!("LEASEHOLD_SOAK_SEED={seed}");
    let begun = clock::now();
    let threads: Vec<_> =
        (0..PAIRS).map(|number| std::thread::spawn(move || run(number, seed, faults.div_ceil(PAIRS)))).collect();
    let outcomes: Vec<Result<Outcome, String>> =
        threads.into_iter().map(|thread| thread.join().expect("a campaign does not panic")).collect();
    let mut total = Outcome::default();
    let mut broken = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => total = total.plus(&outcome),
            Err(what) => broken.push(what),
        }
    }
    let took = clock::now().since(begun);
    println!("{faults} faults in {took}: {total}");
    assert!(broken.is_empty(), "LEASEHOLD_SOAK_SEED={seed}\n{}", broken.join("\n\n"));
}
