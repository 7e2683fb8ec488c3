//! One machine: power, kernel, clock, daemon, guard, and what a pause holds back.

use crate::core::{BootId, Instant, Node, NodeId, RunTime};

use super::clock::Clock;
use super::disk::Disk;
use super::queue::Event;
use super::resources::Group;
use super::setup::NodeSetup;

/// The run-time directory of a machine that has just booted.
pub const NO_RUN_TIME: RunTime = RunTime { had_contact: false, lease: None };

/// What a pause stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// SIGSTOP of the daemon alone: the service acts on.
    Daemon,
    /// SIGSTOP of daemon and service.
    Processes,
    /// Suspend to memory: nothing runs, the boot clock counts.
    Suspend,
    /// The hypervisor stops the guest: nothing runs, no guest clock counts.
    Hypervisor,
}

/// A pause under way.
#[derive(Debug, Clone, Copy)]
pub struct Paused {
    pub what: Pause,
    pub since: u64,
}

/// A living daemon process.
#[derive(Debug)]
pub struct Daemon {
    pub node: Node,
    pub life: u32,
    /// True time of the earliest wake-up in the queue, so that none is queued twice.
    pub wake: u64,
    /// The core's timer for which that was computed.
    pub wake_for: Option<Instant>,
}

impl Daemon {
    pub fn new(node: Node, life: u32) -> Daemon {
        Daemon { node, life, wake: u64::MAX, wake_for: None }
    }

    /// The wake-up in the queue is used up, or was lost in a pause.
    pub fn forget_wake(&mut self) {
        self.wake = u64::MAX;
        self.wake_for = None;
    }
}

/// The independent enforcer (section 7): holds the deadline outside the daemon.
#[derive(Debug, Default)]
pub struct Guard {
    /// The end of the right, on this machine's boot clock.
    pub deadline: Option<Instant>,
    /// The lease-free deadline of a `Sole` primary.
    pub sole: bool,
    /// True time of the earliest look in the queue.
    pub look: Option<u64>,
    pub step: GuardStep,
}

/// How far the guard has gone since the deadline passed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum GuardStep {
    #[default]
    Watching,
    Cut,
    Killed,
    ResetOrdered,
}

#[derive(Debug)]
pub struct Machine {
    pub id: NodeId,
    pub powered: bool,
    /// The kernel runs (it may be paused).
    pub up: bool,
    /// A real loss of power, not a switched-off machine: a BMC on the same power is gone too.
    pub outage: bool,
    /// Number of this boot; events of another boot are stale.
    pub boots: u32,
    pub clock: Clock,
    pub paused: Option<Paused>,
    /// Serial of the pause, so that a stale `Resume` does nothing.
    pub pause_serial: u32,
    /// What happened to the paused, in order.
    pub deferred: Vec<Event>,
    pub daemon: Option<Daemon>,
    /// Lives of daemons on this machine, for stale answers.
    pub lives: u32,
    /// The service manager starts the daemon at boot.
    pub enabled: bool,
    pub runtime: RunTime,
    pub guard: Guard,
    pub group: Group,
    pub disk: Disk,
}

impl Machine {
    pub fn new(id: NodeId, setup: &NodeSetup) -> Machine {
        Machine {
            id,
            powered: true,
            up: true,
            outage: false,
            boots: 1,
            clock: Clock::booted(0, setup.drift),
            paused: None,
            pause_serial: 0,
            deferred: Vec::new(),
            daemon: None,
            lives: 0,
            enabled: false,
            runtime: NO_RUN_TIME,
            guard: Guard::default(),
            group: Group::new(setup.steps, setup.ready),
            disk: Disk::default(),
        }
    }

    /// The kernel's boot id of this boot, readable in traces: node, then number of the boot.
    pub fn boot_id(&self) -> BootId {
        let mut bytes = [0; 16];
        bytes[0] = 0xa0 + self.id.index() as u8;
        bytes[1..5].copy_from_slice(&self.boots.to_le_bytes());
        BootId(bytes)
    }

    /// The whole guest stands still.
    pub fn frozen(&self) -> bool {
        self.paused.is_some_and(|p| matches!(p.what, Pause::Suspend | Pause::Hypervisor))
    }

    /// This event must wait until a pause ends.
    pub fn holds_back(&self, event: Event) -> bool {
        match self.paused {
            None => false,
            Some(Paused { what: Pause::Daemon | Pause::Processes, .. }) => event.needs_daemon(),
            Some(Paused { what: Pause::Suspend | Pause::Hypervisor, .. }) => event.guest().is_some(),
        }
    }

    /// The service acts, right now, as seen from outside.
    pub fn acts(&self) -> bool {
        let stopped = self.paused.is_some_and(|p| p.what != Pause::Daemon);
        self.up && self.group.active() && !stopped
    }

    /// Clients are served, right now.
    pub fn serves(&self) -> bool {
        self.acts() && self.group.serving() && !self.group.cut
    }
}
