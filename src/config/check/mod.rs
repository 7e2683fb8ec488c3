//! From what is written to what is meant: names, addresses, agents, plan, resources, then the arithmetic.
//!
//! Each check reports and goes on; only in the end does an error withhold the configuration.

mod addresses;
mod agents;
mod links;
mod networkd;
mod plan;
mod postgres;
mod resources;
mod secret_files;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::checked::{Config, Control, Fence, Guard, GuardProcess, Node, Paths};
use super::diagnostics::Finding;
use super::raw::{PerNode, Raw};
use super::timing::{self, Arithmetic};
use super::value::{At, Findings};
use super::{digest, suggest};
use crate::core::{Digest, FirstShooter, NodeId, PowerOn, Span};

pub use agents::TIMEOUT as AGENT_TIMEOUT;
pub use networkd::check_networkd;
pub use plan::same_network;
pub use secret_files::check_secret_files;

/// How often a fenced node is switched on again without an operator, unless given: enough for a passing fault, few
/// enough that a node that cannot stay up is left to people.
const POWER_ON_LIMIT: u32 = 3;

/// How often each fence agent is proven ahead of need, unless given: a changed password is known within minutes.
const PROBE_INTERVAL: Span = Span::from_secs(60);
const PROBE_LEAST: Span = Span::from_secs(5);
const PROBE_MOST: Span = Span::from_secs(3600);
/// The kernel's name of the first watchdog; `/dev/watchdog` is an old name of the same.
const WATCHDOG: &str = "/dev/watchdog0";

/// Checks everything. `None`: an error was found.
pub fn check(raw: &Raw, f: &mut Findings) -> Option<(Config, Arithmetic)> {
    let nodes = nodes(raw, f);
    let names = nodes.clone().map(|[a, b]| [a.name, b.name]);
    let links = links::check(&raw.links, names.as_ref(), f);
    let agents = agents::check(&raw.fence, names.as_ref(), &links, f);
    let plan = agents.as_ref().and_then(|agents| plan::check(raw, agents, names.as_ref(), f));
    let resources = resources::check(&raw.resources, f);
    plan::check_fence_path(raw, &links, agents.as_deref(), f);
    let (control, paths) = (control(raw), paths(raw, f));
    let probe_interval = probe_interval(raw, f);
    let resources = resources?;
    addresses::check(&raw.resources, &resources, &links, names.as_ref(), f);
    postgres::check(&raw.resources, &resources, names.as_ref(), f);
    let (Some(plan), Some(agents)) = (plan, agents) else {
        timing::compute(&timing::Facts::without_agents(raw, &resources), f);
        return None;
    };
    let facts = timing::Facts::gather(raw, plan, &agents, &resources);
    let (timing, arithmetic) = timing::compute(&facts, f)?;
    if f.has_errors() {
        return None;
    }
    let mut config = Config {
        cluster: raw.cluster.name.as_ref()?.value.clone(),
        key: raw.cluster.key.as_ref()?.value.clone(),
        data: raw.cluster.data.as_ref()?.value,
        nodes: nodes?,
        links,
        timing,
        guard: guard(raw),
        fence: fence(raw, plan, agents, probe_interval),
        resources,
        service: resources::service(&raw.service, f),
        control,
        paths,
        digest: Digest::default(),
    };
    config.digest = digest::of(&config);
    Some((config, arithmetic))
}

/// Required unless written otherwise: what nobody enforces is no lease.
fn guard(raw: &Raw) -> Guard {
    let device = raw.timing.guard_device.given().map_or_else(|| PathBuf::from(WATCHDOG), |at| at.value.clone());
    Guard { process: raw.timing.guard_process.value_or(GuardProcess::Required), device }
}

fn fence(raw: &Raw, plan: crate::core::Plan, agents: Vec<super::checked::Agent>, probe_interval: Span) -> Fence {
    let limit = raw.fence.power_on_limit.value_or(POWER_ON_LIMIT);
    let power_on = match raw.fence.power_on.value_or(false) {
        true => PowerOn::AfterPromotion { limit },
        false => PowerOn::Never,
    };
    Fence { plan, first: raw.fence.first.value_or(FirstShooter::Primary), power_on, probe_interval, agents }
}

/// `fence.probe_interval`. There is no way to switch it off: an agent that nobody looks at fails when it is needed.
fn probe_interval(raw: &Raw, f: &mut Findings) -> Span {
    let given = &raw.fence.probe_interval;
    let interval = given.value_or(PROBE_INTERVAL);
    let (wrong, why) = match interval {
        short if short < PROBE_LEAST => {
            ("too often", "each look is a login, and a BMC has few sessions and a slow processor")
        }
        long if long > PROBE_MOST => {
            ("too seldom", "an agent counts as proven for three intervals: a fault would stay unseen")
        }
        _ => return interval,
    };
    let finding = Finding::error(format!("fence agents are looked at {wrong}: every {interval}"));
    let finding = finding.at_some(given.span(), wrong).note(why);
    f.push(finding.help(format!("write {PROBE_LEAST} to {PROBE_MOST}, or nothing for {PROBE_INTERVAL}")));
    interval
}

/// Exactly two nodes, of different names.
fn nodes(raw: &Raw, f: &mut Findings) -> Option<[Node; 2]> {
    match &raw.nodes[..] {
        [first, second] => {
            let (first, second) = (first.name.as_ref()?, second.name.as_ref()?);
            if first.value == second.value {
                let finding = Finding::error(format!("both nodes are called \"{}\"", first.value));
                let finding = finding.at(&second.span, "the same name again").with(&first.span, "first here");
                f.push(finding.help("give each node a name of its own"));
                return None;
            }
            Some([Node { name: first.value.clone() }, Node { name: second.value.clone() }])
        }
        [_, _, third, ..] => {
            let finding = Finding::error(format!("{} nodes, where a pair has two", raw.nodes.len()));
            f.push(finding.at(&third.span, "one too many").help("keep exactly two [[node]] tables"));
            None
        }
        few => {
            let count = if few.is_empty() { "no [[node]] table" } else { "one [[node]] table" };
            let finding = Finding::error(format!("{count}, where a pair has two"));
            let finding = finding.at_some(few.first().map(|n| &n.span), "the only one");
            f.push(finding.help("write two [[node]] tables, in the same order on both nodes"));
            None
        }
    }
}

fn control(raw: &Raw) -> Control {
    let runtime = raw.paths.runtime.value_or(PathBuf::from("/run/leasehold"));
    Control {
        socket: raw.control.socket.value_or(runtime.join("control.sock")),
        read_group: raw.control.read_group.value(),
        command_group: raw.control.command_group.value(),
    }
}

fn paths(raw: &Raw, f: &mut Findings) -> Paths {
    let state = raw.paths.state.value_or(PathBuf::from("/var/lib/leasehold"));
    let runtime = raw.paths.runtime.value_or(PathBuf::from("/run/leasehold"));
    if state.starts_with(&runtime) || runtime.starts_with(&state) {
        let finding = Finding::error("`paths.state` and `paths.runtime` lie in one another");
        let span = raw.paths.state.span().or(raw.paths.runtime.span());
        let finding = finding.at_some(span, "not apart");
        let finding = finding.note("the record must outlive a boot, the run-time lease must not");
        f.push(finding.help("keep them apart, such as \"/var/lib/leasehold\" and \"/run/leasehold\""));
    }
    Paths { state, runtime }
}

/// Reports every name that stands twice.
fn unique<'a>(what: &str, names: impl Iterator<Item = Option<&'a At<String>>>, f: &mut Findings) {
    let mut seen: BTreeMap<&str, &At<String>> = BTreeMap::new();
    for name in names.flatten() {
        match seen.get(name.value.as_str()) {
            None => drop(seen.insert(&name.value, name)),
            Some(first) => {
                let finding = Finding::error(format!("two {what}s are called \"{}\"", name.value));
                let finding = finding.at(&name.span, "the same name again").with(&first.span, "first here");
                f.push(finding.help(format!("give each {what} a name of its own")));
            }
        }
    }
}

/// The node that a name in the file means.
fn node_of(name: &At<String>, names: &[String; 2], f: &mut Findings) -> Option<NodeId> {
    let found = [NodeId::First, NodeId::Second].into_iter().find(|id| names[id.index()] == name.value);
    if found.is_none() {
        let finding = Finding::error(format!("no node is called \"{}\"", name.value)).at(&name.span, "unknown node");
        let near = suggest::closest(&name.value, names.iter().map(String::as_str));
        f.push(finding.help(match near {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the nodes are \"{}\" and \"{}\"", names[0], names[1]),
        }));
    }
    found
}

/// The strings of a per-node table, in the order of the nodes.
fn per_node(table: &PerNode, names: &[String; 2], f: &mut Findings) -> [Option<At<String>>; 2] {
    let mut values = [None, None];
    for (name, value) in table {
        if let Some(id) = node_of(name, names, f) {
            values[id.index()] = Some(value.clone());
        }
    }
    values
}
