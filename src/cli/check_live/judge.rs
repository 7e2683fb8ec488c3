//! What one agent alone cannot see: that it controls the machine of another, or of whoever asks.

use super::{Fault, Row};
use crate::config::Config;
use crate::core::{NodeId, Scope, SystemUuid};
use crate::fence::{Identity, Reading};
use crate::os::machine;

/// What is known of the nodes without their devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub me: NodeId,
    /// The system UUID of each node, in the order of the configuration.
    pub uuids: [Option<SystemUuid>; 2],
    /// The peer's daemon is heard: its machine is on.
    pub peer_runs: bool,
}

impl Known {
    fn runs(&self, node: NodeId) -> bool {
        node == self.me || self.peer_runs
    }
}

/// Adds what the agents' own looks could not tell. Only agents of node scope control a machine of one node: a volume
/// or an export is rightly the same for both.
pub fn judge(config: &Config, known: &Known, rows: &mut [Row]) {
    let found: Vec<Vec<Fault>> = rows.iter().map(|row| faults(config, known, row, rows)).collect();
    rows.iter_mut().zip(found).for_each(|(row, found)| row.faults.extend(found));
}

fn faults(config: &Config, known: &Known, row: &Row, all: &[Row]) -> Vec<Fault> {
    if row.scope != Scope::Node {
        return Vec::new();
    }
    [reads_off(config, known, row), another_node(config, known, row), shared(config, row, all)]
        .into_iter()
        .flatten()
        .collect()
}

/// A machine that runs reads on, through every device that it has.
fn reads_off(config: &Config, known: &Known, row: &Row) -> Option<Fault> {
    let name = &config.node(row.target).name;
    (row.reading == Reading::Off && known.runs(row.target)).then(|| Fault {
        text: format!("reads off while {name} runs: it controls another machine, or an outlet that feeds nothing"),
        remedy: format!("find the device of {name}, and correct the address, outlet or name in the configuration"),
    })
}

/// The machine behind the device is known, and is that of the other node.
fn another_node(config: &Config, known: &Known, row: &Row) -> Option<Fault> {
    let other = row.target.peer();
    let seen = row.identity.as_deref().and_then(machine::uuid_given);
    is_machine(known.uuids[other.index()], seen).then(|| {
        let (target, other_name) = (&config.node(row.target).name, &config.node(other).name);
        let whose = if other == known.me { "this node itself" } else { "the other node" };
        Fault {
            text: format!("controls {whose}: its device is that of {other_name}, and it is to fence {target}"),
            remedy: format!("exchange the addresses of the agents of {other_name} and {target}"),
        }
    })
}

/// The same machine behind agents that are aimed at both nodes.
fn shared(config: &Config, row: &Row, all: &[Row]) -> Option<Fault> {
    let twin = all.iter().find(|other| {
        other.scope == Scope::Node && other.target != row.target && is_same(&other.identity, &row.identity)
    })?;
    let (mine, other) = (&config.node(row.target).name, &config.node(twin.target).name);
    Some(Fault {
        text: format!(
            "its device is the one behind {} as well ({}): a fence of {mine} would be one of {other}",
            twin.name,
            row.identity.as_deref().unwrap_or_default()
        ),
        remedy: "give each node's agent the device of its own node".to_owned(),
    })
}

/// UUIDs in either byte order; anything else by the letter.
fn is_same(a: &Option<String>, b: &Option<String>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return false };
    match (machine::uuid_given(a), machine::uuid_given(b)) {
        (Some(a), Some(b)) => is_machine(Some(a), Some(b)),
        (None, None) => a == b,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// A BMC may tell a UUID with its least significant byte first (IPMI 2.0, 22.14).
fn is_machine(known: Option<SystemUuid>, seen: Option<SystemUuid>) -> bool {
    let reversed = seen.map(|SystemUuid(mut bytes)| {
        bytes.reverse();
        SystemUuid(bytes)
    });
    [seen, reversed].into_iter().any(|seen| Identity::compare(known, seen) == Identity::Proven)
}
