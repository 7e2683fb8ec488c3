//! Where the case ends: who wins a partition, what stops the service by design, and what nothing protects.

use super::protection::names;
use crate::config::{Checked, Config};
use crate::core::{DataModel, FirstShooter, NodeId, Plan, PromoteAfter, Scope};

/// In one paragraph: what safety rests on, and where it does not rest on fencing.
pub fn verdict(config: &Config) -> String {
    match config.fence.plan {
        Plan::Node { .. } => "Safety rests on fencing, not on timing. The standby starts only after the old primary's power was read \
                              off, after the old primary itself has stopped and said so, or on the word of an operator. If every clock, pause and timeout here \
                              is wrong, the service may stop or start late, but it is not active twice."
            .into(),
        Plan::Exclusive => "Safety rests on fencing, not on timing, for what lies in the store: one atomic `take` there decides who \
                            has access. The loser still runs, so for everything else it does, safety rests on timing: on the lease."
            .into(),
        Plan::Yielding => "Safety rests on fencing AND on timing: on the revocation by the standby, and on the old primary stopping \
                           with its lease. The old primary still runs. Where timing fails, only what is revoked stays protected."
            .into(),
        Plan::ConfirmOnly => "This pair is NOT SAFE by itself: there is no fencing. Safety rests on an operator's word, and on timing: \
                              on the lease of a primary that is cut off."
            .into(),
    }
}

/// What nothing protects, in so many words.
pub fn unprotected(config: &Config) -> Vec<String> {
    let bare: Vec<&str> = config.resources.iter().filter(|r| !r.checks_token).map(|r| r.name.as_str()).collect();
    if bare.is_empty() {
        return Vec::new();
    }
    let bare = bare.join(", ");
    match config.fence.plan {
        Plan::Node { .. } => Vec::new(),
        Plan::Exclusive | Plan::Yielding => vec![format!(
            "{bare}: what reaches clients or an external service without passing {} has no token check and no revocation: once \
             the lease fails, nothing here protects it",
            names(config, Scope::Resource)
        )],
        Plan::ConfirmOnly => vec![
            format!("{bare}: no token check and no revocation: after a wrong confirmation, nothing here protects it"),
            "a primary that acts alone (its standby had left, or was frozen) is bound by no lease: a wrong confirmation then makes \
             both nodes act at once, for certain"
                .into(),
        ],
    }
}

/// What makes both nodes act, although everything here works as it should.
pub fn breaks(config: &Config) -> Vec<String> {
    let lies = "a fence device reports a success that is none (A1), or switches another machine (A15)";
    let device = match (config.fence.plan, config.timing.promote_after) {
        (Plan::ConfirmOnly, _) => None,
        (Plan::Node { .. }, PromoteAfter::Fence) => Some(format!(
            "{lies}: both act at once; `promote.after = \"fence+lease\"` would leave the lease between them"
        )),
        (Plan::Node { .. } | Plan::Exclusive | Plan::Yielding, _) => {
            Some(format!("{lies}: only the lease is left, and a primary that acted alone has none"))
        }
    };
    let wrong = "an operator confirms wrongly (A2): the start waits for the end of the lease, so a primary that is only cut off has \
                 stopped by then if timing holds; one that acted alone has no lease, and both act";
    let starter =
        "something else starts a resource on the standby (A18), or one is reported as stopped and is not (A19)";
    let timing = "the old primary stands still unseen by its clock, such as by its hypervisor (A5), its clock drifts (A4), its stop takes \
                  longer (A6), or neither its daemon nor its guard runs (A7): it acts after its lease, wherever nothing is revoked";
    let timing = (!matches!(config.fence.plan, Plan::Node { .. })).then(|| timing.to_string());
    device.into_iter().chain(timing).chain([wrong.to_string(), starter.to_string()]).collect()
}

/// Both nodes live, all links cut.
pub fn partition(checked: &Checked) -> String {
    let (config, bounds) = (&checked.config, &checked.arithmetic.bounds);
    let t = &config.timing;
    let lost = "if neither node reaches its fence devices, the primary stops with its lease and nobody serves";
    match config.fence.plan {
        Plan::Node { .. } | Plan::Exclusive => {
            let (first, second) = match config.fence.first {
                FirstShooter::Primary => ("primary", "standby"),
                FirstShooter::Standby => ("standby", "primary"),
            };
            let break_of = match (config.fence.first, bounds.interruption) {
                (FirstShooter::Primary, None) => " It goes on without a break.",
                (FirstShooter::Primary, Some(_)) => {
                    " Its lease may end before its attempt does: then it stops, and starts again with the proof."
                }
                (FirstShooter::Standby, _) => "",
            };
            format!(
                "The {first} wins: it fences after {} of silence, the {second} only {} later, if it still can.{break_of} A node that \
                 cannot reach its fence devices loses to one that can; {lost}.",
                t.dead_after, t.head_start
            )
        }
        Plan::Yielding => format!(
            "The standby wins, if the primary has admitted it: it revokes after {} of silence and starts when the lease is over. The \
             primary never shoots; it stops {} after its last renewal.",
            bounds.silence.typical, bounds.right
        ),
        Plan::ConfirmOnly => format!(
            "Nobody wins: the primary stops {} after its last renewal, and both wait for each other or for an operator.",
            bounds.right
        ),
    }
}

/// A failure, and why the service then stops although a machine is left.
pub fn stops_by_design(checked: &Checked) -> Vec<(String, String)> {
    let config = &checked.config;
    let mut stops = of_plan(checked);
    stops.extend(host_power(checked));
    stops.extend(replicated(config));
    stops.extend(of_every_pair(config));
    stops
}

fn of_plan(checked: &Checked) -> Vec<(String, String)> {
    let (config, bounds) = (&checked.config, &checked.arithmetic.bounds);
    let right = bounds.right;
    match config.fence.plan {
        Plan::Node { .. } => {
            let devices = "all fence devices of the silent node fail, or cannot be reached";
            let gap = bounds.interruption.map(|gap| {
                let then =
                    format!("its lease is shorter than a fence attempt: it stops, and starts again, up to {gap} later");
                ("the standby crashes".to_string(), then)
            });
            let devices =
                (devices.to_string(), "the survivor tries again and again, until an operator confirms".to_string());
            gap.into_iter().chain([devices]).collect()
        }
        Plan::Exclusive => vec![(
            "a primary that acts alone dies before it has re-admitted its peer".into(),
            "the store knows a token that the peer has not granted: its `take` is refused until an operator confirms"
                .into(),
        )],
        Plan::Yielding => vec![
            (
                "the standby is lost without having left (`lone_primary = \"stop\"`)".into(),
                format!(
                    "the primary stops {right} after its last renewal: it must not shoot, and its peer may be taking over"
                ),
            ),
            (
                "the standby's daemon restarts while the primary is silent".into(),
                "it has lost the right to shoot: it waits for contact or an operator".into(),
            ),
        ],
        Plan::ConfirmOnly => vec![(
            "either node crashes, or all links fail".into(),
            format!("the standby waits for `leasehold confirm-fenced`; a primary stops {right} after its last renewal"),
        )],
    }
}

fn host_power(checked: &Checked) -> Vec<(String, String)> {
    let hit = [NodeId::First, NodeId::Second].into_iter().filter(|id| checked.surroundings.host_power[id.index()]);
    let then = "its BMC shares the power of its host and is silent: nothing is proven, no take-over until an operator confirms";
    hit.map(|id| (format!("{} loses all power", checked.config.node(id).name), then.into())).collect()
}

fn replicated(config: &Config) -> Vec<(String, String)> {
    if config.data != DataModel::Replicated {
        return Vec::new();
    }
    vec![
        (
            "both nodes lose power, and one comes back".into(),
            "it may hold the older replica: it waits for its peer or an operator, even where the peer's power reads off, unless its \
             record says that it was the last to act alone"
                .into(),
        ),
        (
            "the primary fails while the standby's replica is behind".into(),
            "a standby whose `ready` says no takes nothing over: old data are worse than none".into(),
        ),
    ]
}

fn of_every_pair(config: &Config) -> Vec<(String, String)> {
    let never_heard = "a node boots, hears nobody, and its peer's power is not read off";
    let waits = match (config.fence.plan, config.timing.join_fence) {
        (Plan::Node { .. } | Plan::Exclusive, false) => {
            Some("it may be the one that is cut off: it waits (`join.fence = false`)")
        }
        (Plan::Node { .. } | Plan::Exclusive, true) => None,
        (Plan::Yielding | Plan::ConfirmOnly, _) => Some("it waits for its peer or an operator"),
    };
    let always = [
        ("the primary fails while the pair is frozen", "the standby was told not to take over"),
        ("the primary fails while the standby is not ready or has left", "nobody could serve"),
        (
            "a node has lost its record, or runs an old copy of it",
            "it starts nothing by a fence before contact or an operator",
        ),
        ("the two configurations differ", "neither takes over: what one calls safe the other may not"),
        ("the disk of the survivor fails", "a promotion that cannot be recorded is none"),
    ];
    let waits = waits.map(|then| (never_heard, then));
    waits.into_iter().chain(always).map(|(when, then)| (when.to_string(), then.to_string())).collect()
}
