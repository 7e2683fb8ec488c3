//! Which protection carries the weight, by fence plan and resource.

use serde::Serialize;

use super::assumptions::{self as a, Id};
use crate::config::{Agent, AgentKind, Config, Resource};
use crate::core::{Plan, PromoteAfter, Scope};

/// What keeps a resource from being active twice, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    PowerFencing,
    Revocation,
    Token,
    LeaseOnly,
}

/// A protection, and whether it is the one that everything rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Carrier {
    pub protection: Protection,
    pub carries: bool,
    pub how: String,
}

impl Protection {
    pub fn words(self) -> &'static str {
        match self {
            Protection::PowerFencing => "power fencing",
            Protection::Revocation => "revocation",
            Protection::Token => "token",
            Protection::LeaseOnly => "lease only",
        }
    }
}

/// The protections of one resource, the one that carries the weight first.
pub fn of(config: &Config, resource: &Resource) -> Vec<Carrier> {
    let mut found = vec![carrier(config)];
    if let Plan::Node { access: true } = config.fence.plan {
        let how = format!("{} besides, for what it covers", names(config, Scope::Resource));
        found.push(Carrier { protection: Protection::Revocation, carries: false, how });
    }
    if resource.checks_token {
        let carries = config.fence.plan == Plan::ConfirmOnly;
        let how = "the resource refuses writes of an older token, whatever else failed".to_string();
        found.push(Carrier { protection: Protection::Token, carries, how });
    }
    if found.iter().filter(|c| c.carries).count() > 1 {
        found.retain(|c| c.protection != Protection::LeaseOnly);
    }
    found
}

fn carrier(config: &Config) -> Carrier {
    let (protection, how) = match config.fence.plan {
        Plan::Node { .. } => {
            let how = format!("{}: power is read off before the other node starts", names(config, Scope::Node));
            (Protection::PowerFencing, how)
        }
        Plan::Exclusive => {
            let how = format!("{}: the store itself decides, by one atomic `take`", names(config, Scope::Resource));
            (Protection::Revocation, how)
        }
        Plan::Yielding => {
            let how = format!("{}, and the end of the lease: both are needed", names(config, Scope::Resource));
            (Protection::Revocation, how)
        }
        Plan::ConfirmOnly => (Protection::LeaseOnly, "an operator's word, and the end of the lease".to_string()),
    };
    Carrier { protection, carries: true, how }
}

/// The agents of this scope that act by themselves.
pub fn names(config: &Config, scope: Scope) -> String {
    let acts = |a: &&Agent| a.scope == scope && !matches!(a.kind, AgentKind::Manual);
    config.fence.agents.iter().filter(acts).map(|a| a.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether a start waits for the end of the peer's lease.
pub fn waits_for_lease(config: &Config) -> bool {
    match config.fence.plan {
        Plan::Node { .. } => config.timing.promote_after == PromoteAfter::FenceAndLease,
        Plan::Exclusive | Plan::Yielding | Plan::ConfirmOnly => true,
    }
}

/// What safety assumes here, in the order of the ids.
pub fn assumes(config: &Config, resource: &Resource) -> Vec<Id> {
    let lease = [a::HARDWARE_WATCHDOG, a::DRIFT, a::PAUSES, a::STOPS, a::GUARD_RUNS];
    let of_plan: Vec<Id> = match config.fence.plan {
        Plan::Node { .. } => vec![a::DEVICES_TELL_THE_TRUTH, a::TARGETS_RIGHT],
        Plan::Exclusive => vec![a::DEVICES_TELL_THE_TRUTH, a::TAKE_IS_ATOMIC, a::SCOPE_COVERS, a::TARGETS_RIGHT],
        Plan::Yielding => vec![a::DEVICES_TELL_THE_TRUTH, a::SCOPE_COVERS, a::TARGETS_RIGHT],
        Plan::ConfirmOnly => vec![],
    };
    let mut ids = of_plan;
    if !matches!(config.fence.plan, Plan::Node { .. }) {
        ids.extend(lease);
    }
    if resource.checks_token {
        ids.push(a::TOKEN_CHECKED);
    }
    if config.data == crate::core::DataModel::Replicated {
        ids.push(a::READY_IS_TRUE);
    }
    ids.extend([a::OPERATORS_TELL_THE_TRUTH, a::KEY_SECRET, a::DISK_HONEST, a::RUN_TIME_IS_VOLATILE]);
    ids.extend([a::NO_OTHER_STARTER, a::STOPPED_IS_TRUE]);
    ids.sort();
    ids
}

/// Whether a demotion begins with the cut of the clients.
fn cuts(config: &Config) -> bool {
    let address = |r: &Resource| matches!(r.kind, crate::config::ResourceKind::Address(_));
    !config.service.cut_ports.is_empty() || config.resources.iter().any(address)
}

/// What clients see between the failure and the new primary.
pub fn meanwhile(config: &Config, right: crate::core::Span) -> String {
    let stopped = match cuts(config) {
        true => {
            "clients of a node that stops acting are refused and reset at once: they learn that their requests failed"
        }
        false => {
            "clients of a node that stops acting are served until its service has stopped: nothing is named that could be cut \
             (`service.cut_ports`)"
        }
    };
    match config.fence.plan {
        Plan::Node { .. } => format!(
            "a crashed node answers nobody until the other has started; in a partition the clients that still reach the loser are \
             served until its power is off, and get no answer afterwards; {stopped}"
        ),
        Plan::Exclusive | Plan::Yielding => format!(
            "in a partition the loser still runs: its clients may be answered, from memory or caches too, until it stops at {right} \
             after its last renewal, while its writes already fail where access is revoked; {stopped}"
        ),
        Plan::ConfirmOnly => format!(
            "in a partition the primary serves its clients for {right} after its last renewal, then nobody does until an operator \
             has confirmed; {stopped}"
        ),
    }
}
