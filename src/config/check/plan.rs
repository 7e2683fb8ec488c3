//! What the agents can prove together (protocol section 1), and what they share with the links.

use std::net::IpAddr;
use std::ops::Range;

use super::super::checked::{Agent, AgentKind, Link};
use super::super::diagnostics::Finding;
use super::super::raw::{self, Raw};
use super::super::value::{Field, Findings};
use crate::core::{NodeId, Plan, Scope};

const BOTH: [NodeId; 2] = [NodeId::First, NodeId::Second];

/// The plan, the same against either node. `None`: it could not be safe, and why has been said.
pub fn check(raw: &Raw, agents: &[Agent], names: Option<&[String; 2]>, f: &mut Findings) -> Option<Plan> {
    refuse_idle_manual(&raw.fence, agents, f);
    if agents.iter().all(|a| !acts(a)) {
        return without_agents(raw, agents, f);
    }
    let names = names?;
    let [first, second] = BOTH.map(|target| against(target, &raw.fence, agents, names, f));
    let plan = same_on_both(first?, second?, &raw.fence, agents, names, f)?;
    refuse_useless_levels(plan, &raw.fence, agents, f);
    check_lone_primary(plan, raw, agents, f)?;
    warn_of_idle_keys(plan, raw, f);
    warn_of_virtual_machines(plan, raw, f);
    warn_of_host_power(plan, &raw.fence, agents, names, f);
    Some(plan)
}

/// An operator's word is no agent: everything that an agent is asked for by itself, it would answer with "unknown".
fn acts(agent: &Agent) -> bool {
    !matches!(agent.kind, AgentKind::Manual)
}

fn without_agents(raw: &Raw, agents: &[Agent], f: &mut Findings) -> Option<Plan> {
    if let Some(span) = &raw.fence.confirm_only {
        let finding = Finding::warning("nothing but an operator's word ever starts a take-over");
        let finding = finding.at(span, "no fence agent");
        let finding = finding.note(
            "F is not finite: when one node crashes, a standby waits for `leasehold confirm-fenced`, and a primary stops at \
             T − M until then",
        );
        f.push(finding.help("add a [[fence.agent]] with scope \"node\" for each node, if there is any device for it"));
        return Some(Plan::ConfirmOnly);
    }
    let finding = match agents {
        [] => Finding::error("no fence agent: no take-over would ever be safe"),
        _ => Finding::error("no fence agent but manual ones: no take-over would ever happen by itself"),
    };
    let finding = finding.at_some(raw.fence.agents.first().map(|a| &a.span), "waits for an operator");
    let finding = finding.help("add a [[fence.agent]] against each node, such as kind = \"ipmi\"");
    f.push(finding.help(
        "or write `fence = \"confirm-only\"` above the first table, without [fence]: then every take-over waits for an \
         operator, who answers for it",
    ));
    None
}

/// What is possible against one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    Node { access: bool },
    Exclusive,
    Yielding,
}

fn against(
    target: NodeId,
    fence: &raw::Fence,
    agents: &[Agent],
    names: &[String; 2],
    f: &mut Findings,
) -> Option<Means> {
    let aimed: Vec<&Agent> = agents.iter().filter(|a| a.target == target && acts(a)).collect();
    let (name, peer) = (&names[target.index()], &names[target.peer().index()]);
    let taking = aimed.iter().filter(|a| takes(a)).count();
    let node = aimed.iter().filter(|a| a.scope == Scope::Node).count();
    match (aimed.len(), node, taking) {
        (0, ..) => {
            let finding = Finding::error(format!("no fence agent is aimed at {name}"));
            let finding = finding.at_some(fence.agents.first().map(|a| &a.span), "only the other node is covered");
            let finding = finding.note(format!("{peer} could never take over from {name}"));
            f.push(finding.help(format!("add a [[fence.agent]] with target = \"{name}\"")));
            None
        }
        (_, 1.., 1..) => {
            let finding = Finding::error(format!("agents with and without `take` are mixed against {name}"));
            let finding = finding.at_some(take_span(fence, agents, target).as_ref(), "takes");
            let finding =
                finding.note("with `take` the storage is the arbiter; with scope \"node\" the power is: not both");
            f.push(finding.help(format!(
                "{} here: the agent then adds to the plan of node scope",
                without_take(fence, agents, target)
            )));
            None
        }
        (all, 0, taking) if taking > 0 && taking < all => {
            let finding = Finding::error(format!("agents with and without `take` are mixed against {name}"));
            let finding = finding.at_some(take_span(fence, agents, target).as_ref(), "takes");
            let finding =
                finding.note("the arbiter is the one store that is taken; another resource could go to the other node");
            f.push(finding.help(format!(
                "keep the agent with `take` alone, or add one of scope \"node\" and {}",
                without_take(fence, agents, target)
            )));
            None
        }
        (all, 0, taking) if taking == all => Some(Means::Exclusive),
        (_, 0, _) => Some(Means::Yielding),
        (all, node, _) => Some(Means::Node { access: node < all }),
    }
}

fn takes(agent: &Agent) -> bool {
    agent.kind.takes()
}

fn take_span(fence: &raw::Fence, agents: &[Agent], target: NodeId) -> Option<Range<usize>> {
    let mut pairs = fence.agents.iter().zip(agents).filter(|(_, a)| a.target == target && takes(a));
    pairs.find_map(|(raw, _)| raw.exec.as_ref().and_then(|e| e.take.span()).or(Some(&raw.span)).cloned())
}

/// What to do where an agent is not to take: a program takes if it is told to, a store unless it is told not to.
fn without_take(fence: &raw::Fence, agents: &[Agent], target: NodeId) -> &'static str {
    let mut taking = fence.agents.iter().zip(agents).filter(|(_, a)| a.target == target && takes(a));
    match taking.all(|(raw, _)| raw.exec.is_some()) {
        true => "remove `take`",
        false => "write `take = false`",
    }
}

/// Both nodes run by one plan: what only one of them can prove does not carry the pair.
fn same_on_both(
    first: Means,
    second: Means,
    fence: &raw::Fence,
    agents: &[Agent],
    names: &[String; 2],
    f: &mut Findings,
) -> Option<Plan> {
    match (first, second) {
        (Means::Node { access: a }, Means::Node { access: b }) => Some(Plan::Node { access: a || b }),
        (Means::Exclusive, Means::Exclusive) => Some(Plan::Exclusive),
        (Means::Yielding, Means::Yielding) => Some(Plan::Yielding),
        (first, second) => {
            let finding = Finding::error("the nodes are fenced in different ways");
            let span =
                |id| fence.agents.iter().zip(agents).find(|(_, a)| a.target == id).map(|(raw, _)| raw.span.clone());
            let finding = match (span(NodeId::First), span(NodeId::Second)) {
                (Some(a), Some(b)) => finding.at(&b, describe(second)).with(&a, describe(first)),
                _ => finding,
            };
            let names = format!("{} and {}", names[0], names[1]);
            let finding = finding.note(format!("{names} change roles: each must be able to prove what the other can"));
            f.push(finding.help("give both targets agents of the same scope, both with `take` or both without"));
            None
        }
    }
}

fn describe(means: Means) -> &'static str {
    match means {
        Means::Node { .. } => "scope \"node\"",
        Means::Exclusive => "scope \"resource\" with `take`",
        Means::Yielding => "scope \"resource\" without `take`",
    }
}

/// A level succeeds when all its agents confirm, and proves by its agents of node scope where the plan has any.
fn refuse_useless_levels(plan: Plan, fence: &raw::Fence, agents: &[Agent], f: &mut Findings) {
    if !matches!(plan, Plan::Node { .. }) {
        return;
    }
    for (raw, agent) in fence.agents.iter().zip(agents).filter(|(_, a)| a.scope == Scope::Resource) {
        let beside =
            |a: &&Agent| a.target == agent.target && a.level == agent.level && a.scope == Scope::Node && acts(a);
        if agents.iter().find(beside).is_none() {
            let finding = Finding::error(format!("level {} proves nothing against this node", agent.level));
            let finding = finding.at(raw.level.span().unwrap_or(&raw.span), "no agent of scope \"node\" at this level");
            let finding =
                finding.note("a plan that has an agent of node scope succeeds only if one of node scope is verified");
            f.push(finding.help("give it the level of an agent of scope \"node\": it then adds to that one"));
        }
    }
}

/// A manual agent never confirms by itself, so it would hold up every agent of its level.
fn refuse_idle_manual(fence: &raw::Fence, agents: &[Agent], f: &mut Findings) {
    for (raw, agent) in fence.agents.iter().zip(agents).filter(|(_, a)| !acts(a)) {
        let blocked = agents.iter().any(|a| acts(a) && a.target == agent.target && a.level >= agent.level);
        if blocked {
            let finding = Finding::error("a manual agent stands before agents that act by themselves");
            let finding = finding.at(raw.level.span().unwrap_or(&raw.span), "waits for an operator");
            let finding = finding.note("all agents of a level must confirm, and levels are tried in rising order");
            f.push(finding.help("give the manual agent a level above all others of its target"));
        }
    }
}

fn check_lone_primary(plan: Plan, raw: &Raw, agents: &[Agent], f: &mut Findings) -> Option<()> {
    let place = raw.fence.agents.iter().zip(agents).find(|(_, a)| a.scope == Scope::Resource).map(|(raw, _)| raw);
    match (plan, &raw.cluster.lone_primary_stops) {
        (Plan::Yielding, Field::Absent) => {
            let finding = Finding::error("resource scope alone, without `take`, stops a lone primary by design");
            let finding = finding.at_some(place.and_then(|a| a.scope.span()), "only a resource is protected");
            let finding = finding.note(
                "both nodes could revoke each other's access, so only an admitted standby may; a primary that loses its \
                 standby therefore stops at T − M and waits for contact or an operator",
            );
            let finding = finding.help("add an agent of scope \"node\" against each node");
            let finding = finding.help("or use agents that have the operation `take`, and write `take = true`");
            f.push(finding.help("or accept it in so many words: `lone_primary = \"stop\"` in [cluster]"));
            None
        }
        (Plan::Node { .. } | Plan::Exclusive | Plan::ConfirmOnly, Field::Given(at)) => {
            let finding = Finding::warning("`lone_primary = \"stop\"` has no effect with this fence plan");
            let finding = finding.at(&at.span, "a primary that proves its peer harmless goes on");
            f.push(finding.help("remove it"));
            Some(())
        }
        _ => Some(()),
    }
}

fn warn_of_idle_keys(plan: Plan, raw: &Raw, f: &mut Findings) {
    use crate::core::PromoteAfter;
    if let (Plan::Exclusive | Plan::Yielding, Field::Given(at)) = (plan, &raw.timing.promote_after)
        && at.value == PromoteAfter::Fence
    {
        let finding = Finding::warning("`promote.after = \"fence\"` has no effect with resource scope alone");
        let finding = finding.at(&at.span, "the end of the lease is waited for as well");
        f.push(finding.help("write \"fence+lease\", which is what happens, or remove it"));
    }
}

/// No guest clock counts the time for which a hypervisor stops the guest (protocol section 2, K13).
fn warn_of_virtual_machines(plan: Plan, raw: &Raw, f: &mut Findings) {
    let Some(place) = raw.nodes.iter().find_map(|n| n.is_virtual.given().filter(|v| v.value)) else { return };
    let checked = !raw.resources.is_empty() && raw.resources.iter().all(|r| r.checks_token.value_or(false));
    if plan != Plan::Yielding || checked {
        return;
    }
    let finding = Finding::warning("a virtual machine, with resource scope and no token check");
    let finding = finding.at(&place.span, "its hypervisor may stop it beyond its lease");
    let finding = finding.note("no guest clock notices that: on going on, it writes until its access is revoked");
    let finding = finding.help("fence through the hypervisor or cloud, with scope \"node\", or with `take`");
    f.push(finding.help("or write `checks_token = true` at each resource that refuses writes of an older token"));
}

/// A BMC on its host's power is silent when the host has lost it: then nothing is proven (a very common outage).
fn warn_of_host_power(plan: Plan, fence: &raw::Fence, agents: &[Agent], names: &[String; 2], f: &mut Findings) {
    if !matches!(plan, Plan::Node { .. }) {
        return;
    }
    for target in BOTH {
        let of_node = fence.agents.iter().zip(agents);
        let of_node = of_node.filter(|(_, a)| a.target == target && a.scope == Scope::Node && acts(a));
        let of_node: Vec<(&raw::Agent, &Agent)> = of_node.collect();
        let on_host = |agent: &Agent| agent.kind.facts().is_some_and(|facts| facts.on_host_power());
        let Some((first, _)) = of_node.iter().find(|(_, agent)| on_host(agent)) else { continue };
        if !of_node.iter().all(|(_, agent)| on_host(agent)) {
            continue;
        }
        let name = &names[target.index()];
        let finding = Finding::warning(format!("the only means against {name} is a BMC on {name}'s own power"));
        let finding = finding.at(&first.span, "silent when its host has lost its power");
        let finding =
            finding.note(format!("if {name} loses all power, no take-over happens until an operator confirms"));
        let finding = finding.help("add an agent of scope \"node\" at a higher level, such as the outlets of its PDU");
        f.push(finding.help("or write `power = \"independent\"` if the BMC has a supply of its own"));
    }
}

/// One link, or one network for links and fencing: a single failure takes both away.
pub fn check_fence_path(raw: &Raw, links: &[Link], agents: Option<&[Agent]>, f: &mut Findings) {
    refuse_unknown_links(raw, f);
    if let [only] = &raw.links[..] {
        let finding = Finding::warning("there is one link only").at(&only.span, "the only one");
        let finding = finding.note("when it fails, healthy nodes fence each other");
        f.push(finding.help("add a second [[link]] that shares no cable, switch or card with the first"));
    }
    for (raw, agent) in raw.fence.agents.iter().zip(agents.unwrap_or_default()) {
        let shares = |link: &Link| raw.over.value().is_some_and(|over| over == link.name) || same_network(agent, link);
        if links.is_empty() || !links.iter().all(shares) {
            continue;
        }
        let span = raw.over.span().or(raw.address_span.as_ref());
        let finding =
            Finding::warning(format!("the fence agent \"{}\" is reached over the path of the link", agent.name));
        let finding = finding.at(span.unwrap_or(&raw.span), "in the network of every link");
        let finding = finding.note("when this network fails, the peer can neither be heard nor fenced: no take-over");
        f.push(finding.help("add a [[link]] over another network, or reach the device over another network"));
    }
}

fn refuse_unknown_links(raw: &Raw, f: &mut Findings) {
    for over in raw.fence.agents.iter().filter_map(|a| a.over.given()) {
        if !raw.links.iter().filter_map(|l| l.name.as_ref()).any(|name| name.value == over.value) {
            let finding =
                Finding::error(format!("no link is called \"{}\"", over.value)).at(&over.span, "unknown link");
            f.push(finding.help("`over` names the [[link]] whose network the agent uses; leave it out if none is"));
        }
    }
}

/// By the usual sizes of a network, /24 and /64: masks are not in the file.
pub fn same_network(agent: &Agent, link: &Link) -> bool {
    let Some(address) = agent.kind.facts().and_then(|facts| facts.address()) else { return false };
    let Ok(device) = address.parse::<IpAddr>() else { return false };
    link.addresses.iter().any(|node| match (device, node.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a.octets()[..3] == b.octets()[..3] && !a.is_loopback(),
        (IpAddr::V6(a), IpAddr::V6(b)) => a.octets()[..8] == b.octets()[..8] && !a.is_loopback(),
        _ => false,
    })
}
