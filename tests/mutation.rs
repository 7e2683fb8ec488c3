//! The check of the proof itself: each deliberate wrong change of the core must be caught: by the model checker
//! (`model_mutants.rs`), by the swarm, or by a golden scenario that aims at it.
//!
//! `cargo test --release --features mutants --test mutation -- --nocapture`; the table of what catches which comes last.
//! `MUTANT=NoMargin` tries one; `SEEDS=50000` looks longer.

use std::panic::catch_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, thread};

#[path = "common/beyond.rs"]
mod beyond;

use beyond::BEYOND;
use leasehold::core::mutant::{Mutant, plant};
use leasehold::sim::{Scenario, draw, run};

/// Seeds tried for one mutant that no model tells. The rarest is caught after some eleven thousand.
const SEEDS: u64 = 12_000;
/// Seeds tried for one that a model tells: for the table only.
const GLANCE: u64 = 500;
const THREADS: u64 = 2;

/// What caught a mutant.
struct Caught {
    by_model: bool,
    seed: Option<(u64, String)>,
    /// Golden scenarios whose expectations it breaks.
    scenarios: Vec<String>,
}

/// The first seed whose world breaks a guarantee under the mutant, with that guarantee.
fn first_seed(mutant: Mutant, limit: u64) -> Option<(u64, String)> {
    let first = AtomicU64::new(limit);
    let search = |offset: u64| {
        plant(Some(mutant));
        for seed in (offset..limit).step_by(THREADS as usize) {
            if seed >= first.load(Ordering::Relaxed) {
                return;
            }
            if !run(&draw(seed)).violations.is_empty() {
                first.fetch_min(seed, Ordering::Relaxed);
                return;
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|offset| drop(scope.spawn(move || search(offset)))));
    let seed = first.into_inner();
    (seed < limit).then(|| {
        plant(Some(mutant));
        let violations = run(&draw(seed)).violations;
        plant(None);
        (seed, violations.first().map_or_else(String::new, |v| format!("{:?}", v.guarantee)))
    })
}

fn scenarios() -> Vec<(String, Scenario)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("the scenarios are part of the repository")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let parse = |path: &Path| Scenario::parse(&fs::read_to_string(path).expect("readable")).expect("a right script");
    files.iter().map(|path| (name(path), parse(path))).collect()
}

fn broken(scenarios: &[(String, Scenario)]) -> Vec<String> {
    let breaks = |scenario: &Scenario| {
        let run = std::panic::AssertUnwindSafe(|| scenario.run());
        catch_unwind(run).map_or(true, |outcome| !outcome.faults.is_empty())
    };
    scenarios.iter().filter(|(_, scenario)| breaks(scenario)).map(|(name, _)| name.clone()).collect()
}

fn told(caught: &Caught) -> String {
    let seed = caught.seed.as_ref().map_or("-".to_owned(), |(seed, guarantee)| format!("seed {seed} ({guarantee})"));
    let names = match caught.scenarios.as_slice() {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    };
    format!("{:<6} {seed:<24} {names}", if caught.by_model { "yes" } else { "-" })
}

#[test]
fn every_wrong_change_of_the_core_is_caught() {
    let wanted = env::var("MUTANT").ok();
    let given: Option<u64> = env::var("SEEDS").ok().and_then(|s| s.parse().ok());
    let scenarios = scenarios();
    plant(None);
    assert_eq!(broken(&scenarios), Vec::<String>::new(), "the unchanged core keeps every expectation");
    let mut table = String::new();
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let name = format!("{mutant:?}");
        if wanted.as_ref().is_some_and(|w| *w != name) {
            continue;
        }
        plant(Some(mutant));
        let broken = broken(&scenarios);
        plant(None);
        let by_model = !BEYOND.contains(&mutant);
        let limit = given.unwrap_or(if by_model { GLANCE } else { SEEDS });
        let caught = Caught { by_model, seed: first_seed(mutant, limit), scenarios: broken };
        table.push_str(&format!("{name:<24} {}\n", told(&caught)));
        if !by_model && caught.seed.is_none() && caught.scenarios.is_empty() {
            missed.push(name);
        }
    }
    println!("{:<24} {:<6} {:<24} golden scenarios\n{table}", "mutant", "model", "swarm");
    assert!(missed.is_empty(), "caught by nothing: {}", missed.join(", "));
}
