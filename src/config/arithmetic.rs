//! The parameters as a table for people, and what they mean when something happens.

use std::fmt;

use super::checked::Timing;
use super::timing::{self, Facts};
use crate::core::{FirstShooter, Plan, PromoteAfter, Span};

/// Where a parameter's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Given,
    Default,
    Computed,
}

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// As the protocol calls it, or nothing.
    pub symbol: &'static str,
    /// As the file calls it.
    pub name: &'static str,
    pub value: String,
    pub origin: Origin,
    /// How it comes about, with numbers.
    pub formula: String,
}

impl Line {
    pub fn new(symbol: &'static str, name: &'static str, value: String, origin: Origin, formula: &str) -> Line {
        Line { symbol, name, value, origin, formula: formula.to_string() }
    }
}

/// What `leasehold check` prints beside the findings. `Display` aligns the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arithmetic {
    pub lines: Vec<Line>,
    /// What happens when, with its times.
    pub facts: Vec<Event>,
}

/// One thing that may happen, and how long it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub what: &'static str,
    pub then: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Given => "given",
            Origin::Default => "default",
            Origin::Computed => "computed",
        })
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Line) -> &str| self.lines.iter().map(|l| of(l).chars().count()).max().unwrap_or(0);
        let (names, values) = (width(|l| l.name), width(|l| &l.value));
        for line in &self.lines {
            let start =
                format!("  {:3}  {:names$}  {:>values$}  {:8}", line.symbol, line.name, line.value, line.origin);
            writeln!(f, "{}", format!("{start}  {}", line.formula).trim_end())?;
        }
        Ok(())
    }
}

/// What happens when: the times that follow from the parameters.
pub fn summary(facts: &Facts<'_>, t: &Timing) -> Vec<Event> {
    let mut events = vec![takeover(facts, t), standby_dies(facts, t), isolated(t), handover(facts, t)];
    events.extend(link_cut(facts, t));
    events
}

/// From the primary's crash until the service is up on the other node.
fn takeover(facts: &Facts<'_>, t: &Timing) -> Event {
    let what = "the primary crashes";
    let delay = if facts.first == FirstShooter::Primary { t.head_start } else { Span::ZERO };
    let silence = t.dead_after.plus(delay);
    // The silence is dated by the newest datagram that was echoed, so it began up to H + RTT after the crash.
    let worst_silence = silence.plus(t.interval).plus(t.round_trip);
    if facts.plan == Plan::ConfirmOnly {
        let then = format!(
            "the standby says so after {silence}, and starts when an operator has confirmed, but not before T = {}",
            t.term
        );
        return Event { what, then };
    }
    let lease = if waits_for_lease(facts.plan, t) { t.term } else { Span::ZERO };
    let typical = silence.plus(facts.typical).plus(facts.reading).max(lease);
    let worst = worst_silence.plus(t.fence_bound).max(lease.plus(t.interval));
    let wait = if lease > Span::ZERO { ", and not before T" } else { "" };
    let then = format!(
        "the standby begins to start after about {typical}, at most {worst} (silence {silence}, then fence{wait}); the group \
         has up to {} to start",
        facts.start_budget
    );
    Event { what, then }
}

pub fn waits_for_lease(plan: Plan, t: &Timing) -> bool {
    match plan {
        Plan::Node { .. } => t.promote_after == PromoteAfter::FenceAndLease,
        Plan::Exclusive | Plan::Yielding | Plan::ConfirmOnly => true,
    }
}

fn standby_dies(facts: &Facts<'_>, t: &Timing) -> Event {
    let right = t.term.minus(t.margin);
    let then = match facts.plan {
        Plan::Yielding => format!("the primary stops at T − M = {right}, and waits for contact or an operator"),
        Plan::ConfirmOnly => format!("the primary stops at T − M = {right}, until an operator confirms"),
        Plan::Node { .. } | Plan::Exclusive if right >= timing::needed_right(facts, t).0 => {
            "the primary fences it and goes on without a break".to_string()
        }
        Plan::Node { .. } | Plan::Exclusive => {
            let gap = interruption(facts, t);
            format!(
                "the primary stops at T − M = {right} and starts again when the standby is fenced: up to {gap} without service"
            )
        }
    };
    Event { what: "the standby crashes", then }
}

/// A primary that cannot fence within its lease: stop, whole attempt, start.
pub fn interruption(facts: &Facts<'_>, t: &Timing) -> Span {
    t.stop_budget.plus(t.fence_bound).plus(facts.start_budget)
}

fn isolated(t: &Timing) -> Event {
    let right = t.term.minus(t.margin);
    let reset = t.term.minus(timing::drift(t, t.term)).minus(t.reset);
    let then = format!(
        "it stops the service by itself at {right} after its last renewal, and is reset at {reset} if that fails"
    );
    Event { what: "the primary hears nobody and can fence nobody", then }
}

fn link_cut(facts: &Facts<'_>, t: &Timing) -> Option<Event> {
    let (first, second) = match facts.first {
        FirstShooter::Primary => ("primary", "standby"),
        FirstShooter::Standby => ("standby", "primary"),
    };
    facts.both_shoot().then(|| Event {
        what: "all links fail, both nodes live",
        then: format!("the {first} fences after {}, the {second} {} later if it still can", t.dead_after, t.head_start),
    })
}

fn handover(facts: &Facts<'_>, t: &Timing) -> Event {
    let then = format!("no service for at most {} to stop and {} to start", t.stop_budget, facts.start_budget);
    Event { what: "an operator asks for a failover", then }
}
