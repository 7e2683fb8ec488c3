//! The arithmetic of protocol section 2: what is given, what is a default, what is computed, and why.
//!
//! ```text
//! t          t + T − M        t + T − 2ρT − R      t + T − 2ρT        t + T (grantor)
//! |-- may act --|-- stops: S ------|-- reset: R ------|-- drift -------|-> the other may start
//! ```

use super::arithmetic::{self, Line, Origin};
use super::checked::{Agent, Resource, Timing};
use super::raw::{self, Raw, Watchdog};
use super::rules;
use super::value::{Field, Findings};
use crate::core::{FirstShooter, NodeId, Plan, PromoteAfter, Span};

pub use super::arithmetic::Arithmetic;

/// H: four to the second cost nothing, and six fit into D.
const INTERVAL: Span = Span::from_ms(250);
/// D: above the hiccups of switches and schedulers.
const DEAD_AFTER: Span = Span::from_ms(1500);
/// Generous in a server room; a path between two sites needs its own figure.
const ROUND_TRIP: Span = Span::from_ms(10);
/// L
const HEAD_START: Span = Span::from_secs(1);
/// P: a stalled virtual CPU, a swap storm.
const PAUSE: Span = Span::from_secs(1);
/// ρ: twice what the crystals of servers do.
const DRIFT_PPM: u32 = 200;
/// R: the kernel's immediate restart.
const RESET: Span = Span::from_secs(1);
/// Patience of a fresh daemon: both nodes are often switched on together.
const JOIN_WAIT: Span = Span::from_secs(10);
/// A server with a large memory test.
const BOOT_TIME: Span = Span::from_secs(180);
const LEAVE_TIMEOUT: Span = Span::from_secs(10);
const START_BACKOFF: Span = Span::from_secs(60);
/// T is rounded up to this: nobody reads a lease of 33.817s.
const TERM_STEP: Span = Span::from_ms(100);

/// What the arithmetic starts from.
#[derive(Debug)]
pub struct Facts<'a> {
    pub raw: &'a raw::Timing,
    pub plan: Plan,
    pub first: FirstShooter,
    /// S and how it comes about
    pub stop_budget: (Span, String),
    /// The longest start of the whole group
    pub start_budget: Span,
    /// F by the agents' limits, the longer of both directions
    pub agents_bound: (Span, String),
    /// Usual time until the first level's `off` has landed, the longer of both directions
    pub typical: Span,
    /// Usual time of the readings that verify an `off`
    pub reading: Span,
    pub settle: Span,
    /// The agents are understood: what follows from F may be told.
    pub agents_known: bool,
}

impl<'a> Facts<'a> {
    pub fn gather(raw: &'a Raw, plan: Plan, agents: &[Agent], resources: &[Resource]) -> Facts<'a> {
        let both = [NodeId::First, NodeId::Second];
        let bounds = both.map(|target| direction_bound(agents, target));
        let typical = both.map(|target| direction_typical(agents, target)).into_iter().max();
        Facts {
            raw: &raw.timing,
            plan,
            first: raw.fence.first.value_or(FirstShooter::Primary),
            stop_budget: sum(slowest_of_stages(resources, |r| r.stop_timeout)),
            start_budget: sum(slowest_of_stages(resources, |r| r.start_timeout)).0,
            // Reversed, because of equals the last is taken: the first node's agents are the ones to show.
            agents_bound: bounds.into_iter().rev().max_by_key(|(span, _)| *span).unwrap_or_default(),
            typical: typical.unwrap_or_default(),
            reading: agents.iter().map(reading).max().unwrap_or_default(),
            settle: agents.iter().map(|a| a.settle).max().unwrap_or_default(),
            agents_known: true,
        }
    }

    /// For a file whose agents are wrong: the rules that do not depend on F are told all the same.
    pub fn without_agents(raw: &'a Raw, resources: &[Resource]) -> Facts<'a> {
        Facts { agents_known: false, ..Facts::gather(raw, Plan::Node { access: false }, &[], resources) }
    }

    /// Whether two nodes may shoot at each other, so that the head start means something.
    pub fn both_shoot(&self) -> bool {
        matches!(self.plan, Plan::Node { .. } | Plan::Exclusive)
    }

    /// L, as far as it delays a primary that fences its silent standby.
    pub fn primary_waits(&self, head_start: Span) -> Span {
        if self.first == FirstShooter::Standby { head_start } else { Span::ZERO }
    }
}

/// Levels follow one another; the agents of one level run side by side.
fn direction_bound(agents: &[Agent], target: NodeId) -> (Span, String) {
    let levels = levels(agents, target);
    sum(levels.iter().filter_map(|level| level.iter().max_by_key(|a| a.timeout)).map(|a| (a.name.as_str(), a.timeout)))
}

fn reading(agent: &Agent) -> Span {
    agent.kind.facts().map_or(Span::ZERO, |facts| facts.reading())
}

fn direction_typical(agents: &[Agent], target: NodeId) -> Span {
    levels(agents, target).first().into_iter().flatten().map(|a| a.typical).max().unwrap_or_default()
}

fn levels(agents: &[Agent], target: NodeId) -> Vec<Vec<&Agent>> {
    let mut by_level = std::collections::BTreeMap::<u32, Vec<&Agent>>::new();
    for agent in agents.iter().filter(|a| a.target == target) {
        by_level.entry(agent.level).or_default().push(agent);
    }
    by_level.into_values().collect()
}

/// Stages follow one another; the resources of one stage start and stop side by side.
fn slowest_of_stages(resources: &[Resource], limit: impl Fn(&Resource) -> Span) -> impl Iterator<Item = (&str, Span)> {
    let stages = resources.chunk_by(|_, next| next.beside);
    stages.filter_map(move |stage| stage.iter().map(|r| (r.name.as_str(), limit(r))).max_by_key(|(_, span)| *span))
}

/// The sum, and how it comes about: "20s (bmc-heron) + 20s (pdu-heron)".
fn sum<'n>(parts: impl Iterator<Item = (&'n str, Span)>) -> (Span, String) {
    let mut total = Span::ZERO;
    let terms: Vec<String> = parts
        .filter(|(_, span)| *span > Span::ZERO)
        .map(|(name, span)| {
            total = total.plus(span);
            format!("{span} ({name})")
        })
        .collect();
    (total, if terms.is_empty() { "nothing to wait for".into() } else { terms.join(" + ") })
}

/// Computes all parameters and holds them against the rules. `None`: a value that takes part is unreadable.
pub fn compute(facts: &Facts<'_>, f: &mut Findings) -> Option<(Timing, Arithmetic)> {
    if any_bad(facts.raw) {
        return None;
    }
    let mut lines = Vec::new();
    let timing = parameters(facts, &mut lines);
    rules::check(facts, &timing, f);
    let bounds = arithmetic::bounds(facts, &timing);
    let arithmetic = Arithmetic { lines, facts: arithmetic::summary(facts, &timing, &bounds), bounds };
    Some((timing, arithmetic))
}

fn any_bad(raw: &raw::Timing) -> bool {
    let spans = [&raw.interval, &raw.dead_after, &raw.round_trip, &raw.term, &raw.margin, &raw.pause, &raw.reset];
    let more = [&raw.head_start, &raw.fence_bound, &raw.join_wait, &raw.boot_time, &raw.leave_timeout];
    spans.iter().chain(&more).any(|s| s.is_bad()) || raw.drift_ppm.is_bad() || raw.watchdog.is_bad()
}

fn parameters(facts: &Facts<'_>, lines: &mut Vec<Line>) -> Timing {
    let raw = facts.raw;
    let mut take = |symbol, name, field: &Field<Span>, default: Span| {
        let value = field.value_or(default);
        let origin = if field.given().is_some() { Origin::Given } else { Origin::Default };
        lines.push(Line::new(symbol, name, value.to_string(), origin, ""));
        value
    };
    let interval = take("H", "heartbeat.interval", &raw.interval, INTERVAL);
    let dead_after = take("D", "heartbeat.dead_after", &raw.dead_after, DEAD_AFTER);
    let round_trip = take("RTT", "heartbeat.round_trip", &raw.round_trip, ROUND_TRIP);
    let head_start = take("L", "fence.head_start", &raw.head_start, HEAD_START);
    let pause = take("P", "lease.pause", &raw.pause, PAUSE);
    let reset = take("R", "guard.reset", &raw.reset, RESET);
    let boot_time = take("", "join.boot_time", &raw.boot_time, BOOT_TIME);
    let leave_timeout = take("", "leave.timeout", &raw.leave_timeout, LEAVE_TIMEOUT);
    let start_backoff = take("", "promote.start_backoff", &raw.start_backoff, START_BACKOFF);
    let drift_ppm = raw.drift_ppm.value_or(DRIFT_PPM);
    let mut timing = Timing {
        interval,
        dead_after,
        term: Span::ZERO,
        margin: Span::ZERO,
        head_start,
        fence_bound: Span::ZERO,
        settle: facts.settle,
        pause,
        wall_check: raw.wall_check.value_or(false),
        stop_budget: facts.stop_budget.0,
        reset,
        watchdog: None,
        drift_ppm,
        round_trip,
        join_wait: Span::ZERO,
        join_fence: raw.join_fence.value_or(false),
        boot_time,
        leave_timeout,
        start_backoff,
        promote_after: raw.promote_after.value_or(PromoteAfter::Fence),
    };
    let origin = if raw.drift_ppm.given().is_some() { Origin::Given } else { Origin::Default };
    lines.push(Line::new("ρ", "lease.drift_ppm", format!("{drift_ppm} ppm"), origin, ""));
    lines.push(Line::new("S", "stop budget", timing.stop_budget.to_string(), Origin::Computed, &facts.stop_budget.1));
    timing.fence_bound = fence_bound(facts, lines);
    timing.watchdog = watchdog(facts, &timing, lines);
    (timing.term, timing.margin) = lease(facts, &timing, lines);
    timing.join_wait = join_wait(raw, &timing, lines);
    lines.push(Line::new("", "settle", timing.settle.to_string(), Origin::Computed, "the longest of the agents"));
    timing
}

fn fence_bound(facts: &Facts<'_>, lines: &mut Vec<Line>) -> Span {
    if facts.plan == Plan::ConfirmOnly {
        lines.push(Line::new("F", "fence.bound", "none".into(), Origin::Computed, "an operator has no limit"));
        return Span::ZERO;
    }
    let (bound, formula) = &facts.agents_bound;
    match facts.raw.fence_bound.value() {
        Some(given) => {
            lines.push(Line::new("F", "fence.bound", given.to_string(), Origin::Given, &format!("agents: {formula}")));
            given
        }
        None => {
            lines.push(Line::new("F", "fence.bound", bound.to_string(), Origin::Computed, formula));
            *bound
        }
    }
}

/// Hardware watchdogs count whole seconds.
fn watchdog(facts: &Facts<'_>, t: &Timing, lines: &mut Vec<Line>) -> Option<Span> {
    let least = t.stop_budget.plus(t.interval);
    let (value, origin, formula) = match facts.raw.watchdog.value() {
        None => (None, Origin::Default, String::new()),
        Some(Watchdog::None) => (None, Origin::Given, String::new()),
        Some(Watchdog::After(span)) => (Some(span), Origin::Given, String::new()),
        Some(Watchdog::Auto) => {
            let formula = format!("S + H = {} + {}, in whole seconds", t.stop_budget, t.interval);
            (Some(round_up(least, Span::from_secs(1))), Origin::Computed, formula)
        }
    };
    let shown = value.map_or("none".to_string(), |w| w.to_string());
    lines.push(Line::new("W", "guard.watchdog", shown, origin, &formula));
    value
}

/// T and M: what is not given is the smallest that satisfies every rule.
fn lease(facts: &Facts<'_>, t: &Timing, lines: &mut Vec<Line>) -> (Span, Span) {
    let (reserve, silence) = (reserve(t), needed_right(facts, t).0);
    let margin_for = |term: Span| round_up(drift(t, term).plus(reserve), Span::from_ms(1));
    let (term, margin) = match (facts.raw.term.value(), facts.raw.margin.value()) {
        (Some(term), Some(margin)) => (term, margin),
        (Some(term), None) => (term, margin_for(term)),
        (None, Some(margin)) => (round_up(silence.plus(margin), TERM_STEP), margin),
        (None, None) => {
            let mut term = round_up(silence.plus(reserve), TERM_STEP);
            while term.minus(margin_for(term)) < silence {
                term = term.plus(TERM_STEP);
            }
            (term, margin_for(term))
        }
    };
    let origin = |given: bool| if given { Origin::Given } else { Origin::Computed };
    let (margin_given, term_given) = (facts.raw.margin.given().is_some(), facts.raw.term.given().is_some());
    let formula = format!(">= {}", margin_formula(t, term));
    lines.push(Line::new("M", "lease.margin", margin.to_string(), origin(margin_given), &formula));
    let formula = format!("T − M >= {}", needed_right(facts, t).1);
    lines.push(Line::new("T", "lease.term", term.to_string(), origin(term_given), &formula));
    (term, margin)
}

/// What the margin holds beside the drift: an orderly stop and a reset, or the watchdog.
pub fn reserve(t: &Timing) -> Span {
    t.pause.plus(t.stop_budget).plus(t.reset).max(t.watchdog.unwrap_or_default())
}

/// What a right of T − M has to outlast for a primary to survive the crash of its standby, and how that is computed.
pub fn needed_right(facts: &Facts<'_>, t: &Timing) -> (Span, String) {
    let silence = t.dead_after.plus(t.interval).plus(t.round_trip);
    let base = format!("{} + {} + {}", t.dead_after, t.interval, t.round_trip);
    if !facts.both_shoot() {
        return (silence, format!("D + H + RTT = {base} = {silence}"));
    }
    let total = silence.plus(t.fence_bound).plus(facts.primary_waits(t.head_start));
    match facts.first {
        FirstShooter::Primary => (total, format!("D + H + RTT + F = {base} + {} = {total}", t.fence_bound)),
        FirstShooter::Standby => {
            let formula = format!("D + H + RTT + F + L = {base} + {} + {} = {total}", t.fence_bound, t.head_start);
            (total, formula)
        }
    }
}

/// M's lower bound in words and numbers, by its larger side.
pub fn margin_formula(t: &Timing, term: Span) -> String {
    let drift = drift(t, term);
    let orderly = t.pause.plus(t.stop_budget).plus(t.reset);
    match t.watchdog.filter(|w| *w > orderly) {
        Some(watchdog) => format!("2ρT + W = {drift} + {watchdog} = {}", drift.plus(watchdog)),
        None => {
            let terms = format!("{drift} + {} + {} + {}", t.pause, t.stop_budget, t.reset);
            format!("2ρT + P + S + R = {terms} = {}", drift.plus(orderly))
        }
    }
}

/// 2ρT, rounded up to a nanosecond: the two clocks may drift apart.
pub fn drift(t: &Timing, term: Span) -> Span {
    let product = u128::from(term.0) * 2 * u128::from(t.drift_ppm);
    Span(u64::try_from(product.div_ceil(1_000_000)).unwrap_or(Span::MAX.0))
}

fn join_wait(raw: &raw::Timing, t: &Timing, lines: &mut Vec<Line>) -> Span {
    let (value, origin, formula) = match raw.join_wait.value() {
        Some(given) => (given, Origin::Given, ""),
        None if t.join_fence => (t.boot_time.max(t.dead_after), Origin::Computed, "join.fence: the peer's boot time"),
        None if t.dead_after > JOIN_WAIT => (t.dead_after, Origin::Computed, "D"),
        None => (JOIN_WAIT, Origin::Default, ""),
    };
    lines.push(Line::new("", "join.wait", value.to_string(), origin, formula));
    value
}

pub fn round_up(span: Span, step: Span) -> Span {
    Span(span.0.div_ceil(step.0).saturating_mul(step.0))
}
