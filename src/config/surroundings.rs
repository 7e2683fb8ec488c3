//! What the file says of the machines and their paths. Nothing acts on it: `check` warns of it, `explain` reasons with it.

use super::check;
use super::checked::{Agent, AgentKind, Config};
use super::raw::{self, Raw};
use crate::core::{NodeId, Scope};

/// What the nodes stand on, by their place in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// `virtual = true`: a hypervisor may pause it, unseen by every clock of the guest.
    pub is_virtual: [bool; 2],
    /// Every agent of node scope against this node is a BMC on the node's own power.
    pub host_power: [bool; 2],
    /// Agents that are reached over the network of every link.
    pub on_link_path: Vec<String>,
}

impl Surroundings {
    pub(super) fn of(raw: &Raw, config: &Config) -> Surroundings {
        let ids = [NodeId::First, NodeId::Second];
        let pairs: Vec<(&raw::Agent, &Agent)> = raw.fence.agents.iter().zip(&config.fence.agents).collect();
        Surroundings {
            is_virtual: ids.map(|id| raw.nodes.get(id.index()).is_some_and(|n| n.is_virtual.value_or(false))),
            host_power: ids.map(|id| host_power(&pairs, id)),
            on_link_path: on_link_path(&pairs, config),
        }
    }
}

fn host_power(pairs: &[(&raw::Agent, &Agent)], target: NodeId) -> bool {
    let acts = |agent: &Agent| !matches!(agent.kind, AgentKind::Manual) && agent.scope == Scope::Node;
    let on_host = |agent: &Agent| agent.kind.facts().is_some_and(|facts| facts.on_host_power());
    let mut against = pairs.iter().filter(|(_, agent)| agent.target == target && acts(agent)).peekable();
    against.peek().is_some() && against.all(|(_, agent)| on_host(agent))
}

fn on_link_path(pairs: &[(&raw::Agent, &Agent)], config: &Config) -> Vec<String> {
    let shares = |raw: &raw::Agent, agent: &Agent| {
        let on =
            |link: &super::Link| raw.over.value().is_some_and(|o| o == link.name) || check::same_network(agent, link);
        !config.links.is_empty() && config.links.iter().all(on)
    };
    pairs.iter().filter(|(raw, agent)| shares(raw, agent)).map(|(_, agent)| agent.name.clone()).collect()
}
