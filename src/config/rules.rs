//! Every refusal and every warning of protocol section 2 about times, each with its arithmetic.

use std::ops::Range;

use super::arithmetic::{interruption, waits_for_lease};
use super::checked::Timing;
use super::diagnostics::Finding;
use super::raw::{GuardProcess, Watchdog};
use super::timing::{self, Facts, round_up};
use super::value::{Field, Findings};
use crate::core::{Plan, Span};

/// Beyond this a take-over that waits for the lease is no longer what people call failover (protocol section 2).
const LONG_TERM: Span = Span::from_secs(30);

/// Below this, ρ is better than what the crystals of ordinary servers keep over their temperatures.
const SMALL_DRIFT_PPM: u32 = 100;

/// Remedies are rounded up to this, so that they look like what a person would write.
const STEP: Span = Span::from_ms(100);

/// Holds the parameters against all rules.
pub fn check(facts: &Facts<'_>, t: &Timing, f: &mut Findings) {
    refusals(facts, t).into_iter().flatten().for_each(|finding| f.push(finding));
    warnings(facts, t).into_iter().flatten().for_each(|finding| f.push(finding));
}

fn refusals(facts: &Facts<'_>, t: &Timing) -> [Option<Finding>; 10] {
    [
        margin_too_short(facts, t),
        watchdog_too_short(facts, t),
        watchdog_too_long(facts, t),
        right_too_short(facts, t),
        dead_after_too_short(facts, t),
        bound_too_short(facts),
        head_start_too_short(facts, t),
        join_wait_too_short(facts, t),
        join_fence_too_early(facts, t),
        join_fence_yielding(facts, t),
    ]
}

fn warnings(facts: &Facts<'_>, t: &Timing) -> [Option<Finding>; 8] {
    [
        standby_interrupts(facts, t),
        few_heartbeats(facts, t),
        head_start_tight(facts, t),
        long_wait_for_lease(facts, t),
        no_watchdog(facts),
        no_guard(facts),
        small_drift(facts, t),
        join_fence_idle(facts, t),
    ]
}

/// The place of the first of these that stands in the file.
fn place<const N: usize>(spans: [Option<&Range<usize>>; N]) -> Option<&Range<usize>> {
    spans.into_iter().flatten().next()
}

/// A duration as it would be written in the file.
fn written(span: Span) -> String {
    let ms = round_up(span, STEP).as_ms();
    match (ms / 1000, ms % 1000) {
        (0, ms) => format!("\"{ms}ms\""),
        (s, 0) => format!("\"{s}s\""),
        (s, ms) => format!("\"{s}.{}s\"", ms / 100),
    }
}

fn margin_too_short(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let orderly = t.pause.plus(t.stop_budget).plus(t.reset);
    let needed = timing::drift(t, t.term).plus(orderly);
    if t.margin >= needed {
        return None;
    }
    let label = format!("M = {}, at least {needed} is needed", t.margin);
    let finding = Finding::error("M is too short: the peer could start before this node has stopped");
    let finding = finding.at_some(place([facts.raw.margin.span(), facts.raw.term.span()]), label);
    let terms = format!("{} + {} + {} + {}", timing::drift(t, t.term), t.pause, t.stop_budget, t.reset);
    let finding = finding.note(format!("M >= 2ρT + P + S + R = {terms} = {needed}"));
    let finding = finding.note(format!("S = {}", facts.stop_budget.1));
    let advice = written(timing::drift(t, t.term).plus(timing::reserve(t)));
    let finding = finding.help(format!("write `lease.margin = {advice}`, or leave it out to have it computed"));
    Some(finding.help("or shorten the resources' `stop_timeout`, if they do stop faster"))
}

fn watchdog_span<'a>(facts: &'a Facts<'_>) -> Option<&'a Range<usize>> {
    facts.raw.watchdog.span()
}

fn watchdog_too_short(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let (watchdog, least) = (t.watchdog?, t.stop_budget.plus(t.interval));
    if watchdog >= least {
        return None;
    }
    let finding = Finding::error("W is too short: the watchdog would reset a node in the middle of an orderly stop");
    let finding = finding.at_some(watchdog_span(facts), format!("W = {watchdog}, at least {least} is needed"));
    let finding = finding.note(format!("W >= S + H = {} + {} = {least}", t.stop_budget, t.interval));
    let finding = finding.note("the watchdog is fed last at the lease's end, when the stop begins");
    Some(
        finding.help(format!("write `guard.watchdog = {}`, or \"auto\"", written(round_up(least, Span::from_secs(1))))),
    )
}

fn watchdog_too_long(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let (watchdog, drift) = (t.watchdog?, timing::drift(t, t.term));
    let most = t.margin.minus(drift);
    // An automatic W follows from S: where the margin is too short for S itself, that has been said.
    let follows = facts.raw.watchdog.value() == Some(Watchdog::Auto) && margin_too_short(facts, t).is_some();
    if watchdog <= most || follows {
        return None;
    }
    let needed = watchdog.plus(drift);
    let finding = Finding::error("W is too long: the peer could start before the watchdog has fired");
    let finding = finding.at_some(watchdog_span(facts), format!("W = {watchdog}, at most {most} is possible"));
    let finding = finding.note(format!("W <= M − 2ρT = {} − {drift} = {most}", t.margin));
    let finding =
        finding.help(format!("write `lease.margin = {}`, or leave it out to have it computed", written(needed)));
    let lower = t.stop_budget.plus(t.interval);
    Some(finding.help(format!("or shorten W, though not below S + H = {lower}")))
}

fn right_too_short(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let right = t.term.minus(t.margin);
    if t.term >= t.margin && right >= t.dead_after {
        return None;
    }
    let least = t.margin.plus(t.dead_after);
    let advice = timing::needed_right(facts, t).0.plus(t.margin);
    let finding = Finding::error("T − M is too short: a lease would end before its silence is noticed");
    let label = format!("T = {}, at least M + D = {least} is needed", t.term);
    let finding = finding.at_some(place([facts.raw.term.span(), facts.raw.margin.span()]), label);
    let difference = difference(t);
    let finding =
        finding.note(format!("T − M >= D = {}, but T − M = {} − {} = {difference}", t.dead_after, t.term, t.margin));
    let finding = finding.note(format!("M = {}", timing::margin_formula(t, t.term)));
    Some(finding.help(format!(
        "write `lease.term = {}`, which also outlasts a fence attempt, or leave it out to have it computed",
        written(advice)
    )))
}

/// T − M, also where that is below zero.
fn difference(t: &Timing) -> String {
    if t.term >= t.margin { t.term.minus(t.margin).to_string() } else { format!("−{}", t.margin.minus(t.term)) }
}

fn dead_after_too_short(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let least = t.interval.times(4).plus(t.round_trip.times(2));
    if t.dead_after >= least {
        return None;
    }
    let finding = Finding::error("D is too short: a few lost datagrams would look like a dead node");
    let span = place([facts.raw.dead_after.span(), facts.raw.interval.span(), facts.raw.round_trip.span()]);
    let finding = finding.at_some(span, format!("D = {}, at least {least} is needed", t.dead_after));
    let terms = format!("4 · {} + 2 · {}", t.interval, t.round_trip);
    let finding = finding.note(format!("D >= 4H + 2·RTT = {terms} = {least}"));
    let calm = t.interval.times(6).max(least);
    let finding = finding.help(format!("write `heartbeat.dead_after = {}`", written(calm)));
    Some(finding.help("or a shorter `heartbeat.interval`"))
}

fn bound_too_short(facts: &Facts<'_>) -> Option<Finding> {
    let (given, (needed, formula)) = (facts.raw.fence_bound.given()?, &facts.agents_bound);
    if given.value >= *needed || facts.plan == Plan::ConfirmOnly {
        return None;
    }
    let finding =
        Finding::error("F is less than its agents' limits: an attempt would be cut off before its verification");
    let finding = finding.at(&given.span, format!("F = {}, at least {needed} is needed", given.value));
    let finding = finding.note(format!("F >= {formula} = {needed}, the longer of both directions"));
    Some(finding.help("leave `fence.bound` out to have it computed, or shorten the agents' `timeout`"))
}

fn head_start_too_short(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    if t.head_start >= t.interval {
        return None;
    }
    let finding = Finding::error("L is too short: both nodes would shoot at the same moment");
    let span = place([facts.raw.head_start.span(), facts.raw.interval.span()]);
    let finding = finding.at_some(span, format!("L = {}, at least H = {} is needed", t.head_start, t.interval));
    let finding = finding.note(format!("L >= H = {}: the two ends date their silence up to H apart", t.interval));
    Some(finding.help(format!("write `fence.head_start = {}`: typical F + H", written(facts.typical.plus(t.interval)))))
}

fn join_wait_too_short(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    if t.join_wait >= t.dead_after {
        return None;
    }
    let finding = Finding::error("`join.wait` is too short: a fresh daemon would judge before silence means anything");
    let span = place([facts.raw.join_wait.span(), facts.raw.dead_after.span()]);
    let label = format!("join.wait = {}, at least D = {} is needed", t.join_wait, t.dead_after);
    let finding = finding.at_some(span, label);
    let finding = finding.note(format!("join.wait >= D = {}", t.dead_after));
    Some(
        finding
            .help(format!("write `join.wait = {}`, or leave it out", written(t.dead_after.max(Span::from_secs(10))))),
    )
}

fn join_fence_too_early(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    if !t.join_fence || t.join_wait >= t.boot_time {
        return None;
    }
    let finding = Finding::error("`join.fence` would shoot a peer that is still booting");
    let span = place([facts.raw.join_wait.span(), facts.raw.join_fence.span()]);
    let label = format!("join.wait = {}, at least {} is needed", t.join_wait, t.boot_time);
    let finding = finding.at_some(span, label);
    let finding = finding.note(format!("join.wait >= join.boot_time = {} where join.fence = true", t.boot_time));
    let finding = finding.note("after a power cut both nodes would shoot each other, once per boot");
    let finding = finding.help(format!("write `join.wait = {}`, or leave it out", written(t.boot_time)));
    Some(finding.help("or give the measured `join.boot_time`, from power-on until the daemon speaks"))
}

fn join_fence_yielding(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    if !t.join_fence || facts.plan != Plan::Yielding {
        return None;
    }
    let finding = Finding::error("`join.fence` is impossible with resource scope alone, without `take`");
    let finding = finding.at_some(facts.raw.join_fence.span(), "only an admitted standby ever shoots");
    let finding = finding.note("a restarted daemon may have been primary: it would revoke the rightful owner's access");
    Some(finding.help("remove `join.fence`, or add agents of scope \"node\""))
}

fn join_fence_idle(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    if !t.join_fence || facts.plan != Plan::ConfirmOnly {
        return None;
    }
    let finding = Finding::warning("`join.fence` has no effect without a fence agent");
    let finding = finding.at_some(facts.raw.join_fence.span(), "nothing to shoot with");
    Some(finding.help("remove it"))
}

fn standby_interrupts(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let ((needed, formula), right) = (timing::needed_right(facts, t), t.term.minus(t.margin));
    // Shorter than D is refused anyway; without agents that a primary may use, the plan itself says what happens.
    if !facts.agents_known || !facts.both_shoot() || right >= needed || right < t.dead_after {
        return None;
    }
    let gap = interruption(facts, t);
    let finding = Finding::warning(format!("a crash of the standby interrupts the service, for up to {gap}"));
    let span = place([facts.raw.term.span(), facts.raw.margin.span(), facts.raw.fence_bound.span()]);
    let finding = finding.at_some(span, format!("T − M = {right}, at least {needed} is needed"));
    let finding = finding.note(format!("T − M >= {formula}"));
    let finding = finding.note(format!(
        "the primary stops at T − M, fences, and starts again: S + F + start = {} + {} + {} = {gap}",
        t.stop_budget, t.fence_bound, facts.start_budget
    ));
    let advice = written(needed.plus(t.margin));
    Some(finding.help(format!("write `lease.term = {advice}`, or leave it out to have it computed")))
}

fn few_heartbeats(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let (calm, least) = (t.interval.times(6), t.interval.times(4).plus(t.round_trip.times(2)));
    if t.dead_after >= calm || t.dead_after < least {
        return None;
    }
    let finding = Finding::warning("D is tight: a short burst of loss looks like a dead node");
    let span = place([facts.raw.dead_after.span(), facts.raw.interval.span()]);
    let finding = finding.at_some(span, format!("D = {}, 6H = {calm} would be calm", t.dead_after));
    let finding = finding.note(format!("D >= 6H = 6 · {} = {calm}", t.interval));
    Some(finding.help(format!("write `heartbeat.dead_after = {}`, or a shorter `heartbeat.interval`", written(calm))))
}

fn head_start_tight(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    let calm = facts.typical.plus(t.interval);
    if !facts.both_shoot() || t.head_start >= calm || t.head_start < t.interval {
        return None;
    }
    let finding = Finding::warning("L is tight: when the links fail, both nodes may shoot each other");
    let span = place([facts.raw.head_start.span(), facts.raw.interval.span()]);
    let finding = finding.at_some(span, format!("L = {}, {calm} would be enough", t.head_start));
    let finding = finding.note(format!("L >= typical F + H = {} + {} = {calm}", facts.typical, t.interval));
    let finding = finding.help(format!("write `fence.head_start = {}`", written(calm)));
    Some(finding.help("or write the measured `typical` at the agents: how long it takes until an `off` has landed"))
}

fn long_wait_for_lease(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    if t.term <= LONG_TERM || !waits_for_lease(facts.plan, t) || facts.plan == Plan::ConfirmOnly {
        return None;
    }
    let finding =
        Finding::warning(format!("every take-over takes at least {}: it waits for the end of the lease", t.term));
    let span = place([facts.raw.term.span(), facts.raw.promote_after.span()]);
    let finding = finding.at_some(span, format!("T = {}", t.term));
    let finding = finding.note(format!("T − M >= {}", timing::needed_right(facts, t).1));
    let finding = finding.note(format!("M >= {}", timing::margin_formula(t, t.term)));
    let finding = finding.help("shorten the agents' `timeout` and the resources' `stop_timeout`, from which T follows");
    let shorter = "or write a shorter `lease.term`, if a crash of the standby may interrupt the service";
    let finding = finding.help(shorter);
    Some(match facts.plan {
        Plan::Node { .. } => finding.help("or `promote.after = \"fence\"`, if the fence devices can be trusted"),
        Plan::Exclusive | Plan::Yielding | Plan::ConfirmOnly => finding,
    })
}

fn no_watchdog(facts: &Facts<'_>) -> Option<Finding> {
    let span = match &facts.raw.watchdog {
        Field::Absent => None,
        Field::Given(at) if at.value == Watchdog::None => Some(&at.span),
        Field::Given(_) | Field::Bad => return None,
    };
    let finding = Finding::warning("no hardware watchdog: a node whose kernel hangs is not reset");
    let finding = finding.at_some(span, "none");
    let finding = finding.note("its lease then ends without anybody who enforces it; only fencing helps");
    Some(finding.help("write `watchdog = \"auto\"` in [guard], on machines that have one (`wdctl` shows it)"))
}

fn no_guard(facts: &Facts<'_>) -> Option<Finding> {
    let at = facts.raw.guard_process.given().filter(|at| at.value == GuardProcess::None)?;
    let finding = Finding::warning("no guard: a daemon that is dead, stopped or starved enforces nothing");
    let finding = finding.at(&at.span, "none");
    let finding = finding.note("the resources then go on after the end of the lease; only fencing helps");
    Some(finding.help("remove `guard.process`, and enable leasehold-guard.service on both nodes"))
}

fn small_drift(facts: &Facts<'_>, t: &Timing) -> Option<Finding> {
    if t.drift_ppm >= SMALL_DRIFT_PPM {
        return None;
    }
    let finding = Finding::warning("ρ is optimistic: clocks of servers drift by more");
    let label = format!("ρ = {} ppm, at least {SMALL_DRIFT_PPM} is usual", t.drift_ppm);
    let finding = finding.at_some(facts.raw.drift_ppm.span(), label);
    let cost = timing::drift(&Timing { drift_ppm: 200, ..*t }, t.term);
    let finding = finding.note(format!("crystals keep 20 to 100 ppm; 200 ppm cost 2ρT = {cost} of the margin here"));
    Some(finding.help("remove `lease.drift_ppm`: the default is 200"))
}
