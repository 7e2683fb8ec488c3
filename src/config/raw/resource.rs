//! `[[resource]]` and `[service]`: what fails over.

use std::ops::Range;
use std::path::PathBuf;

use super::super::checked::ResourceKind;
use super::super::value::{At, Field, Findings, Least, Section};
use super::PerNode;
use crate::core::Span;

#[derive(Debug)]
pub struct Resource {
    pub span: Range<usize>,
    pub name: Option<At<String>>,
    pub start_timeout: Field<Span>,
    pub stop_timeout: Field<Span>,
    pub checks_token: Field<bool>,
    pub start: Option<At<Vec<String>>>,
    pub stop: Field<Vec<String>>,
    pub status: Field<Vec<String>>,
    pub ready: Field<Vec<String>>,
    pub interval: Field<Span>,
    pub foreground: Field<bool>,
    pub environment: PerNode,
    pub user: Field<String>,
    pub directory: Field<PathBuf>,
    pub beside: Field<bool>,
    pub restarts: Field<u32>,
    pub restart_window: Field<Span>,
    pub kind: Option<ResourceWord>,
    /// Every kind but exec, read and checked at once.
    pub other: Option<ResourceKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceWord {
    Exec,
    Address,
    Unit,
    Mount,
    Postgres,
}

/// The kinds of resources by their names in the file.
pub const RESOURCE_KINDS: [(&str, ResourceWord); 5] = [
    ("exec", ResourceWord::Exec),
    ("address", ResourceWord::Address),
    ("unit", ResourceWord::Unit),
    ("mount", ResourceWord::Mount),
    ("postgres", ResourceWord::Postgres),
];

/// `[service]`
#[derive(Debug)]
pub struct Service {
    pub flap_window: Field<Span>,
    pub cut_ports: Field<Vec<u16>>,
    pub http: Field<std::net::SocketAddr>,
    pub notify: Field<Vec<String>>,
}

/// One resource: what all kinds have, then what its own adds.
pub fn resource(mut s: Section<'_>, f: &mut Findings) -> Resource {
    let name = s.name("name", f);
    let kind = s.word("kind", &RESOURCE_KINDS, f);
    let kind = s.require(kind, "kind", "\"exec\"", f).map(|k| k.value);
    let mut raw = Resource {
        span: s.span.clone(),
        name: s.require(name, "name", "\"service\"", f),
        start_timeout: s.duration("start_timeout", Least::Millisecond, f),
        stop_timeout: s.duration("stop_timeout", Least::Millisecond, f),
        checks_token: s.boolean("checks_token", f),
        start: None,
        stop: Field::Absent,
        status: Field::Absent,
        ready: Field::Absent,
        interval: Field::Absent,
        foreground: Field::Absent,
        environment: Vec::new(),
        user: Field::Absent,
        directory: Field::Absent,
        beside: s.boolean("beside", f),
        restarts: s.integer("restarts", 0..=100, f),
        restart_window: s.duration("restart_window", Least::Millisecond, f),
        kind,
        other: None,
    };
    match kind {
        Some(ResourceWord::Exec) => exec_resource(&mut raw, &mut s, f),
        Some(other) => {
            raw.other = super::super::resources::read(other, &mut s, f);
            s.of_kind(RESOURCE_KINDS.iter().find(|(_, k)| *k == other).map_or("", |(word, _)| word));
        }
        None => return raw,
    }
    s.finish(f);
    raw
}

fn exec_resource(raw: &mut Resource, s: &mut Section<'_>, f: &mut Findings) {
    let start = s.command("start", f);
    raw.start = s.require(start, "start", "[\"/usr/sbin/serviced\"]", f);
    raw.stop = s.command("stop", f);
    raw.status = s.command("status", f);
    raw.ready = s.command("ready", f);
    raw.interval = s.duration("interval", Least::Millisecond, f);
    raw.foreground = s.boolean("foreground", f);
    raw.environment = s.strings_by_key("environment", f);
    raw.user = s.string("user", f);
    raw.directory = s.path("directory", f);
}

/// What holds for the group as a whole.
pub fn service(mut s: Section<'_>, f: &mut Findings) -> Service {
    let raw = Service {
        flap_window: s.duration("flap_window", Least::Millisecond, f),
        cut_ports: s.ports("cut_ports", f),
        http: s.socket_address("http", f),
        notify: s.command("notify", f),
    };
    s.finish(f);
    raw
}
