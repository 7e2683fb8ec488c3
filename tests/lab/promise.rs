//! What the configuration promises, by the product's own word, and how much of a delay is this machine's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use leasehold::core::Span;
use leasehold::os::clock;
use serde_json::Value;

/// From the fault until the service is up on the other node, at worst: `served` of `leasehold explain --json`.
pub fn served(explained: &str) -> anyhow::Result<Span> {
    let case: Value = serde_json::from_str(explained)?;
    let bounds = case["bounds"].as_array().context("bounds")?;
    let served = bounds.iter().find(|bound| bound["name"] == "served").context("a bound called served")?;
    served["worst_ms"].as_u64().map(Span::from_ms).context("served is bounded")
}

/// The promise holds, but for the time in which this machine did not run what was due.
pub fn kept(what: &str, took: Span, promised: Span, late: Span) -> anyhow::Result<()> {
    let allowed = promised.plus(late);
    ensure!(took <= allowed, "{what} took {took}; promised is {promised}, and this machine was late by {late} meanwhile");
    Ok(())
}

static LATE: AtomicU64 = AtomicU64::new(0);
/// How often a sleeper is to wake, and what it may be late without a word.
const BEAT: Duration = Duration::from_millis(20);
const USUAL: Span = Span::from_ms(10);

/// How late this machine has run what was due, summed up since [`watch`].
pub fn lateness() -> Span {
    Span(LATE.load(Ordering::Relaxed))
}

/// Starts to measure; ends with the process.
pub fn watch() {
    std::thread::spawn(|| {
        loop {
            let begun = clock::now();
            std::thread::sleep(BEAT);
            let due = Span(BEAT.as_nanos() as u64).plus(USUAL);
            LATE.fetch_add(clock::now().since(begun).minus(due).0, Ordering::Relaxed);
        }
    });
}

#[test]
fn a_promise_is_broken_by_more_than_the_machine_was_late() {
    let (promised, late) = (Span::from_secs(10), Span::from_secs(1));
    assert!(kept("it", Span::from_secs(11), promised, late).is_ok());
    assert!(kept("it", Span::from_secs(12), promised, late).is_err());
}

#[test]
fn the_promise_is_read_from_what_explain_prints() {
    let text = r#"{"bounds": [{"name": "begins", "worst_ms": 5}, {"name": "served", "worst_ms": 27760}]}"#;
    assert_eq!(served(text).unwrap(), Span::from_ms(27_760));
    assert!(served(r#"{"bounds": [{"name": "served", "worst_ms": null}]}"#).is_err());
}
