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
    pub bounds: Bounds,
}

/// How long a step usually takes, and how long at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    pub typical: Span,
    pub worst: Span,
    /// How both come about, with numbers.
    pub formula: String,
}

/// A take-over from a crashed primary step by step, and what a primary may do alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// From the crash until the standby may act; the head start is part of it.
    pub silence: Reach,
    /// L, as far as it delays the standby.
    pub head_start: Span,
    /// One whole fence attempt; `None` where an operator has to confirm.
    pub fence: Option<Reach>,
    /// From the crash until the peer's lease has ended for certain, where the start waits for that.
    pub lease: Option<Reach>,
    /// From the crash until the group begins to start; `None` where an operator has to confirm.
    pub begin: Option<Reach>,
    /// The longest start of the whole group.
    pub start: Span,
    /// T − M: how long a primary acts after its last renewal.
    pub right: Span,
    /// What the right has to outlast for a primary to survive the crash of its standby, and how that is computed.
    pub needed_right: (Span, String),
    /// M's lower bound in words and numbers.
    pub margin: String,
    /// Without service when the standby crashes, where the right is too short for a fence attempt.
    pub interruption: Option<Span>,
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
pub fn summary(facts: &Facts<'_>, t: &Timing, bounds: &Bounds) -> Vec<Event> {
    let mut events = vec![takeover(t, bounds), standby_dies(facts, t), isolated(t), handover(facts, t)];
    events.extend(link_cut(facts, t));
    events
}

/// The same times as data: the sentences below, and `explain`, take them from here.
pub fn bounds(facts: &Facts<'_>, t: &Timing) -> Bounds {
    let needed_right = timing::needed_right(facts, t);
    let right = t.term.minus(t.margin);
    let both_fence = matches!(facts.plan, Plan::Node { .. } | Plan::Exclusive);
    let head_start = if facts.first == FirstShooter::Primary { t.head_start } else { Span::ZERO };
    let (silence, fence, lease) = (silence(t, head_start), fence(facts, t), lease(facts, t));
    Bounds {
        begin: fence.as_ref().map(|fence| begin(&silence, fence, lease.as_ref(), facts.plan)),
        silence,
        head_start,
        fence,
        lease,
        start: facts.start_budget,
        right,
        margin: timing::margin_formula(t, t.term),
        interruption: (both_fence && right < needed_right.0).then(|| interruption(facts, t)),
        needed_right,
    }
}

/// The silence is dated by the newest datagram that was echoed, so it began up to H + RTT after the crash.
fn silence(t: &Timing, head_start: Span) -> Reach {
    let typical = t.dead_after.plus(head_start);
    let worst = typical.plus(t.interval).plus(t.round_trip);
    let (name, numbers) = match head_start {
        Span::ZERO => ("D", t.dead_after.to_string()),
        _ => ("D + L", format!("{} + {head_start}", t.dead_after)),
    };
    let formula = format!("{name} = {numbers}; at most + H + RTT = {} + {}", t.interval, t.round_trip);
    Reach { typical, worst, formula }
}

fn fence(facts: &Facts<'_>, t: &Timing) -> Option<Reach> {
    let formula = format!("usually {} for the command, {} for its readings; at most F", facts.typical, facts.reading);
    let typical = facts.typical.plus(facts.reading);
    (facts.plan != Plan::ConfirmOnly).then_some(Reach { typical, worst: t.fence_bound, formula })
}

fn lease(facts: &Facts<'_>, t: &Timing) -> Option<Reach> {
    let formula =
        format!("T = {} after the last datagram was received; at most + H = {} for its way", t.term, t.interval);
    let worst = t.term.plus(t.interval);
    waits_for_lease(facts.plan, t).then_some(Reach { typical: t.term, worst, formula })
}

/// An exclusive plan takes its token once more, immediately before the first resource starts.
fn begin(silence: &Reach, fence: &Reach, lease: Option<&Reach>, plan: Plan) -> Reach {
    let exclusive = plan == Plan::Exclusive;
    let reach = |of: fn(&Reach) -> Span| {
        let proven = of(silence).plus(of(fence)).max(lease.map_or(Span::ZERO, of));
        proven.plus(if exclusive { of(fence) } else { Span::ZERO })
    };
    let wait = if lease.is_some() { ", but not before the lease has ended" } else { "" };
    let take = if exclusive { ", then one more take" } else { "" };
    let formula = format!("silence + fence{wait}{take}");
    Reach { typical: reach(|r| r.typical), worst: reach(|r| r.worst), formula }
}

/// From the primary's crash until the service is up on the other node.
fn takeover(t: &Timing, bounds: &Bounds) -> Event {
    let what = "the primary crashes";
    let silence = bounds.silence.typical;
    let Some(begin) = &bounds.begin else {
        let then = format!(
            "the standby says so after {silence}, and starts when an operator has confirmed, but not before T = {}",
            t.term
        );
        return Event { what, then };
    };
    let wait = if bounds.lease.is_some() { ", and not before T" } else { "" };
    let (typical, worst) = (begin.typical, begin.worst);
    let then = format!(
        "the standby begins to start after about {typical}, at most {worst} (silence {silence}, then fence{wait}); the group \
         has up to {} to start",
        bounds.start
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
