//! What the operator could change, most valuable first.

use serde::Serialize;

use crate::config::{Checked, Config};
use crate::core::{NodeId, Plan, PowerOn};

/// One change, and what it gains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub gains: String,
    pub change: String,
}

fn advice(gains: impl Into<String>, change: impl Into<String>) -> Advice {
    Advice { gains: gains.into(), change: change.into() }
}

/// Safety first, then the service that survives more failures, then shorter breaks.
pub fn of(checked: &Checked) -> Vec<Advice> {
    let config = &checked.config;
    let mut list = Vec::new();
    let by_power = matches!(config.fence.plan, Plan::Node { .. });
    let (first, last) = if by_power { (None, tokens(checked)) } else { (tokens(checked), None) };
    list.extend(plan(config));
    list.extend(first);
    list.extend(host_power(checked));
    list.extend(links(checked));
    list.extend(interruption(checked));
    // Where power is the proof, a late write needs a device that lied: the less likely outage comes last.
    list.extend(last);
    list.extend(watchdog(config));
    list.extend(power_on(config));
    list
}

fn plan(config: &Config) -> Option<Advice> {
    let node = "add a [[fence.agent]] of scope \"node\" against each node: a BMC, the outlets of a PDU, the hypervisor, the cloud";
    match config.fence.plan {
        Plan::Node { .. } => None,
        Plan::ConfirmOnly => {
            Some(advice("makes the pair safe without an operator, and lets it fail over by itself", node))
        }
        Plan::Yielding => Some(advice(
            "a primary survives the loss of its standby, and safety no longer rests on timing",
            format!("{node}; or let the agents have the operation `take`, and write `take = true`"),
        )),
        Plan::Exclusive => {
            Some(advice("the loser is off, not only locked out: nothing rests on timing any more", node))
        }
    }
}

fn tokens(checked: &Checked) -> Option<Advice> {
    let bare: Vec<&str> =
        checked.config.resources.iter().filter(|r| !r.checks_token).map(|r| r.name.as_str()).collect();
    let stops_lies = match checked.config.fence.plan {
        Plan::Node { .. } => "a late write is refused even where a fence device lied or an operator confirmed wrongly",
        Plan::Exclusive | Plan::Yielding | Plan::ConfirmOnly => "a late write is refused even where timing failed",
    };
    let change = format!("let {} refuse writes of an older token, and write `checks_token = true`", bare.join(" and "));
    (!bare.is_empty()).then(|| advice(stops_lies, change))
}

fn host_power(checked: &Checked) -> Option<Advice> {
    let hit = [NodeId::First, NodeId::Second].into_iter().filter(|id| checked.surroundings.host_power[id.index()]);
    let names: Vec<&str> = hit.map(|id| checked.config.node(id).name.as_str()).collect();
    let names = names.join(" or ");
    let change = format!(
        "add an agent of scope \"node\" at a higher level for {names}, such as the outlets of its PDU; or, if its BMC has a supply \
         of its own, write `power = \"independent\"`"
    );
    (!names.is_empty())
        .then(|| advice(format!("a take-over also when {names} loses all power, a common outage"), change))
}

fn links(checked: &Checked) -> Vec<Advice> {
    let one = (checked.config.links.len() == 1).then(|| {
        advice(
            "the failure of one cable or switch makes no healthy node shoot, or stop",
            "add a second [[link]] that shares no cable, switch or card with the first",
        )
    });
    let shared = &checked.surroundings.on_link_path;
    let shared = (!shared.is_empty()).then(|| {
        let change = format!("reach {} over another network than that of every link", shared.join(", "));
        advice("a take-over also when the network of the links fails", change)
    });
    one.into_iter().chain(shared).collect()
}

fn interruption(checked: &Checked) -> Option<Advice> {
    let bounds = &checked.arithmetic.bounds;
    let gap = bounds.interruption?;
    let change = format!(
        "lengthen `lease.term` until T − M >= {} (now {}), or leave it out; or shorten the agents' `timeout`",
        bounds.needed_right.1, bounds.right
    );
    Some(advice(format!("the crash of the standby no longer interrupts the service for up to {gap}"), change))
}

fn watchdog(config: &Config) -> Option<Advice> {
    let gains = "a node that hangs is reset within its lease (A3)";
    let change = "write `watchdog = \"auto\"` in [guard], on machines that have one (`wdctl` shows it)";
    config.timing.watchdog.is_none().then(|| advice(gains, change))
}

fn power_on(config: &Config) -> Option<Advice> {
    let can = matches!(config.fence.plan, Plan::Node { .. });
    let off = can && config.fence.power_on == PowerOn::Never;
    off.then(|| {
        let gains = "a fenced node comes back as standby without a person, after a fault that passed";
        advice(gains, "write `power_on = \"after-promotion\"` in [fence]")
    })
}
