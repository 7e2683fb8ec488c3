//! The check of the model checker: which model catches which deliberate wrong change of the core, after how many states.
//!
//! `cargo test --release --features mutants --test model_mutants -- --nocapture`; the table comes last.
//! `MUTANT=NoMargin` tries one; `ALL=1` names the model that needs the fewest states; `STATES` bounds each.

#[path = "common/beyond.rs"]
mod beyond;
#[path = "model/mod.rs"]
mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::core::Token;
use leasehold::core::mutant::{Mutant, plant};

use beyond::BEYOND;
use model::search::{Bounds, THREADS, explore};
use model::setup::Setup;
use model::{catalogue, number};

/// What caught a mutant.
struct Caught {
    model: &'static str,
    states: usize,
    by: String,
}

fn bounds() -> Bounds {
    let states = usize::try_from(number("STATES").unwrap_or(30_000)).unwrap_or(usize::MAX);
    let time = Duration::from_secs(number("SECONDS").unwrap_or(60));
    Bounds { states, time, token: Token(14), violations: 1 }
}

/// Explores one model with the mutant planted; a world that breaks before anything went wrong is caught at once.
fn hunt(mutant: Mutant, setup: &'static Setup) -> Option<Caught> {
    plant(Some(mutant));
    let outcome = catch_unwind(AssertUnwindSafe(|| explore(setup, bounds())));
    plant(None);
    match outcome {
        Ok(outcome) => {
            let by = outcome.found.first()?.violation.0.chars().take(70).collect();
            Some(Caught { model: setup.name, states: outcome.states, by })
        }
        Err(_) => Some(Caught { model: setup.name, states: 0, by: String::from("the usual course") }),
    }
}

/// The first model that catches it; with `ALL` the one that does so after the fewest states.
fn tried(mutant: Mutant, models: &[&'static Setup]) -> Option<Caught> {
    let mut hunts = models.iter().filter_map(|setup| hunt(mutant, setup));
    if number("ALL").is_some() { hunts.min_by_key(|c| c.states) } else { hunts.next() }
}

/// Tries the mutants, one a thread at a time.
fn table(mutants: &[Mutant], models: &[&'static Setup]) -> Vec<(Mutant, Option<Caught>)> {
    let (next, table) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let caught = tried(*mutant, models);
            table.lock().expect("no thread panics while it holds the table").push((*mutant, caught));
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let mut table = table.into_inner().expect("no thread panicked");
    table.sort_by_key(|(mutant, _)| Mutant::ALL.iter().position(|m| m == mutant));
    table
}

#[test]
fn every_wrong_change_that_a_model_can_tell_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let wanted = std::env::var("MUTANT").unwrap_or_default();
    let models: Vec<&'static Setup> = catalogue::corners().into_iter().map(|s| &*Box::leak(Box::new(s))).collect();
    let beyond = number("ALL").is_some() || !wanted.is_empty();
    let tried = |m: &Mutant| format!("{m:?}").contains(&wanted) && (beyond || !BEYOND.contains(m));
    let mutants: Vec<Mutant> = Mutant::ALL.into_iter().filter(tried).collect();
    let table = table(&mutants, &models);
    drop(std::panic::take_hook());
    println!("{:<24} {:<26} {:>7}  broken", "mutant", "model", "states");
    for (mutant, caught) in &table {
        match caught {
            Some(c) => println!("{:<24} {:<26} {:>7}  {}", format!("{mutant:?}"), c.model, c.states, c.by),
            None => println!("{:<24} -", format!("{mutant:?}")),
        }
    }
    let missed: Vec<Mutant> = table.iter().filter(|(_, caught)| caught.is_none()).map(|(m, _)| *m).collect();
    let surprising: Vec<&Mutant> = missed.iter().filter(|m| !BEYOND.contains(m)).collect();
    println!("{} tried, {} caught, {} not tried here", table.len(), table.len() - missed.len(), BEYOND.len());
    assert!(surprising.is_empty(), "no model catches {surprising:?}");
}
