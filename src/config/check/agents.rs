//! Fence agents, one by one: whom they shoot, by what means, within which time.

use std::ops::Range;

use super::super::checked::{Agent, AgentKind, ExecAgent, IdentityCheck, IpmiAgent, Link};
use super::super::diagnostics::Finding;
use super::super::raw::{self, Fence, Kind};
use super::super::secrets;
use super::super::value::{Field, Findings};
use super::{node_of, unique};
use crate::core::{NodeId, Scope, Span};

/// Proofs name their agents in a set of 32 bits.
const MOST_AGENTS: usize = 32;

/// Limit of one attempt: three to four sessions with a slow BMC, and the seconds a host takes to drop its power.
pub const TIMEOUT: Span = Span::from_secs(20);

/// How long it usually takes until an `off` has landed: a session, a status, the command.
const TYPICAL: Span = Span::from_ms(750);

/// How long a BMC may sit on an `off` that it has accepted, where nothing better is known.
const SETTLE: Span = Span::from_secs(10);

/// RMCP+, IPMI 2.0 section 13.1.
const IPMI_PORT: u32 = 623;

/// Reading off once may be a flicker of the sensor, or the start of a reset.
const STABLE_READS: u32 = 2;

/// Between the end of one reading and the next. A session with a BMC takes some tenths of a second in itself, so that
/// two readings in a row are further apart than this; a longer pause would only be added to every take-over.
const POLL: Span = Span::from_ms(200);

/// `None`: an agent is not understood, and neither plan nor F can be computed.
pub fn check(fence: &Fence, names: Option<&[String; 2]>, links: &[Link], f: &mut Findings) -> Option<Vec<Agent>> {
    unique("fence agent", fence.agents.iter().map(|a| a.name.as_ref()), f);
    if let Some(extra) = fence.agents.get(MOST_AGENTS) {
        let finding =
            Finding::error(format!("{} fence agents, at most {MOST_AGENTS} are possible", fence.agents.len()));
        f.push(finding.at(&extra.span, "one too many").help("keep those that prove most with the fewest shared parts"));
    }
    let checked: Vec<Option<Agent>> = fence.agents.iter().map(|a| one(a, names?, f)).collect();
    refuse_shared_devices(fence, &checked, f);
    refuse_own_addresses(fence, &checked, names, links, f);
    checked.into_iter().collect()
}

fn one(raw: &raw::Agent, names: &[String; 2], f: &mut Findings) -> Option<Agent> {
    let target = raw.target.as_ref().and_then(|t| node_of(t, names, f));
    let kind = kind(raw, f);
    let bad = [raw.timeout.is_bad(), raw.typical.is_bad(), raw.settle.is_bad(), raw.level.is_bad(), raw.scope.is_bad()];
    if bad.contains(&true) {
        return None;
    }
    let manual = matches!(raw.kind.as_ref()?.value, Kind::Manual);
    let default = |span| if manual { Span::ZERO } else { span };
    Some(Agent {
        name: raw.name.as_ref()?.value.clone(),
        target: target?,
        level: raw.level.value_or(1),
        scope: scope(raw, kind.as_ref()?, f)?,
        timeout: raw.timeout.value_or(default(TIMEOUT)),
        typical: raw.typical.value_or(default(TYPICAL)),
        settle: raw.settle.value_or(default(SETTLE)),
        kind: kind?,
    })
}

fn kind(raw: &raw::Agent, f: &mut Findings) -> Option<AgentKind> {
    match raw.kind.as_ref()?.value {
        Kind::Ipmi => ipmi(raw, raw.ipmi.as_ref()?, f).map(AgentKind::Ipmi),
        Kind::Exec => exec(raw, raw.exec.as_ref()?, f).map(AgentKind::Exec),
        Kind::Manual => Some(AgentKind::Manual),
        _ => raw.other.clone().filter(|kind| reads_in_time(raw, kind, f)),
    }
}

/// An attempt that cannot even read its device often enough never proves anything.
fn reads_in_time(raw: &raw::Agent, kind: &AgentKind, f: &mut Findings) -> bool {
    let needed = kind.facts().map_or(Span::ZERO, |facts| facts.reading());
    let timeout = raw.timeout.value_or(TIMEOUT);
    if needed < timeout || raw.timeout.is_bad() {
        return true;
    }
    let finding = Finding::error("the agent could not finish its readings within its limit");
    let finding = finding.at(raw.timeout.span().unwrap_or(&raw.span), "too slow");
    let finding = finding.note(format!("stable_reads · poll = {needed}, `timeout` is {timeout}"));
    f.push(finding.help("shorten `poll`, or lengthen `timeout`"));
    false
}

/// A kind that always protects the same says so; one that may do either has to be told.
fn scope(raw: &raw::Agent, kind: &AgentKind, f: &mut Findings) -> Option<Scope> {
    let own = kind.facts().and_then(|facts| facts.scope());
    match (own, raw.scope.given()) {
        (Some(own), Some(given)) if own != given.value => {
            let title = format!("an agent of kind \"{}\" has the scope of a {own}", kind.word());
            let finding = Finding::error(title).at(&given.span, "not what it protects");
            f.push(finding.help(format!("write `scope = \"{own}\"`, or leave it out")));
            None
        }
        (own, given) => Some(given.map(|g| g.value).or(own).unwrap_or(Scope::Node)),
    }
}

fn ipmi(raw: &raw::Agent, ipmi: &raw::Ipmi, f: &mut Findings) -> Option<IpmiAgent> {
    refuse_weak_cipher(&ipmi.cipher_suite, f);
    refuse_slow_reading(raw, ipmi, f);
    Some(IpmiAgent {
        address: ipmi.address.as_ref()?.value.clone(),
        port: u16::try_from(ipmi.port.value_or(IPMI_PORT)).ok()?,
        user: ipmi.user.as_ref()?.value.clone(),
        password: ipmi.password.clone()?,
        cipher_suite: ipmi.cipher_suite.value().and_then(|c| u8::try_from(c).ok()),
        privilege: ipmi.privilege.value_or("ADMINISTRATOR").to_string(),
        stable_reads: ipmi.stable_reads.value_or(STABLE_READS),
        poll: ipmi.poll.value_or(POLL),
        independent_power: ipmi.independent_power.value_or(false),
        identity: ipmi.identity.value_or(IdentityCheck::Uuid),
    })
}

/// Suites that authenticate nothing, or whose answers anyone on the path could forge (IPMI 2.0 table 22-20).
fn refuse_weak_cipher(suite: &Field<u32>, f: &mut Findings) {
    let Some(at) = suite.given().filter(|at| !matches!(at.value, 3 | 8 | 12 | 17)) else { return };
    let finding = Finding::error(format!("cipher suite {} does not protect the session", at.value));
    let finding = finding.at(&at.span, "authentication, integrity or confidentiality is missing");
    f.push(finding.help("write 17 or, for older BMCs, 3; or leave it out: 17 is tried, then 3"));
}

/// An attempt that cannot even read the power often enough never proves anything.
fn refuse_slow_reading(raw: &raw::Agent, ipmi: &raw::Ipmi, f: &mut Findings) {
    let (reads, poll) = (ipmi.stable_reads.value_or(STABLE_READS), ipmi.poll.value_or(POLL));
    let (needed, timeout) = (poll.times(u64::from(reads)), raw.timeout.value_or(TIMEOUT));
    if needed < timeout || raw.timeout.is_bad() {
        return;
    }
    let finding = Finding::error("the agent could not finish its readings within its limit");
    let span = ipmi.poll.span().or(ipmi.stable_reads.span()).or(raw.timeout.span()).unwrap_or(&raw.span);
    let finding = finding.at(span, "too slow");
    let finding = finding.note(format!("stable_reads · poll = {reads} · {poll} = {needed}, `timeout` is {timeout}"));
    f.push(finding.help("shorten `poll`, or lengthen `timeout`"));
}

fn exec(raw: &raw::Agent, exec: &raw::Exec, f: &mut Findings) -> Option<ExecAgent> {
    for (key, _) in exec.settings.iter().filter(|(key, _)| secrets::is_secret(&key.value)) {
        let finding = Finding::error("a secret stands in the configuration");
        let finding = finding.at(&key.span, "its value is not read and not shown");
        f.push(finding.help(format!(
            "put it into a file of mode 0600, name that as `{}_file`, and let the program read it; then change the secret",
            key.value
        )));
    }
    if let Some(args) = exec.args.given().filter(|a| a.value.iter().any(|arg| mentions_secret(arg))) {
        // Only the bracket is marked: the secret may stand on a line of its own.
        let bracket = args.span.start..args.span.start + 1;
        let finding = Finding::error("a secret among the arguments of a program");
        let finding = finding.at(&bracket, "everyone on the machine can read them with `ps`");
        f.push(finding.help("name a file of mode 0600 in `settings`, and let the program read it"));
    }
    let takes = exec.take.value_or(false);
    if takes && raw.scope.value() != Some(Scope::Resource) {
        let finding = Finding::error("an agent that takes has the scope of a resource");
        let finding = finding.at_some(exec.take.span(), "a take protects one resource, the peer still runs");
        f.push(finding.help("write `scope = \"resource\"`, or remove `take`"));
        return None;
    }
    if raw.scope == Field::Absent {
        let finding = Finding::error("the agent does not say what its success covers").at(&raw.span, "no `scope`");
        f.push(finding.help(
            "write `scope = \"node\"` if nothing on the target acts any more (power off), or `scope = \"resource\"` if only \
             a resource is protected (volume detached, export revoked)",
        ));
        return None;
    }
    let settings = exec.settings.iter().map(|(k, v)| (k.value.clone(), v.value.clone())).collect();
    let program = exec.program.as_ref()?.value.clone();
    Some(ExecAgent { program, args: exec.args.value_or(Vec::new()), settings, takes })
}

/// `--password=x`, or `--password` with the secret in the next argument.
fn mentions_secret(arg: &str) -> bool {
    let (key, value) = arg.split_once('=').unwrap_or((arg, ""));
    secrets::is_secret(key.trim_start_matches('-')) && (key.starts_with('-') || !value.is_empty())
}

/// One BMC powers one node: with the same device behind two agents, one of them would shoot its own side.
fn refuse_shared_devices(fence: &Fence, checked: &[Option<Agent>], f: &mut Findings) {
    let devices: Vec<_> = own_devices(fence, checked).collect();
    for (i, (target, device, place)) in devices.iter().enumerate() {
        let other = devices[..i].iter().find(|(t, d, _)| t != target && d == device);
        if let Some((_, _, first)) = other {
            let finding = Finding::error(format!("agents against both nodes use the same device, {device}"));
            let finding = finding.at(place, "the same again").with(first, "first here");
            let finding = finding.note("one of the two would switch off the node that it should save");
            f.push(finding.help("give each agent the device of its own target"));
        }
    }
}

fn own_devices<'a>(
    fence: &'a Fence,
    checked: &'a [Option<Agent>],
) -> impl Iterator<Item = (NodeId, String, &'a Range<usize>)> {
    fence.agents.iter().zip(checked).filter_map(|(raw, agent)| {
        let agent = agent.as_ref()?;
        Some((agent.target, agent.kind.facts()?.own_device()?, raw.address_span.as_ref().unwrap_or(&raw.span)))
    })
}

/// An agent that asks a node to switch itself off proves nothing: the dead do not answer, and the living may lie.
fn refuse_own_addresses(
    fence: &Fence,
    checked: &[Option<Agent>],
    names: Option<&[String; 2]>,
    links: &[Link],
    f: &mut Findings,
) {
    let Some(names) = names else { return };
    for (raw, agent) in fence.agents.iter().zip(checked) {
        let Some(agent) = agent else { continue };
        for (span, node) in addresses(raw, agent).filter_map(|(text, span)| Some((span, owner(text, links)?))) {
            let target = &names[agent.target.index()];
            let own = if node == agent.target { "its own target" } else { "the node that would use it" };
            let title = format!("the agent \"{}\" fences {target} through an address of {own}", agent.name);
            let label = format!("an address of {} itself", names[node.index()]);
            let finding = Finding::error(title).at(span, label);
            let finding = finding.note("a node that has to be fenced cannot be trusted to do it, nor to answer");
            f.push(finding.help("write the address of the device that powers the target, such as its BMC"));
        }
    }
}

/// Everything of an agent that is an address of its device. Other settings of a program may well name the target's
/// address: a revoked export names its client.
fn addresses<'a>(raw: &'a raw::Agent, agent: &'a Agent) -> impl Iterator<Item = (&'a str, &'a Range<usize>)> {
    let device = agent.kind.facts().and_then(|facts| facts.address());
    let device = device.map(|address| (address, raw.address_span.as_ref().unwrap_or(&raw.span)));
    let settings = raw.exec.iter().flat_map(|e| &e.settings);
    let settings = settings.filter(|(key, _)| matches!(key.value.as_str(), "address" | "bmc" | "ip"));
    device.into_iter().chain(settings.map(|(_, value)| (value.value.as_str(), &value.span)))
}

fn owner(text: &str, links: &[Link]) -> Option<NodeId> {
    let ip = text.parse().or_else(|_| text.parse::<std::net::SocketAddr>().map(|a| a.ip())).ok()?;
    // Loopback addresses stand for anything on a machine that plays both nodes.
    let owns = |id: &NodeId| links.iter().any(|l| l.addresses[id.index()].ip() == ip && !ip.is_loopback());
    [NodeId::First, NodeId::Second].into_iter().find(owns)
}
