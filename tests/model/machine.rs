//! One machine: power, daemon, disk, run-time record, guard, and what of the service really runs there.

use std::rc::Rc;

use leasehold::core::{BootId, Epoch, Generation, Instant, Node, NodeId, Record, RunTime, Token};

use super::setup::STOP;

pub const NO_RUN_TIME: RunTime = RunTime { had_contact: false, lease: None };

/// What is being done to the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doing {
    Nothing,
    Starting(Epoch),
    Stopping(Epoch),
}

/// What acts for the service here, whatever the daemon believes.
#[derive(Debug, Clone, Copy, Hash)]
pub struct Service {
    pub active: bool,
    /// Every resource came up under a daemon that saw it.
    pub whole: bool,
    pub doing: Doing,
    pub epoch: Epoch,
    pub token: Token,
}

#[derive(Debug, Clone)]
pub struct Machine {
    pub id: NodeId,
    pub powered: bool,
    /// The kernel runs.
    pub up: bool,
    pub boots: u8,
    pub lives: u8,
    pub daemon: Option<Rc<Node>>,
    pub ready: bool,
    pub disk: Option<Record>,
    /// A write that takes its time.
    pub writing: Option<(Generation, Record)>,
    /// When the longest stall of the disk is over.
    pub stalled_until: Option<Instant>,
    pub run_time: RunTime,
    pub deadline: Option<Instant>,
    /// The guard's deadline is that of a lease-free right.
    pub sole: bool,
    pub service: Service,
}

impl Machine {
    pub fn new(id: NodeId) -> Machine {
        let service =
            Service { active: false, whole: false, doing: Doing::Nothing, epoch: Epoch(0), token: Token::NONE };
        Machine {
            id,
            powered: true,
            up: true,
            boots: 1,
            lives: 0,
            daemon: None,
            ready: true,
            disk: None,
            writing: None,
            stalled_until: None,
            run_time: NO_RUN_TIME,
            deadline: None,
            sole: false,
            service,
        }
    }

    pub fn boot_id(&self) -> BootId {
        BootId([0xa0 + 0x10 * self.id.index() as u8 + self.boots; 16])
    }

    /// When the guard kills: the latest that the margin allows.
    pub fn kill_at(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.service.active).map(|d| d.after(STOP))
    }

    /// The daemon's process ends; the service stays as it is.
    pub fn end_daemon(&mut self, landed: bool) {
        self.daemon = None;
        self.stalled_until = None;
        if let Some((_, record)) = self.writing.take()
            && landed
        {
            self.disk = Some(record);
        }
        if self.service.doing != Doing::Nothing {
            self.service.whole = false;
        }
        self.service.doing = Doing::Nothing;
    }

    /// Power, kernel or both are gone.
    pub fn go_down(&mut self, powered: bool, landed: bool) {
        self.end_daemon(landed);
        self.powered = powered;
        self.up = false;
        self.service.active = false;
        self.service.whole = false;
        self.run_time = NO_RUN_TIME;
        self.deadline = None;
        self.sole = false;
    }
}
