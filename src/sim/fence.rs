//! Fence devices and the shared storage: what they do when asked, and what can go wrong on the way.
//!
//! A job is one request of one daemon. It lives here, outside the guests: it goes on while its caller is paused or
//! dead, and only its answer needs a living caller.

use crate::core::{
    AgentSet, FenceResult, Input, Job as JobId, NodeId, PowerReading, Scope, Seen, Take, TakeResult, Token,
};

/// The place of the power agent in the plan, and of the agent at the storage.
pub const POWER_AGENT: usize = 0;
pub const STORE_AGENT: usize = 1;

/// What a device, or one node's way to the storage, does with commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMode {
    Works,
    /// Says no.
    Refuses,
    /// Says yes, and shows it, and does nothing.
    Lies,
    Unreachable,
    /// The command is lost, reading works.
    LosesCommands,
    /// The command lands, nothing is heard of it.
    LosesAnswers,
    /// The command lands this much later.
    Late(u64),
}

/// The power controller of one node.
#[derive(Debug)]
pub struct Bmc {
    pub mode: DeviceMode,
    /// Off commands that it was sent.
    pub shots: u32,
}

/// The shared storage.
#[derive(Debug)]
pub struct Store {
    /// Each node's way to it.
    pub mode: [DeviceMode; 2],
    /// Highest token that it has accepted.
    pub token: Token,
    /// Nodes whose access is taken away.
    pub revoked: [bool; 2],
}

impl Store {
    pub fn new() -> Store {
        Store { mode: [DeviceMode::Works; 2], token: Token::NONE, revoked: [false; 2] }
    }

    /// The one atomic operation of an exclusive agent (protocol section 1).
    pub fn take(&mut self, caller: NodeId, take: Take) -> TakeResult {
        let known = match take.seen {
            Seen::Whatever => true,
            Seen::AtMost(seen) => self.token <= seen || self.token.minter() == Some(caller),
        };
        if take.new <= self.token || !known {
            return TakeResult::Refused { highest: self.token };
        }
        self.token = take.new;
        self.revoked[caller.peer().index()] = true;
        self.revoked[caller.index()] = false;
        TakeResult::Taken
    }
}

impl Default for Store {
    fn default() -> Self {
        Store::new()
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Probe,
    /// Power off; with `access`, the storage revokes as well.
    Off {
        access: bool,
    },
    /// The take of an exclusive plan, as its fence attempt.
    FenceTake(Take),
    /// Revocation without arbiter (yielding plan).
    Revoke,
    Take(Take),
    Highest,
    Access,
    PowerOn,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The request is on its way to the device.
    Sent,
    /// The command was given; the power is read back until it is off or the time is over.
    Polling,
}

/// One request on its way.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub caller: NodeId,
    pub life: u32,
    pub id: JobId,
    pub request: Request,
    pub excluded: AgentSet,
    /// True time at which the plan gives up.
    pub limit: u64,
    /// Half of the round trip drawn for this job.
    pub half: u64,
    pub stage: Stage,
    pub cancelled: bool,
}

impl Job {
    /// The answer when nobody knows.
    pub fn unknown(&self) -> Option<Input> {
        let job = self.id;
        match self.request {
            Request::Probe => Some(Input::ProbeDone { job, reading: PowerReading::Unknown }),
            Request::Off { .. } | Request::FenceTake(_) | Request::Revoke => {
                Some(Input::FenceDone { job, result: FenceResult::Unknown })
            }
            Request::Take(_) => Some(Input::TakeDone { job, result: TakeResult::Unknown }),
            Request::Highest => Some(Input::HighestRead { job, highest: None }),
            Request::Access => Some(Input::AccessDone { job, assured: false }),
            Request::PowerOn => None,
        }
    }

    /// The answer when the device says no.
    pub fn refused(&self, highest: Option<Token>) -> Option<Input> {
        let job = self.id;
        match self.request {
            Request::Off { .. } | Request::FenceTake(_) | Request::Revoke => {
                Some(Input::FenceDone { job, result: FenceResult::Refused { highest } })
            }
            Request::Probe | Request::Take(_) | Request::Highest | Request::Access | Request::PowerOn => self.unknown(),
        }
    }

    /// The answer when the plan has read back that the peer is harmless.
    pub fn confirmed(&self) -> Input {
        let (scope, agent) = match self.request {
            Request::FenceTake(_) | Request::Revoke => (Scope::Resource, STORE_AGENT),
            _ => (Scope::Node, POWER_AGENT),
        };
        let verified_by = AgentSet::EMPTY.with(agent);
        let trusted = !self.excluded.contains(agent);
        let result = if trusted { FenceResult::Confirmed { scope, verified_by } } else { FenceResult::Unknown };
        Input::FenceDone { job: self.id, result }
    }

    /// The answer of a probe that read this.
    pub fn read(&self, off: bool) -> Input {
        let reading = match (self.excluded.contains(POWER_AGENT), off) {
            (true, _) => PowerReading::Unknown,
            (false, true) => PowerReading::Off { verified_by: AgentSet::EMPTY.with(POWER_AGENT) },
            (false, false) => PowerReading::On,
        };
        Input::ProbeDone { job: self.id, reading }
    }

    /// Whether the storage is asked, and not a power controller.
    pub fn asks_store(&self) -> bool {
        !matches!(self.request, Request::Probe | Request::Off { .. } | Request::PowerOn)
    }
}

/// A command that reaches its device long after it was given up.
#[derive(Debug, Clone, Copy)]
pub enum Landing {
    PowerOff { target: NodeId, by: NodeId },
    Store { caller: NodeId, request: Request },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(new: u64, seen: Seen) -> Take {
        Take { new: Token(new), seen }
    }

    #[test]
    fn a_take_succeeds_only_above_the_stored_token_and_with_knowledge_of_it() {
        let mut store = Store::new();
        assert_eq!(store.take(NodeId::First, take(4, Seen::AtMost(Token(0)))), TakeResult::Taken);
        let stale = store.take(NodeId::Second, take(5, Seen::AtMost(Token(2))));
        assert_eq!(stale, TakeResult::Refused { highest: Token(4) });
        assert_eq!(store.take(NodeId::Second, take(3, Seen::Whatever)), TakeResult::Refused { highest: Token(4) });
        assert_eq!(store.take(NodeId::First, take(6, Seen::AtMost(Token(0)))), TakeResult::Taken, "own token");
        assert_eq!(store.revoked, [false, true]);
    }
}
