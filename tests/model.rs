//! Model checking of the shipped core: every order of deadlines, datagrams, writes, jobs and crashes within bounds.
//!
//! `cargo test --release --test model -- --nocapture` visits every state of the small models. `LONG=1` takes faults
//! of all kinds together, for `SECONDS` each; `MODEL=yielding` picks models by name, `TOKEN` bounds the tokens.
//! Time is the order of deadlines: it passes from one to the next, on clocks that agree (the swarm has those that do
//! not). A build with debug assertions leaves the larger models out.

#[path = "model/mod.rs"]
mod model;

use std::time::{Duration, Instant};

use leasehold::core::Token;

use model::search::{Bounds, Found, Outcome, explore_each};
use model::setup::Setup;
use model::{catalogue, number};

fn models() -> Vec<&'static Setup> {
    let all = match number("LONG") {
        Some(_) => catalogue::long(),
        None if cfg!(debug_assertions) => catalogue::smallest(),
        None => catalogue::every_run(),
    };
    let wanted = std::env::var("MODEL").unwrap_or_default();
    all.into_iter().filter(|s| s.name.contains(&wanted)).map(|s| &*Box::leak(Box::new(s))).collect()
}

fn bounds() -> Bounds {
    // An ordinary run visits all there is; its bound is that of the number of states, and this one of patience.
    let seconds = number("SECONDS").unwrap_or(if number("LONG").is_some() { 300 } else { 900 });
    let states = usize::try_from(number("STATES").unwrap_or(20_000_000)).unwrap_or(usize::MAX);
    Bounds { states, time: Duration::from_secs(seconds), token: Token(number("TOKEN").unwrap_or(14)), violations: 3 }
}

fn told(outcome: &Outcome) -> Vec<String> {
    let tell = |f: &Found| format!("{}: {}\n{}", outcome.name, f.violation.0, f.trace.join("\n"));
    outcome.found.iter().map(tell).collect()
}

#[test]
fn every_order_of_events_within_bounds_keeps_every_guarantee() {
    // The core's own assertions are violations here, with their trace: nothing else need be said of them.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let outcomes = explore_each(&models(), bounds());
    drop(std::panic::take_hook());
    let violations: Vec<String> = outcomes.iter().flat_map(told).collect();
    outcomes.iter().for_each(|outcome| println!("{outcome}"));
    let states: usize = outcomes.iter().map(|o| o.states).sum();
    let transitions: u64 = outcomes.iter().map(|o| o.transitions).sum();
    let whole = outcomes.iter().filter(|o| o.exhausted).count();
    let seconds = begun.elapsed().as_secs_f64();
    let count = outcomes.len();
    println!("{count} models, {whole} exhausted, {states} states, {transitions} transitions, {seconds:.1} s");
    assert!(violations.is_empty(), "{} violations\n{}", violations.len(), violations.join("\n\n"));
    let bounded_by_time = number("LONG").is_some() || number("SECONDS").is_some();
    assert!(bounded_by_time || whole == outcomes.len(), "a model of the ordinary run was cut short");
}
