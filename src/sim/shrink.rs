//! Makes a failing world short: what is not needed for the failure goes, one thing at a time.

use crate::core::Command;

use super::action::{Action, Operator};
use super::judges::Guarantee;
use super::setup::Setup;
use super::swarm::{Case, run};

/// The shortest schedule found that still breaks this guarantee, on a setup as near to the default as possible.
pub fn shrink(case: &Case, broken: Guarantee) -> Case {
    let fails = |c: &Case| run(c).violations.iter().any(|v| v.guarantee == broken);
    let mut best = case.clone();
    if broken != Guarantee::L2 {
        let without = Case { heals: false, ..best.clone() };
        if fails(&without) {
            best = without;
        }
    }
    shorten(&mut best, broken);
    while drop_actions(&mut best, &fails) {}
    plain_setup(&mut best, &fails);
    while drop_actions(&mut best, &fails) {}
    best
}

/// Nothing after the failure matters to a breach of safety.
fn shorten(best: &mut Case, broken: Guarantee) {
    if broken == Guarantee::L2 {
        return;
    }
    let first = run(best).violations.iter().find(|v| v.guarantee == broken).map(|v| v.at);
    if let Some(at) = first.filter(|at| *at > 0) {
        best.until = (at / 1_000_000_000 + 1) * 1_000_000_000;
        let until = best.until;
        best.schedule.retain(|(t, _)| *t <= until);
    }
}

/// One pass over the schedule, last action first; true when something went.
fn drop_actions(best: &mut Case, fails: &impl Fn(&Case) -> bool) -> bool {
    let before = best.schedule.len();
    let mut half = before / 2;
    while half > 1 {
        drop_runs(best, half, fails);
        half /= 2;
    }
    drop_runs(best, 1, fails);
    best.schedule.len() < before
}

fn drop_runs(best: &mut Case, length: usize, fails: &impl Fn(&Case) -> bool) {
    let mut end = best.schedule.len();
    while end > 0 {
        let start = end.saturating_sub(length);
        let mut shorter = best.clone();
        let heals = best.heals;
        let mut place = 0..;
        shorter.schedule.retain(|(_, action)| {
            let dropped = place.next().is_some_and(|i| (start..end).contains(&i));
            !dropped || (heals && is_part_of_healing(action))
        });
        if shorter.schedule.len() < best.schedule.len() && fails(&shorter) {
            *best = shorter;
        }
        end = start;
    }
}

/// Without these a pair that never was whole would pass for the failure.
fn is_part_of_healing(action: &Action) -> bool {
    matches!(action, Action::Start(_) | Action::Mend)
        || matches!(action, Action::Operator { operator: Operator::Plain(Command::ClearAlarms | Command::Thaw), .. })
}

/// Each line of the setup that is not needed goes back to the default.
fn plain_setup(best: &mut Case, fails: &impl Fn(&Case) -> bool) {
    for skipped in (0..best.setup.lines().len()).rev() {
        let lines = best.setup.lines();
        let mut setup = Setup::default();
        let kept =
            lines.iter().enumerate().filter(|(i, _)| *i != skipped).flat_map(|(_, l)| l.split_whitespace().skip(1));
        for (key, value) in kept.filter_map(|word| word.split_once('=')) {
            if setup.set(key, value).is_err() {
                return;
            }
        }
        let plainer = Case { setup, ..best.clone() };
        if plainer.setup.broken_rule().is_none() && fails(&plainer) {
            *best = plainer;
        }
    }
}
