//! The safety case as data.

use serde::Serialize;

use super::advice::{self, Advice};
use super::assumptions::{self as a, Assumption, GUARANTEES, Id};
use super::limits;
use super::protection::{self, Carrier};
use crate::config::arithmetic::{Bounds, Reach};
use crate::config::{Checked, Config, GuardProcess};
use crate::control::Stalls;
use crate::core::{DataModel, Plan, Span};

/// Everything that `explain` says about one configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Case {
    pub cluster: String,
    pub nodes: [String; 2],
    pub data: &'static str,
    /// Not safe without an operator's truth: no fencing.
    pub safe_by_itself: bool,
    pub rests_on: String,
    pub unprotected: Vec<String>,
    pub resources: Vec<ResourceCase>,
    pub assumptions: Vec<Assumed>,
    pub bounds: Vec<Bound>,
    /// How late daemon and guard of this machine were woken, where one runs that answers: beside what the margin allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Stalls>,
    pub partition: String,
    /// What makes both nodes act.
    pub breaks: Vec<String>,
    pub stops_by_design: Vec<Stop>,
    pub better: Vec<Advice>,
    /// The titles of the checker's warnings.
    pub warnings: Vec<String>,
}

/// One resource of the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceCase {
    pub name: String,
    pub protections: Vec<Carrier>,
    pub assumes: Vec<Id>,
    pub meanwhile: String,
}

/// Whether an assumption is known to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// Nothing in the file speaks against it; only the operator can know.
    Assumed,
    /// The configuration, or this version of the program, does not meet it.
    NotMet,
}

/// An assumption that this configuration makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Assumed {
    pub id: Id,
    pub held: Held,
    pub text: &'static str,
    pub else_lost: &'static str,
    /// Why it is not met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The guarantees that need it.
    pub needed_by: Vec<Id>,
}

/// A length of time with its derivation. Milliseconds; `null`: no bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bound {
    pub name: &'static str,
    pub typical_ms: Option<u64>,
    pub worst_ms: Option<u64>,
    pub arithmetic: String,
}

/// A failure after which nobody serves, on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stop {
    pub when: String,
    pub then: String,
}

impl Case {
    pub fn of(checked: &Checked) -> Case {
        let config = &checked.config;
        let right = checked.arithmetic.bounds.right;
        let resources: Vec<ResourceCase> = config.resources.iter().map(|r| resource(config, r, right)).collect();
        let stops = limits::stops_by_design(checked).into_iter().map(|(when, then)| Stop { when, then });
        Case {
            cluster: config.cluster.clone(),
            nodes: [config.nodes[0].name.clone(), config.nodes[1].name.clone()],
            data: match config.data {
                DataModel::Shared => "shared",
                DataModel::Replicated => "replicated",
            },
            safe_by_itself: config.fence.plan != Plan::ConfirmOnly,
            rests_on: limits::verdict(config),
            unprotected: limits::unprotected(config),
            assumptions: assumed(checked, &resources),
            resources,
            bounds: bounds(config, &checked.arithmetic.bounds),
            lateness: None,
            partition: limits::partition(checked),
            breaks: limits::breaks(config),
            stops_by_design: stops.collect(),
            better: advice::of(checked),
            warnings: checked.warnings.findings().iter().map(|f| f.title.clone()).collect(),
        }
    }
}

fn resource(config: &Config, resource: &crate::config::Resource, right: Span) -> ResourceCase {
    ResourceCase {
        name: resource.name.clone(),
        protections: protection::of(config, resource),
        assumes: protection::assumes(config, resource),
        meanwhile: protection::meanwhile(config, right),
    }
}

/// What any resource assumes for safety, and what the pair as a whole assumes to go on.
fn assumed(checked: &Checked, resources: &[ResourceCase]) -> Vec<Assumed> {
    let mut ids: Vec<Id> = resources.iter().flat_map(|r| r.assumes.iter().copied()).collect();
    if checked.config.fence.plan != Plan::ConfirmOnly {
        ids.extend([a::DEVICES_REACHABLE, a::SETTLE_HOLDS]);
    }
    if protection::waits_for_lease(&checked.config) {
        ids.extend([a::HARDWARE_WATCHDOG, a::DRIFT, a::PAUSES, a::STOPS, a::GUARD_RUNS]);
    }
    ids.sort();
    ids.dedup();
    ids.into_iter().map(|id| judge(checked, a::assumption_of(id))).collect()
}

fn judge(checked: &Checked, assumption: &'static Assumption) -> Assumed {
    let because = not_met(checked, assumption.id);
    Assumed {
        id: assumption.id,
        held: if because.is_some() { Held::NotMet } else { Held::Assumed },
        text: assumption.text,
        else_lost: assumption.else_lost,
        because,
        needed_by: GUARANTEES.iter().filter(|g| g.assumes.contains(&assumption.id)).map(|g| g.id).collect(),
    }
}

/// Why the file, or this version, does not meet an assumption.
fn not_met(checked: &Checked, id: Id) -> Option<String> {
    let nodes = |hit: [bool; 2]| -> Option<String> {
        let names = checked.config.nodes.iter().zip(hit).filter(|(_, hit)| *hit).map(|(n, _)| n.name.as_str());
        let names = names.collect::<Vec<_>>().join(" and ");
        (!names.is_empty()).then_some(names)
    };
    match id {
        a::HARDWARE_WATCHDOG => checked.config.timing.watchdog.is_none().then(|| "no hardware watchdog".into()),
        a::GUARD_RUNS => match checked.config.guard.process {
            GuardProcess::Required => None,
            GuardProcess::None => Some("no guard: `process = \"none\"` in [guard]".into()),
        },
        a::PAUSES => nodes(checked.surroundings.is_virtual)
            .map(|names| format!("virtual: {names}; a hypervisor may pause its guest unseen, for any time")),
        a::DEVICES_REACHABLE => nodes(checked.surroundings.host_power)
            .map(|names| format!("the only power switch of {names} is a BMC on its own power"))
            .or_else(|| {
                let shared = checked.surroundings.on_link_path.join(", ");
                (!shared.is_empty()).then(|| format!("{shared} is reached over the network of every link"))
            }),
        Id::A(_) | Id::G(_) | Id::M(_) => None,
    }
}

fn bounds(config: &Config, b: &Bounds) -> Vec<Bound> {
    let t = &config.timing;
    let exact = |name, span: Span, arithmetic: String| Bound {
        name,
        typical_ms: Some(span.as_ms()),
        worst_ms: Some(span.as_ms()),
        arithmetic,
    };
    let reach = |name, reach: &Reach| Bound {
        name,
        typical_ms: Some(reach.typical.as_ms()),
        worst_ms: Some(reach.worst.as_ms()),
        arithmetic: reach.formula.clone(),
    };
    let mut list = vec![exact("doubt", t.dead_after.half(), format!("D / 2 = {} / 2", t.dead_after))];
    list.push(reach("silence", &b.silence));
    if b.head_start > Span::ZERO {
        list.push(exact("head start", b.head_start, head_start(config.fence.plan).into()));
    }
    list.push(match &b.fence {
        Some(fence) => reach("fence", fence),
        None => unbounded("fence", "F is not finite: an operator confirms"),
    });
    list.extend(b.lease.as_ref().map(|lease| reach("lease ended", lease)));
    list.push(unbounded("promote", "one synced write of the record, mostly milliseconds; a stalled disk delays it"));
    list.extend(b.begin.as_ref().map(begin));
    list.push(start(b));
    list.extend(b.begin.as_ref().map(|begin| served(begin, b.start)));
    list.push(exact("right", b.right, format!("T − M = {} − {}; M >= {}", t.term, t.margin, b.margin)));
    list
}

fn head_start(plan: Plan) -> &'static str {
    match plan {
        Plan::Node { .. } | Plan::Exclusive => "L, within the silence: the primary shoots first",
        Plan::Yielding => "L, within the silence: kept although only the standby ever shoots",
        Plan::ConfirmOnly => "L, within the silence: kept although nobody shoots",
    }
}

fn unbounded(name: &'static str, arithmetic: &str) -> Bound {
    Bound { name, typical_ms: None, worst_ms: None, arithmetic: arithmetic.into() }
}

/// Nobody but the operator knows how long the group usually takes.
fn start(b: &Bounds) -> Bound {
    let arithmetic = "the sum of the group's `start_timeout`; usually much less".to_string();
    Bound { name: "start", typical_ms: None, worst_ms: Some(b.start.as_ms()), arithmetic }
}

fn begin(begin: &Reach) -> Bound {
    let arithmetic = format!("{}, if the first attempt succeeds; each further one adds F and up to L", begin.formula);
    let (typical_ms, worst_ms) = (Some(begin.typical.as_ms()), Some(begin.worst.as_ms()));
    Bound { name: "begins", typical_ms, worst_ms, arithmetic }
}

fn served(begin: &Reach, start: Span) -> Bound {
    let worst_ms = Some(begin.worst.plus(start).as_ms());
    Bound { name: "served", typical_ms: None, worst_ms, arithmetic: "from the crash: begins + promote + start".into() }
}
