//! `/etc/leasehold/gate.toml` on the storage server: what each gate guards, and by which names each node comes.
//!
//! ```toml
//! state = "/var/lib/leasehold/gate"
//!
//! [[gate]]
//! name = "estuary"
//! kind = "knfsd"
//! paths = ["/srv/estuary"]
//! node = [                       # in the order of leasehold.toml: the first mints even tokens
//!     { name = "heron", clients = ["192.0.2.1"] },
//!     { name = "plover", clients = ["192.0.2.2"] },
//! ]
//! ```
//!
//! Keys that nothing reads are errors: here a misspelt one leaves a door open.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ganesha::Ganesha;
use super::knfsd::Knfsd;
use super::lio::Lio;
use super::tgt::Tgt;
use super::{clients, initiators};
use crate::core::{NodeId, Token};

/// Where `leasehold gate` looks for it.
pub const PATH: &str = "/etc/leasehold/gate.toml";
/// Where the records lie unless `state` says otherwise.
const STATE: &str = "/var/lib/leasehold/gate";
/// A configuration is a few KiB; whatever is larger is another file.
const LARGEST: u64 = 1 << 20;

/// Everything that this storage server guards.
#[derive(Debug, Clone)]
pub struct Gates {
    /// `state`: the directory of the records.
    pub state: PathBuf,
    pub gates: Vec<Gate>,
}

/// One protected resource and the pair that shares it.
#[derive(Debug, Clone)]
pub struct Gate {
    pub name: String,
    /// In the order of the pair's own configuration: the first node mints even tokens, the second odd ones.
    pub nodes: [Node; 2],
    pub kind: Kind,
}

/// A node, as the storage server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub name: String,
    /// NFS: its addresses, all of them.
    #[serde(default)]
    pub clients: Vec<String>,
    /// iSCSI: the names of its initiators, all of them.
    #[serde(default)]
    pub initiators: Vec<String>,
}

/// What serves the resource, with the keys of that kind.
#[derive(Debug, Clone)]
pub enum Kind {
    Knfsd(Knfsd),
    Ganesha(Ganesha),
    Tgt(Tgt),
    Lio(Lio),
}

/// Why the file cannot be used: all that is wrong with it, a line each.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", path.display(), findings.join("\n  "))]
pub struct GateConfigError {
    pub path: PathBuf,
    pub findings: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    state: Option<PathBuf>,
    #[serde(default)]
    gate: Vec<toml::Table>,
}

/// What every kind has.
#[derive(Debug, Deserialize)]
struct Common {
    name: String,
    kind: String,
    node: Vec<Node>,
}

/// The keys that [`Common`] has read: the rest belongs to the kind.
const COMMON: [&str; 3] = ["name", "kind", "node"];

impl Gates {
    pub fn load(path: &Path) -> Result<Gates, GateConfigError> {
        let wrong = |what: String| GateConfigError { path: path.to_owned(), findings: vec![what] };
        let text = read(path).map_err(wrong)?;
        Gates::parse(&text).map_err(|findings| GateConfigError { path: path.to_owned(), findings })
    }

    pub fn parse(text: &str) -> Result<Gates, Vec<String>> {
        let raw: RawFile = toml::from_str(text).map_err(|error| vec![error.to_string()])?;
        let mut findings = Vec::new();
        let gates: Vec<Gate> = raw.gate.into_iter().filter_map(|table| one(table, &mut findings)).collect();
        if gates.is_empty() && findings.is_empty() {
            findings.push("there is no [[gate]]: name what this server guards".to_owned());
        }
        for (i, gate) in gates.iter().enumerate() {
            if gates[..i].iter().any(|other| other.name == gate.name) {
                findings
                    .push(format!("two gates are called {:?}: each has its own record, so name them apart", gate.name));
            }
        }
        let state = raw.state.unwrap_or_else(|| STATE.into());
        if !state.is_absolute() {
            findings.push(format!("`state` {state:?} does not begin with `/`: the gate runs in no certain directory"));
        }
        if findings.is_empty() { Ok(Gates { state, gates }) } else { Err(findings) }
    }

    pub fn gate(&self, name: &str) -> Option<&Gate> {
        self.gates.iter().find(|gate| gate.name == name)
    }
}

impl Gate {
    pub fn node_names(&self) -> [String; 2] {
        self.nodes.each_ref().map(|node| node.name.clone())
    }

    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        [NodeId::First, NodeId::Second].into_iter().find(|id| self.node(*id).name == name)
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Whether this node mints such tokens: a different order of the nodes in the two files would let both win.
    pub fn mints(&self, node: NodeId, token: Token) -> bool {
        token.minter() == Some(node)
    }
}

/// Whoever may write this file may lock any node out, and let any in.
fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let file = std::fs::File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != 0 && meta.uid() != me {
        return Err(format!("owned by uid {}, who could let anybody in; chown it to root", meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("others may write to it (mode {:04o}); chmod go-w it", meta.mode() & 0o7777));
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn one(mut table: toml::Table, findings: &mut Vec<String>) -> Option<Gate> {
    let shown = table.get("name").and_then(toml::Value::as_str).unwrap_or("without a name").to_owned();
    let mut tell = |what: String| findings.push(format!("gate {shown}: {what}"));
    let common: Common = match table.clone().try_into() {
        Ok(common) => common,
        Err(error) => {
            tell(error.to_string().trim().to_owned());
            return None;
        }
    };
    COMMON.iter().for_each(|key| {
        table.remove(*key);
    });
    let nodes: [Node; 2] = match common.node.try_into() {
        Ok(nodes) => nodes,
        Err(nodes) => {
            let count = Vec::<Node>::len(&nodes);
            tell(format!("it has {count} nodes; write the two of the pair, in the order of leasehold.toml"));
            return None;
        }
    };
    let mut wrong: Vec<String> = [&common.name, &nodes[0].name, &nodes[1].name].into_iter().filter_map(plain).collect();
    if nodes[0].name == nodes[1].name {
        wrong.push(format!("both nodes are called {:?}", nodes[0].name));
    }
    let kind = kind(&common.kind, table, &nodes);
    match kind {
        Ok(kind) if wrong.is_empty() => return Some(Gate { name: common.name, nodes, kind }),
        Ok(_) => {}
        Err(more) => wrong.extend(more),
    }
    wrong.into_iter().for_each(tell);
    None
}

/// The keys of the kind, and the names of the nodes that it needs.
fn kind(word: &str, table: toml::Table, nodes: &[Node; 2]) -> Result<Kind, Vec<String>> {
    let (kind, mut wrong) = match word {
        "knfsd" => {
            let keys: Knfsd = keys(table)?;
            let wrong = keys.check();
            (Kind::Knfsd(keys), wrong)
        }
        "ganesha" => {
            let keys: Ganesha = keys(table)?;
            let wrong = keys.check();
            (Kind::Ganesha(keys), wrong)
        }
        "tgt" => {
            let keys: Tgt = keys(table)?;
            let wrong = keys.check();
            (Kind::Tgt(keys), wrong)
        }
        "lio" => {
            let keys: Lio = keys(table)?;
            let wrong = keys.check();
            (Kind::Lio(keys), wrong)
        }
        other => return Err(vec![format!("`kind` {other:?} is none of \"knfsd\", \"ganesha\", \"tgt\", \"lio\"")]),
    };
    match &kind {
        Kind::Knfsd(_) | Kind::Ganesha(_) => wrong.extend(check_clients(nodes)),
        Kind::Tgt(_) | Kind::Lio(_) => wrong.extend(initiators::check(nodes)),
    }
    if wrong.is_empty() { Ok(kind) } else { Err(wrong) }
}

/// Each node by addresses of its own: a name is looked up by whoever answers first, and a shared address is both.
fn check_clients(nodes: &[Node; 2]) -> Vec<String> {
    let mut wrong = Vec::new();
    for node in nodes {
        if node.clients.is_empty() {
            wrong.push(format!("node {} has no `clients`: write all addresses from which it comes", node.name));
        }
        if !node.initiators.is_empty() {
            wrong.push(format!("node {} has `initiators`, which NFS does not know", node.name));
        }
        let odd = node.clients.iter().filter(|client| client.parse::<std::net::IpAddr>().is_err());
        wrong.extend(
            odd.map(|client| format!("client {client:?} of {}: write an address, such as \"192.0.2.1\"", node.name)),
        );
    }
    let [first, second] = nodes.each_ref().map(|node| node.clients.iter().filter_map(|c| clients::address(c)));
    let second: Vec<_> = second.collect();
    wrong.extend(first.filter(|ip| second.contains(ip)).map(|ip| format!("both nodes have the address {ip}")));
    wrong
}

/// Reads the keys of one kind; unknown ones are errors.
pub(super) fn keys<T: DeserializeOwned>(table: toml::Table) -> Result<T, Vec<String>> {
    table.try_into().map_err(|error: toml::de::Error| vec![error.to_string().trim().to_owned()])
}

/// Names stand in file names and in messages.
fn plain(name: &String) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = !name.is_empty() && name.len() <= 63 && name.chars().all(fits) && !name.starts_with('.');
    (!good).then(|| format!("the name {name:?}: use 1 to 63 letters, digits, `-`, `_` and `.`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "[[gate]]\nname = \"estuary\"\nkind = \"knfsd\"\npaths = [\"/srv/estuary\"]\n\
        node = [{ name = \"heron\", clients = [\"192.0.2.1\"] }, { name = \"plover\", clients = [\"192.0.2.2\"] }]\n";

    #[test]
    fn the_order_of_the_nodes_says_who_mints_what() {
        let gates = Gates::parse(RIGHT).unwrap();
        let gate = gates.gate("estuary").unwrap();
        let (heron, plover) = (gate.node_id("heron").unwrap(), gate.node_id("plover").unwrap());
        assert!(gate.mints(heron, Token(8)) && !gate.mints(heron, Token(9)) && !gate.mints(heron, Token::NONE));
        assert!(gate.mints(plover, Token(9)) && !gate.mints(plover, Token(8)));
        assert_eq!(gates.state, Path::new(STATE));
    }

    #[test]
    fn what_would_leave_a_door_open_is_refused_with_its_reason() {
        for (from, to, word) in [
            ("paths =", "path =", "unknown field"),
            ("[\"/srv/estuary\"]", "[]", "empty"),
            ("/srv/estuary", "/srv/../etc", "realpath"),
            ("/srv/estuary", "/srv/estuary/", "realpath"),
            ("192.0.2.2", "192.0.2.1", "both nodes have"),
            ("192.0.2.2", "::ffff:192.0.2.1", "both nodes have"),
            ("192.0.2.2", "plover.example", "write an address"),
            ("[\"192.0.2.2\"]", "[]", "no `clients`"),
            ("plover", "heron", "both nodes are called"),
            ("\"plover\", clients", "\"plover\", client", "unknown field"),
            ("\"estuary\"", "\"../estuary\"", "the name"),
            ("\"knfsd\"", "\"samba\"", "none of"),
            ("kind = \"knfsd\"\n", "kind = \"knfsd\"\noptions = \"rw,async\"\n", "async"),
            ("kind = \"knfsd\"\n", "kind = \"knfsd\"\noptions = \"ro\"\n", "rw"),
            ("[[gate]]\n", "state = \"here\"\n[[gate]]\n", "does not begin with"),
            (RIGHT, "", "no [[gate]]"),
        ] {
            assert!(RIGHT.contains(from), "{from}");
            let told = Gates::parse(&RIGHT.replacen(from, to, 1)).expect_err(to).join("\n");
            assert!(told.contains(word), "{to}: {told}");
        }
        assert!(Gates::parse(&[RIGHT, RIGHT].concat()).unwrap_err().join("").contains("two gates"));
    }
}
