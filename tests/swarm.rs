//! The swarm: worlds drawn from seeds must keep S1 to S5 and L1 while faults last, and L2 when they have ended.
//!
//! `SEEDS=20000 cargo test --release --test swarm -- --nocapture` runs more; `SEED=17` runs one and prints its trace.
//! A failing seed is shrunk and printed as a scenario; only the first of each kind, for
//! shrinking takes longer than running.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use leasehold::sim::{Case, Figures, Scenario, Violation, draw, run_many, shrink};

/// Seeds of a test run: many where the build is optimized, as in CI.
const ORDINARY: u64 = if cfg!(debug_assertions) { 300 } else { 20_000 };
/// How many kinds of failures are shrunk.
const SHRUNK: usize = 12;

/// A seed, its world, and what it broke.
type Failure = (u64, Case, Vec<Violation>);

fn wanted(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

fn shown(seed: u64, case: &Case, violations: &[Violation]) -> String {
    let first = &violations[0];
    let short = shrink(case, first.guarantee);
    format!("seed {seed}: {first}\n{}", short.script(&format!("Found by seed {seed}: {}", first.text)))
}

/// Runs the seeds on two threads; the failing ones, in order.
fn swarm(count: u64) -> (Figures, Vec<Failure>) {
    let failures = Mutex::new(Vec::new());
    let keep = |seed: u64, case: &Case, violations: &[Violation]| {
        let mut failures = failures.lock().expect("no thread panics while it holds the failures");
        failures.push((seed, case.clone(), violations.to_vec()));
    };
    let first = wanted("FIRST").unwrap_or(0);
    let middle = first + count / 2;
    let mut figures = thread::scope(|scope| {
        let half = scope.spawn(|| run_many(first..middle, keep));
        let mut figures = run_many(middle..first + count, keep);
        figures.add(&half.join().expect("worlds do not panic: the swarm catches them"));
        figures
    });
    let mut failures = failures.into_inner().expect("all threads have ended");
    failures.sort_by_key(|(seed, ..)| *seed);
    figures.failed = failures.len() as u64;
    (figures, failures)
}

/// The first failure of each kind; says how many others there are.
fn kinds(failures: &[Failure]) -> Vec<&Failure> {
    let mut seen: BTreeMap<(String, String), Vec<&Failure>> = BTreeMap::new();
    for failure in failures {
        let (case, first) = (&failure.1, &failure.2[0]);
        let words: String = first.text.chars().filter(|c| !c.is_ascii_digit()).collect();
        let kind = format!("{:?}: {}", first.guarantee, words.replace("heron", "N").replace("plover", "N"));
        seen.entry((kind, format!("{:?}", case.setup.nodes[0].plan))).or_default().push(failure);
    }
    for ((kind, plan), failures) in &seen {
        let seeds: Vec<u64> = failures.iter().take(8).map(|f| f.0).collect();
        println!("{:>5} × {kind} ({plan}), seeds {seeds:?}", failures.len());
    }
    seen.into_values().map(|failures| failures[0]).collect()
}

#[test]
fn worlds_drawn_from_seeds_keep_every_guarantee() {
    if let Some(seed) = wanted("SEED") {
        let case = draw(seed);
        let scenario = Scenario::parse(&case.script(&format!("seed {seed}"))).expect("a drawn case is a right script");
        let outcome = scenario.run();
        println!("{}\n{}", scenario.script, outcome.trace);
        assert!(outcome.faults.is_empty(), "{}", outcome.faults.join("\n"));
        return;
    }
    let begun = std::time::Instant::now();
    let (figures, failures) = swarm(wanted("SEEDS").unwrap_or(ORDINARY));
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let report: Vec<String> = kinds(&failures).into_iter().take(SHRUNK).map(|(s, c, v)| shown(*s, c, v)).collect();
    report.iter().for_each(|text| println!("{text}"));
    println!(
        "{} seeds, {:.0} hours, {:.0} hours a minute, {} core steps, {} promotions, {} with S1 void, {} failed",
        figures.seeds,
        figures.hours(),
        figures.hours() / minutes,
        figures.steps,
        figures.promotions,
        figures.void,
        figures.failed
    );
    assert!(failures.is_empty(), "{} seeds fail", failures.len());
}
