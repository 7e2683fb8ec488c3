//! What is written in the file, table by table: types are right, nothing is concluded yet.
//!
//! One struct a table, one line a key; the place of each value is kept for the checks that follow.

mod resource;

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeTable;

use super::checked::{IdentityCheck, SecretSource};
use super::diagnostics::Finding;
use super::secret_source;
use super::value::{At, Field, Findings, Least, Section};
use crate::core::{DataModel, FirstShooter, PromoteAfter, Scope, Span};

pub use resource::{RESOURCE_KINDS, Resource, ResourceWord, Service};

#[derive(Debug)]
pub struct Raw {
    pub cluster: Cluster,
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
    pub timing: Timing,
    pub fence: Fence,
    pub resources: Vec<Resource>,
    pub service: Service,
    pub control: Control,
    pub paths: Paths,
}

#[derive(Debug)]
pub struct Cluster {
    pub name: Option<At<String>>,
    pub key: Option<At<SecretSource>>,
    pub data: Option<At<DataModel>>,
    /// `lone_primary = "stop"`: accepted in so many words.
    pub lone_primary_stops: Field<()>,
}

#[derive(Debug)]
pub struct Node {
    pub span: Range<usize>,
    pub name: Option<At<String>>,
    pub is_virtual: Field<bool>,
}

/// A table of one string for each node.
pub type PerNode = Vec<(At<String>, At<String>)>;

#[derive(Debug)]
pub struct Link {
    pub span: Range<usize>,
    pub name: Option<At<String>>,
    pub port: Field<u32>,
    /// Where `addresses` stands, if it does.
    pub addresses_span: Option<Range<usize>>,
    pub addresses: PerNode,
    pub devices: PerNode,
}

/// `[heartbeat]`, `[lease]`, `[guard]`, `[promote]`, `[join]`, `[leave]`, and the timing of `[fence]`.
#[derive(Debug)]
pub struct Timing {
    pub interval: Field<Span>,
    pub dead_after: Field<Span>,
    pub round_trip: Field<Span>,
    pub term: Field<Span>,
    pub margin: Field<Span>,
    pub pause: Field<Span>,
    pub wall_check: Field<bool>,
    pub drift_ppm: Field<u32>,
    pub watchdog: Field<Watchdog>,
    pub reset: Field<Span>,
    pub guard_process: Field<GuardProcess>,
    pub guard_device: Field<PathBuf>,
    pub head_start: Field<Span>,
    pub fence_bound: Field<Span>,
    pub promote_after: Field<PromoteAfter>,
    pub start_backoff: Field<Span>,
    pub join_wait: Field<Span>,
    pub join_fence: Field<bool>,
    pub boot_time: Field<Span>,
    pub leave_timeout: Field<Span>,
}

/// `guard.process`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardProcess {
    /// Nothing starts here while no guard runs.
    Required,
    /// Accepted in so many words: nobody enforces the lease of a daemon that does not run.
    None,
}

/// `guard.watchdog`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watchdog {
    None,
    /// The shortest that lets an orderly stop end.
    Auto,
    After(Span),
}

#[derive(Debug)]
pub struct Fence {
    /// Where `fence = "confirm-only"` stands, if it does.
    pub confirm_only: Option<Range<usize>>,
    pub first: Field<FirstShooter>,
    pub power_on: Field<bool>,
    pub power_on_limit: Field<u32>,
    pub probe_interval: Field<Span>,
    pub agents: Vec<Agent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ipmi,
    Redfish,
    FenceAgent,
    Ec2Power,
    Ec2Volume,
    OpenstackPower,
    OpenstackVolume,
    NfsExport,
    IscsiAcl,
    ScsiPr,
    Exec,
    Manual,
}

/// The kinds by their names in the file.
pub const KINDS: [(&str, Kind); 12] = [
    ("ipmi", Kind::Ipmi),
    ("redfish", Kind::Redfish),
    ("fence-agent", Kind::FenceAgent),
    ("ec2-power", Kind::Ec2Power),
    ("ec2-volume", Kind::Ec2Volume),
    ("openstack-power", Kind::OpenstackPower),
    ("openstack-volume", Kind::OpenstackVolume),
    ("nfs-export", Kind::NfsExport),
    ("iscsi-acl", Kind::IscsiAcl),
    ("scsi-pr", Kind::ScsiPr),
    ("exec", Kind::Exec),
    ("manual", Kind::Manual),
];

/// Where a kind's device is named, in the order of asking.
const ADDRESS_KEYS: [&str; 5] = ["address", "url", "server", "instance", "endpoint"];
/// Where a kind names the file of its secret.
const SECRET_KEYS: [&str; 5] =
    ["password_file", "application_credential_secret_file", "credentials_file", "environment_file", "secret_options"];

#[derive(Debug)]
pub struct Agent {
    pub span: Range<usize>,
    pub name: Option<At<String>>,
    pub target: Option<At<String>>,
    pub kind: Option<At<Kind>>,
    pub level: Field<u32>,
    pub scope: Field<Scope>,
    pub timeout: Field<Span>,
    pub typical: Field<Span>,
    pub settle: Field<Span>,
    pub over: Field<String>,
    pub ipmi: Option<Ipmi>,
    pub exec: Option<Exec>,
    /// Every other kind, read and checked at once.
    pub other: Option<super::checked::AgentKind>,
    /// Where the address of its device stands.
    pub address_span: Option<Range<usize>>,
    /// Where its secret's file is named.
    pub secret_span: Option<Range<usize>>,
}

#[derive(Debug)]
pub struct Ipmi {
    pub address: Option<At<String>>,
    pub port: Field<u32>,
    pub user: Option<At<String>>,
    pub password: Option<SecretSource>,
    pub cipher_suite: Field<u32>,
    pub privilege: Field<&'static str>,
    pub stable_reads: Field<u32>,
    pub poll: Field<Span>,
    /// `power = "independent"`: the BMC stays alive when its host has lost all power.
    pub independent_power: Field<bool>,
    pub identity: Field<IdentityCheck>,
}

#[derive(Debug)]
pub struct Exec {
    pub program: Option<At<PathBuf>>,
    pub args: Field<Vec<String>>,
    pub settings: PerNode,
    pub take: Field<bool>,
}

#[derive(Debug)]
pub struct Control {
    pub socket: Field<PathBuf>,
    pub read_group: Field<String>,
    pub command_group: Field<String>,
}

#[derive(Debug)]
pub struct Paths {
    pub state: Field<PathBuf>,
    pub runtime: Field<PathBuf>,
}

/// Reads the whole document, reporting wrong types, missing and unknown keys.
pub fn read(document: &Spanned<DeTable<'_>>, f: &mut Findings) -> Raw {
    let mut root = Section::root(document);
    let cluster = cluster(root.table("cluster", f), f);
    let nodes = root.tables("node", f).into_iter().map(|s| node(s, f)).collect();
    let links = root.tables("link", f).into_iter().map(|s| link(s, f)).collect();
    let (fence_section, confirm_only) = fence_section(&mut root, f);
    let (fence, fence_timing) = fence(fence_section, confirm_only, f);
    let timing = timing(&mut root, fence_timing, f);
    let resources = root.tables("resource", f).into_iter().map(|s| resource::resource(s, f)).collect();
    let service = resource::service(root.table("service", f), f);
    let control = control(root.table("control", f), f);
    let paths = paths(root.table("paths", f), f);
    root.finish(f);
    f.report_unknown();
    Raw { cluster, nodes, links, timing, fence, resources, service, control, paths }
}

fn cluster(mut s: Section<'_>, f: &mut Findings) -> Cluster {
    let name = s.name("name", f);
    let key = secret_source::read(&mut s, "key", "key_credential", f);
    let data = s.word("data", &[("shared", DataModel::Shared), ("replicated", DataModel::Replicated)], f);
    let lone_primary_stops = s.word("lone_primary", &[("stop", ())], f);
    let raw = Cluster {
        name: s.require(name, "name", "\"estuary\"", f),
        key: s.require(key, "key", "\"/etc/leasehold/key\"", f),
        data: s.require(data, "data", "\"shared\"` or `data = \"replicated\"", f),
        lone_primary_stops,
    };
    s.finish(f);
    raw
}

fn node(mut s: Section<'_>, f: &mut Findings) -> Node {
    let name = s.name("name", f);
    let name = s.require(name, "name", "\"heron\"", f);
    let raw = Node { span: s.span.clone(), name, is_virtual: s.boolean("virtual", f) };
    s.finish(f);
    raw
}

fn link(mut s: Section<'_>, f: &mut Findings) -> Link {
    let name = s.name("name", f);
    let raw = Link {
        span: s.span.clone(),
        name: s.require(name, "name", "\"lan\"", f),
        port: s.integer("port", 1..=65535, f),
        addresses_span: s.key_span("addresses"),
        addresses: s.strings_by_key("addresses", f),
        devices: s.strings_by_key("devices", f),
    };
    s.finish(f);
    raw
}

/// `fence = "confirm-only"` or `[fence]`.
fn fence_section<'a>(root: &mut Section<'a>, f: &mut Findings) -> (Section<'a>, Option<Range<usize>>) {
    let Some(word) = root.if_string("fence") else { return (root.table("fence", f), None) };
    if word.value != "confirm-only" {
        let finding = Finding::error("`fence` is neither a table nor \"confirm-only\"").at(&word.span, "no such word");
        f.push(finding.help("write `fence = \"confirm-only\"`, or a [fence] table with agents"));
    }
    // An empty table in its place, so that the keys of [fence] are known to the suggestions.
    let absent = root.table_beside("fence");
    (absent, Some(word.span))
}

struct FenceTiming {
    head_start: Field<Span>,
    bound: Field<Span>,
}

fn fence(mut s: Section<'_>, confirm_only: Option<Range<usize>>, f: &mut Findings) -> (Fence, FenceTiming) {
    let timing = FenceTiming {
        head_start: s.duration("head_start", Least::Millisecond, f),
        bound: s.duration("bound", Least::Millisecond, f),
    };
    let raw = Fence {
        confirm_only,
        first: s.word("first", &[("primary", FirstShooter::Primary), ("standby", FirstShooter::Standby)], f),
        power_on: s.word("power_on", &[("never", false), ("after-promotion", true)], f),
        power_on_limit: s.integer("power_on_limit", 1..=100, f),
        probe_interval: s.duration("probe_interval", Least::Millisecond, f),
        agents: s.tables("agent", f).into_iter().map(|a| agent(a, f)).collect(),
    };
    s.finish(f);
    (raw, timing)
}

fn agent(mut s: Section<'_>, f: &mut Findings) -> Agent {
    let name = s.name("name", f);
    let target = s.name("target", f);
    let kind = s.word("kind", &KINDS, f);
    let mut raw = Agent {
        span: s.span.clone(),
        name: s.require(name, "name", "\"bmc-heron\"", f),
        target: s.require(target, "target", "\"heron\"", f),
        kind: s.require(kind, "kind", "\"ipmi\"", f),
        level: s.integer("level", 1..=99, f),
        scope: Field::Absent,
        timeout: Field::Absent,
        typical: Field::Absent,
        settle: Field::Absent,
        over: Field::Absent,
        ipmi: None,
        exec: None,
        other: None,
        address_span: ADDRESS_KEYS.iter().find_map(|key| s.value_span(key)),
        secret_span: SECRET_KEYS.iter().find_map(|key| s.value_span(key)),
    };
    let Some(kind) = raw.kind.as_ref().map(|k| k.value) else { return raw };
    if kind != Kind::Manual {
        read_limits(&mut raw, &mut s, f);
    }
    match kind {
        Kind::Ipmi => raw.ipmi = Some(ipmi(&mut s, f)),
        Kind::Exec => raw.exec = Some(exec(&mut s, f)),
        Kind::Manual => {}
        _ => raw.other = super::agents::read(kind, &mut s, f),
    }
    s.of_kind(KINDS.iter().find(|(_, k)| *k == kind).map_or("", |(word, _)| word));
    s.finish(f);
    raw
}

/// What every agent has that acts by itself.
fn read_limits(raw: &mut Agent, s: &mut Section<'_>, f: &mut Findings) {
    raw.scope = s.word("scope", &[("node", Scope::Node), ("resource", Scope::Resource)], f);
    raw.timeout = s.fence_limit("timeout", f);
    raw.typical = s.duration("typical", Least::Millisecond, f);
    raw.settle = s.duration("settle", Least::Zero, f);
    raw.over = s.name("over", f);
}

fn ipmi(s: &mut Section<'_>, f: &mut Findings) -> Ipmi {
    let address = s.string("address", f);
    let user = s.string("user", f);
    Ipmi {
        address: s.require(address, "address", "\"192.0.2.11\"", f),
        port: s.integer("port", 1..=65535, f),
        user: s.require(user, "user", "\"fence\"", f),
        password: super::agents::password::read(s, f),
        cipher_suite: s.integer("cipher_suite", 0..=255, f),
        privilege: s.word("privilege", &[("administrator", "ADMINISTRATOR"), ("operator", "OPERATOR")], f),
        stable_reads: s.integer("stable_reads", 1..=20, f),
        poll: s.duration("poll", Least::Millisecond, f),
        independent_power: s.word("power", &[("host", false), ("independent", true)], f),
        identity: s.word("identity", &[("uuid", IdentityCheck::Uuid), ("none", IdentityCheck::None)], f),
    }
}

fn exec(s: &mut Section<'_>, f: &mut Findings) -> Exec {
    let program = s.path("program", f);
    Exec {
        program: s.require(program, "program", "\"/usr/local/libexec/fence-outlet\"", f),
        args: s.strings("args", f),
        settings: s.strings_by_key("settings", f),
        take: s.boolean("take", f),
    }
}

fn timing(root: &mut Section<'_>, fence: FenceTiming, f: &mut Findings) -> Timing {
    let mut heartbeat = root.table("heartbeat", f);
    let mut lease = root.table("lease", f);
    let mut guard = root.table("guard", f);
    let mut promote = root.table("promote", f);
    let mut join = root.table("join", f);
    let mut leave = root.table("leave", f);
    let after = [("fence", PromoteAfter::Fence), ("fence+lease", PromoteAfter::FenceAndLease)];
    let processes = [("required", GuardProcess::Required), ("none", GuardProcess::None)];
    let raw = Timing {
        interval: heartbeat.duration("interval", Least::Millisecond, f),
        dead_after: heartbeat.duration("dead_after", Least::Millisecond, f),
        round_trip: heartbeat.duration("round_trip", Least::Zero, f),
        term: lease.duration("term", Least::Millisecond, f),
        margin: lease.duration("margin", Least::Millisecond, f),
        pause: lease.duration("pause", Least::Zero, f),
        wall_check: lease.boolean("wall_check", f),
        drift_ppm: lease.integer("drift_ppm", 0..=50_000, f),
        watchdog: watchdog(&mut guard, f),
        reset: guard.duration("reset", Least::Zero, f),
        guard_process: guard.word("process", &processes, f),
        guard_device: guard.path("device", f),
        head_start: fence.head_start,
        fence_bound: fence.bound,
        promote_after: promote.word("after", &after, f),
        start_backoff: promote.duration("start_backoff", Least::Millisecond, f),
        join_wait: join.duration("wait", Least::Millisecond, f),
        join_fence: join.boolean("fence", f),
        boot_time: join.duration("boot_time", Least::Millisecond, f),
        leave_timeout: leave.duration("timeout", Least::Millisecond, f),
    };
    [heartbeat, lease, guard, promote, join, leave].into_iter().for_each(|s| s.finish(f));
    raw
}

fn watchdog(guard: &mut Section<'_>, f: &mut Findings) -> Field<Watchdog> {
    guard.shape("watchdog", "\"none\", \"auto\" or a duration");
    let word = guard.if_string("watchdog");
    let given = |value, span| Field::Given(At { value, span });
    match word.as_ref().map(|w| w.value.as_str()) {
        Some("none") => given(Watchdog::None, word.map(|w| w.span).unwrap_or_default()),
        Some("auto") => given(Watchdog::Auto, word.map(|w| w.span).unwrap_or_default()),
        _ => match guard.duration("watchdog", Least::Millisecond, f) {
            Field::Given(at) => given(Watchdog::After(at.value), at.span),
            Field::Absent => Field::Absent,
            Field::Bad => Field::Bad,
        },
    }
}

fn control(mut s: Section<'_>, f: &mut Findings) -> Control {
    let raw = Control {
        socket: s.path("socket", f),
        read_group: s.string("read_group", f),
        command_group: s.string("command_group", f),
    };
    s.finish(f);
    raw
}

fn paths(mut s: Section<'_>, f: &mut Findings) -> Paths {
    let raw = Paths { state: s.path("state", f), runtime: s.path("runtime", f) };
    s.finish(f);
    raw
}
