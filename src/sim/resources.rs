//! The resource group of one node: what really acts for the service, whatever the daemon believes.

use crate::core::{Epoch, ProofKind, Token};

/// How the group behaves when asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupFaults {
    pub start_fails: bool,
    pub start_hangs: bool,
    /// The polite stop never returns; killing works.
    pub stop_hangs: bool,
    /// Not even killing works (a process in an uninterruptible sleep): only a reset of the machine helps.
    pub kill_hangs: bool,
}

/// What the group is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Nothing,
    Starting { epoch: Epoch },
    Stopping { epoch: Epoch, stuck: bool },
}

/// The ordered group of one node.
#[derive(Debug)]
pub struct Group {
    /// How many resources there are, and how many of them run, from the first on.
    pub steps: u32,
    pub up: u32,
    pub doing: Doing,
    /// Of the last start, which a later failure names.
    pub epoch: Epoch,
    /// The token that the service was started with or told of since.
    pub token: Token,
    pub proof: Option<ProofKind>,
    /// Serial of the step under way; an event of another serial is stale.
    pub op: u32,
    pub faults: GroupFaults,
    pub ready: bool,
    /// One resource failed for good while the others run.
    pub failed: bool,
    /// Clients were refused and reset.
    pub cut: bool,
}

impl Group {
    pub fn new(steps: u32, ready: bool) -> Group {
        let faults = GroupFaults { start_fails: false, start_hangs: false, stop_hangs: false, kill_hangs: false };
        Group {
            steps,
            up: 0,
            doing: Doing::Nothing,
            epoch: Epoch(0),
            token: Token::NONE,
            proof: None,
            op: 0,
            faults,
            ready,
            failed: false,
            cut: false,
        }
    }

    /// Something of the service may act: a resource runs, or is being started.
    pub fn active(&self) -> bool {
        self.up > 0 || matches!(self.doing, Doing::Starting { .. })
    }

    /// All of it runs.
    pub fn serving(&self) -> bool {
        self.up == self.steps && !self.failed && self.doing == Doing::Nothing
    }

    /// A new step of whatever is being done; what was scheduled before is stale.
    pub fn next_op(&mut self) -> u32 {
        self.op += 1;
        self.op
    }

    /// The machine lost power or was reset.
    pub fn vanish(&mut self) {
        self.next_op();
        self.up = 0;
        self.doing = Doing::Nothing;
        self.failed = false;
        self.cut = false;
    }

    /// The daemon died: what runs goes on running, what was under way stops where it is.
    pub fn orphan(&mut self) {
        self.next_op();
        if let Doing::Starting { .. } = self.doing {
            self.up = (self.up + 1).min(self.steps);
        }
        self.doing = Doing::Nothing;
    }
}
