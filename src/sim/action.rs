//! What a script, or the swarm, does to a world at a given time.

use crate::core::{Command, NodeId};

use super::disk::DiskMode;
use super::fence::DeviceMode;
use super::links::Path;
use super::machine::Pause;
use super::matching::Pattern;
use super::text::Range;

/// Which directions of which links are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wires {
    /// Senders whose direction is meant.
    pub from: [bool; 2],
    /// One link, or all of them.
    pub link: Option<u8>,
}

/// A change of how paths behave; what is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathChange {
    pub delay: Option<Range>,
    pub loss: Option<u32>,
    pub reorder: Option<u32>,
    pub duplicate: Option<u32>,
    pub corrupt: Option<u32>,
    pub flap: Option<(u64, u64)>,
}

impl PathChange {
    pub fn apply(&self, path: &mut Path) {
        path.delay = self.delay.unwrap_or(path.delay);
        path.loss = self.loss.unwrap_or(path.loss);
        path.reorder = self.reorder.unwrap_or(path.reorder);
        path.duplicate = self.duplicate.unwrap_or(path.duplicate);
        path.corrupt = self.corrupt.unwrap_or(path.corrupt);
        path.flap = self.flap.or(path.flap);
    }
}

/// What a script does with single datagrams; times are true times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snatch {
    pub from: NodeId,
    pub pattern: Pattern,
    pub how: SnatchHow,
    pub count: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnatchHow {
    Drop { until: Option<u64> },
    Hold { until: u64 },
    Repeat { at: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskAction {
    Mode(DiskMode),
    Save,
    Restore,
    Wipe,
    Damage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupAction {
    StartFails,
    StartHangs,
    StopHangs,
    KillHangs,
    Works,
    Fail,
    Ready(bool),
}

/// An operator's word to one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Plain(Command),
    /// `confirm-fenced` of the incident that this daemon named last.
    Confirm,
}

/// One thing done to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Start(NodeId),
    KillDaemon(NodeId),
    RestartDaemon(NodeId),
    Pause {
        node: NodeId,
        what: Pause,
        length: u64,
    },
    /// The kernel dies; power stays on and nothing restarts it.
    Crash(NodeId),
    /// Reset: back after this time (or after the usual boot time).
    Reboot {
        node: NodeId,
        after: Option<u64>,
    },
    /// Someone switches the machine off; its power controller still answers.
    PowerOff(NodeId),
    /// The power is gone, for the power controller too where it shares it.
    PowerCut(NodeId),
    PowerOn(NodeId),
    Cut(Wires),
    Heal(Wires),
    HealAll,
    Change {
        wires: Wires,
        change: PathChange,
    },
    Snatch(Snatch),
    Bmc {
        node: NodeId,
        mode: DeviceMode,
    },
    Store {
        node: NodeId,
        mode: DeviceMode,
    },
    /// Someone changes the storage's list of revoked nodes by hand.
    Revoke {
        node: NodeId,
        revoked: bool,
    },
    Disk {
        node: NodeId,
        action: DiskAction,
    },
    Group {
        node: NodeId,
        action: GroupAction,
    },
    Operator {
        node: NodeId,
        operator: Operator,
    },
    Set {
        key: String,
        value: String,
    },
    GenerationId(NodeId),
    /// Every fault ends: links, devices, disks and groups work, power is back, dead daemons start.
    Mend,
}
