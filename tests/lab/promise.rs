//! What the configuration promises, by the product's own word, and how much of a delay is this machine's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use leasehold::core::Span;
use leasehold::os::clock;
use serde_json::Value;

/// How long a take-over takes at worst, from the fault: bounds of `leasehold explain --json`.
#[derive(Clone, Copy, Default)]
pub struct Promise {
    /// Until the other node begins to start the service.
    pub begins: Span,
    /// Until the service is up there.
    pub served: Span,
}

impl Promise {
    pub fn read(explained: &str) -> anyhow::Result<Promise> {
        let case: Value = serde_json::from_str(explained)?;
        let bounds = case["bounds"].as_array().context("bounds")?;
        let worst = |name: &str| -> anyhow::Result<Span> {
            let bound =
                bounds.iter().find(|bound| bound["name"] == name).with_context(|| format!("no bound {name}"))?;
            bound["worst_ms"].as_u64().map(Span::from_ms).with_context(|| format!("{name} is not bounded"))
        };
        Ok(Promise { begins: worst("begins")?, served: worst("served")? })
    }
}

/// The promise holds, but for the time in which this machine did not run what was due.
pub fn kept(what: &str, took: Span, promised: Span, late: Span) -> anyhow::Result<()> {
    let allowed = promised.plus(late);
    ensure!(
        took <= allowed,
        "{what} took {took}; promised is {promised}, and this machine was late by {late} meanwhile"
    );
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
    let promise = Promise::read(text).unwrap();
    assert_eq!((promise.begins, promise.served), (Span::from_ms(5), Span::from_ms(27_760)));
    assert!(Promise::read(&text.replace("27760", "null")).is_err());
}
