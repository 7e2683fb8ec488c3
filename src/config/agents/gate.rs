//! Storage servers that run `leasehold gate`: NFS exports and iSCSI access lists.

use std::path::PathBuf;

use super::super::diagnostics::Finding;
use super::super::value::{Field, Findings, Section};
use super::Facts;
use crate::core::Scope;

/// ssh(1).
const SSH_PORT: u32 = 22;
/// Exports and access lists are root's.
const USER: &str = "root";

/// How a node reaches a gate.
#[derive(Debug, Clone)]
pub struct GateClient {
    /// Host name or address.
    pub server: String,
    pub port: u16,
    pub user: String,
    /// The private key, for this alone; the server's `authorized_keys` ties it to `leasehold gate serve`.
    pub key_file: PathBuf,
    /// Holds the server's host key.
    pub known_hosts: PathBuf,
    /// Its name in the server's gate.toml.
    pub gate: String,
    /// In place of ssh: a program that hands one line to a gate. Empty but in tests, or where the gate is on the node.
    pub command: Vec<String>,
}

/// `kind = "nfs-export"` or `kind = "iscsi-acl"`: the gate knows what it guards, the node only how to ask it.
#[derive(Debug, Clone)]
pub struct GateAgent {
    kind: &'static str,
    pub gate: GateClient,
    /// `take`: the gate is the arbiter of the pair; else it adds to a plan of node scope.
    pub takes: bool,
}

impl Facts for GateAgent {
    fn scope(&self) -> Option<Scope> {
        Some(Scope::Resource)
    }

    fn takes(&self) -> bool {
        self.takes
    }

    fn device(&self) -> Vec<(String, String)> {
        let GateClient { server, port, gate, .. } = &self.gate;
        vec![(self.kind.to_owned(), format!("{server} {port} {gate} take {}", self.takes))]
    }

    fn address(&self) -> Option<&str> {
        self.gate.command.is_empty().then_some(self.gate.server.as_str())
    }
}

pub fn read(kind: &'static str, s: &mut Section<'_>, f: &mut Findings) -> Option<GateAgent> {
    let take = s.boolean("take", f);
    let gate = read_client(s, f)?;
    (!take.is_bad()).then(|| GateAgent { kind, gate, takes: take.value_or(true) })
}

fn read_client(s: &mut Section<'_>, f: &mut Findings) -> Option<GateClient> {
    let gate = s.name("gate", f);
    let gate = s.require(gate, "gate", "\"estuary\"", f);
    let command = s.command("command", f);
    let way = way(s, matches!(command, Field::Absent), f);
    let (user, port) = (s.name("user", f), s.integer("port", 1..=65535, f));
    if user.is_bad() || port.is_bad() || command.is_bad() {
        return None;
    }
    let (server, key_file, known_hosts) = way?;
    Some(GateClient {
        server,
        port: u16::try_from(port.value_or(SSH_PORT)).ok()?,
        user: user.value_or(USER.to_owned()),
        key_file,
        known_hosts,
        gate: gate?.value,
        command: command.value().unwrap_or_default(),
    })
}

/// Server, key, and the server's host key: all needed by ssh, and by nothing else.
fn way(s: &mut Section<'_>, by_ssh: bool, f: &mut Findings) -> Option<(String, PathBuf, PathBuf)> {
    let server = s.string("server", f);
    let (server, key, hosts) = (plain_host(server, f), s.path("key_file", f), s.path("known_hosts", f));
    if !by_ssh {
        let path = |field: &Field<PathBuf>| field.value().unwrap_or_default();
        return Some((server.value().unwrap_or_default(), path(&key), path(&hosts)));
    }
    let server = s.require(server, "server", "\"192.0.2.31\"", f);
    let key = s.require(key, "key_file", "\"/etc/leasehold/gate-key\"", f);
    let hosts = s.require(hosts, "known_hosts", "\"/etc/leasehold/gate-known-hosts\"", f);
    Some((server?.value, key?.value, hosts?.value))
}

/// A host that ssh would take for something else.
fn plain_host(server: Field<String>, f: &mut Findings) -> Field<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '%' | '_');
    let Field::Given(at) = &server else { return server };
    if at.value.chars().all(fits) && !at.value.starts_with('-') {
        return server;
    }
    let finding =
        Finding::error(format!("`server` {:?} is no host", at.value)).at(&at.span, "not a name or an address");
    f.push(finding.help("write a host name or an address; the user stands in `user`, the port in `port`"));
    Field::Bad
}
