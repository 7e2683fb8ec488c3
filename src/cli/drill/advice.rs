//! What a drill's figures say about the times of the configuration. Pure.

use crate::cli::page::short;
use crate::config::{Agent, Config};
use crate::control::Drill;
use crate::core::{NodeId, Span};

/// A typical time is one that a measured one may exceed by a quarter: the next fence is never just as long.
const TYPICAL_SLACK: (u64, u64) = (5, 4);
/// A fence that used so much of its limit fails on a bad day: half of it.
const SHARE_OF_LIMIT: u64 = 2;
/// Advised times are rounded up to this, so that nobody takes them for more exact than one measurement is.
const ROUND: u64 = 250;

/// A time of the configuration that does not fit what was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub text: String,
    pub remedy: String,
}

/// What was measured, step by step, each from the decision.
pub fn figures(drill: &Drill) -> Vec<Vec<String>> {
    let steps = [
        ("verified off after", drill.off_ms),
        ("told to go on after", drill.on_ms),
        ("heard again after", drill.contact_ms),
        ("ready standby after", drill.ready_ms),
    ];
    steps.into_iter().map(|(step, ms)| vec![format!("  {step}"), ms.map_or("-".to_owned(), short)]).collect()
}

/// What to change, the most dangerous first.
pub fn advice(drill: &Drill, config: &Config) -> Vec<Advice> {
    let Some(target) = config.node_named(&drill.node) else { return Vec::new() };
    let off = drill.off_ms.map(Span::from_ms);
    let boot = drill.contact_ms.zip(drill.on_ms).map(|(heard, told)| Span::from_ms(heard.saturating_sub(told)));
    [
        off.and_then(|off| bound(off, config)),
        off.and_then(|off| settle(off, config)),
        off.and_then(|off| typical(off, config, target)),
        boot.and_then(|boot| boot_time(boot, config)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn bound(off: Span, config: &Config) -> Option<Advice> {
    let limit = config.timing.fence_bound;
    (off.times(SHARE_OF_LIMIT) > limit).then(|| Advice {
        text: format!("the fence took {off} of at most {limit} (F): on a bad day it will not end in time"),
        remedy: format!("raise `timeout` of the agents so that F is at least {}", rounded(off.times(SHARE_OF_LIMIT))),
    })
}

fn settle(off: Span, config: &Config) -> Option<Advice> {
    let settle = config.timing.settle;
    (settle < off).then(|| Advice {
        text: format!("settle is {settle}, and the device took {off}: an `off` may land after a node was let in again"),
        remedy: format!("set `settle` of the agents to at least {}", rounded(off)),
    })
}

/// The first level decides how long a fence usually takes.
fn typical(off: Span, config: &Config, target: NodeId) -> Option<Advice> {
    let first = config.agents_against(target).map(|a| a.level).min()?;
    let slowest: &Agent = config.agents_against(target).filter(|a| a.level == first).max_by_key(|a| a.typical)?;
    let (typical, (num, den)) = (slowest.typical, TYPICAL_SLACK);
    if off.times(den) <= typical.times(num) {
        return None;
    }
    let (wanted, t) = (rounded(off), &config.timing);
    let least = wanted.plus(t.interval);
    let head_start = if t.head_start < least {
        format!(", and `fence.head_start` (L, now {}) to at least {least}, or both nodes may shoot", t.head_start)
    } else {
        String::new()
    };
    Some(Advice {
        text: format!("typical of {} is set to {typical}, measured {off}", slowest.name),
        remedy: format!("set `typical` to {wanted}{head_start}"),
    })
}

fn boot_time(boot: Span, config: &Config) -> Option<Advice> {
    let set = config.timing.boot_time;
    (boot > set).then(|| Advice {
        text: format!("join.boot_time is set to {set}; from the order to go on to the first heartbeat took {boot}"),
        remedy: format!("set `join.boot_time` to {}; with `join.fence`, `join.wait` as well", rounded(boot.times(2))),
    })
}

fn rounded(span: Span) -> Span {
    Span::from_ms(span.as_ms().div_ceil(ROUND) * ROUND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::DrillState;

    const FILE: &str = r#"
[cluster]
name = "estuary"
key = "/etc/leasehold/key"
data = "shared"
[[node]]
name = "heron"
[[node]]
name = "plover"
[[link]]
name = "lan"
addresses = { heron = "192.0.2.1", plover = "192.0.2.2" }
[heartbeat]
interval = "250ms"
dead_after = "1500ms"
[fence]
head_start = "1500ms"
[join]
boot_time = "60s"
[[fence.agent]]
name = "bmc-heron"
target = "heron"
kind = "exec"
scope = "node"
program = "/bin/fence"
timeout = "10s"
typical = "750ms"
settle = "5s"
[[fence.agent]]
name = "bmc-plover"
target = "plover"
kind = "exec"
scope = "node"
program = "/bin/fence"
timeout = "10s"
typical = "750ms"
settle = "5s"
"#;

    fn advised(off_ms: u64, boot_ms: u64) -> Vec<String> {
        let config = crate::config::parse("sample", FILE).unwrap_or_else(|e| panic!("{e}")).config;
        let at = jiff::Timestamp::UNIX_EPOCH;
        let on_ms = off_ms + 6000;
        let drill = Drill {
            node: "plover".to_owned(),
            at,
            state: DrillState::Ready,
            off_ms: Some(off_ms),
            on_ms: Some(on_ms),
            contact_ms: Some(on_ms + boot_ms),
            ready_ms: Some(on_ms + boot_ms + 1000),
        };
        advice(&drill, &config).into_iter().map(|a| format!("{} -> {}", a.text, a.remedy)).collect()
    }

    #[test]
    fn what_fits_needs_no_word() {
        assert_eq!(advised(900, 40_000), Vec::<String>::new());
    }

    #[test]
    fn a_slow_fence_gives_a_typical_time_and_a_head_start_that_covers_it() {
        let told = advised(1900, 40_000);
        let wanted = "typical of bmc-plover is set to 750ms, measured 1.900s -> set `typical` to 2s, and \
                      `fence.head_start` (L, now 1.500s) to at least 2.250s, or both nodes may shoot";
        assert_eq!(told, [wanted]);
    }

    #[test]
    fn a_fence_that_used_half_its_limit_comes_first() {
        let told = advised(7000, 40_000);
        assert!(told[0].contains("of at most 10s (F)") && told[0].contains("at least 14s"), "{told:?}");
        assert!(told[1].starts_with("settle is 5s, and the device took 7s"), "{told:?}");
    }

    #[test]
    fn a_boot_longer_than_assumed_is_told() {
        let told = advised(900, 75_000);
        assert!(told.len() == 1 && told[0].contains("set `join.boot_time` to 150s"), "{told:?}");
    }
}
