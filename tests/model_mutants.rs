//! The check of the model checker: which model catches which deliberate wrong change of the core, after how many states.
//!
//! `cargo test --release --features mutants --test model_mutants -- --nocapture`; the table comes last.
//! `MUTANT=NoMargin` tries one; `ALL=1` tries every model and not only those that are known to catch it.

#[path = "model/mod.rs"]
mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::core::Token;
use leasehold::core::mutant::{Mutant, plant};

use model::search::{Bounds, THREADS, explore};
use model::setup::Setup;
use model::{catalogue, number};

/// What caught a mutant.
#[derive(Debug, Clone)]
struct Caught {
    model: &'static str,
    states: usize,
    by: String,
}

fn bounds() -> Bounds {
    let states = usize::try_from(number("STATES").unwrap_or(2_000_000)).unwrap_or(usize::MAX);
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

fn tried(mutant: Mutant, models: &[&'static Setup]) -> Vec<Caught> {
    let all = number("ALL").is_some();
    let mut caught: Vec<Caught> = Vec::new();
    for setup in models {
        if !all && !caught.is_empty() {
            break;
        }
        caught.extend(hunt(mutant, setup));
    }
    caught.sort_by_key(|c| c.states);
    caught
}

#[test]
fn every_wrong_change_that_a_model_can_tell_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let wanted = std::env::var("MUTANT").unwrap_or_default();
    let models: Vec<&'static Setup> = catalogue::every_run().into_iter().map(|s| &*Box::leak(Box::new(s))).collect();
    let mutants: Vec<Mutant> = Mutant::ALL.into_iter().filter(|m| format!("{m:?}").contains(&wanted)).collect();
    let (next, table) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let caught = tried(*mutant, &models);
            for c in caught.iter().take(4) {
                println!("{mutant:?}: {c:?}");
            }
            if caught.is_empty() {
                println!("{mutant:?}: none");
            }
            table.lock().expect("no thread panics while it holds the table").push((*mutant, caught));
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
}
