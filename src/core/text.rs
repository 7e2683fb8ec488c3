//! What the core says, in words: traces, the journal, `why` and `status` print these.
//!
//! Each is one sentence for a tired reader: what happened, why, and, where nothing goes on without an operator,
//! the command that ends it. Nodes have no names here: "the peer" is the other one.

mod event;

use std::fmt::{self, Display, Formatter};

use super::ids::AgentSet;
use super::io::{FenceResult, Hindrance, PowerReading, Refusal, Severity, StopReason, TakeResult};
use super::message::{Role, Standing};
use super::record::ProofKind;

impl Display for Role {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Role::Joining => "joining",
            Role::Standby => "standby",
            Role::TakingOver => "taking over",
            Role::Primary => "primary",
            Role::Demoting => "demoting",
        })
    }
}

impl Display for Standing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Standing::Paired => "paired",
            Standing::Sole => "sole",
            Standing::Out => "out",
        })
    }
}

impl Display for ProofKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ProofKind::Fenced => "fenced",
            ProofKind::Released => "released",
            ProofKind::Rebooted => "rebooted",
            ProofKind::Confirmed => "confirmed",
            ProofKind::Agreed => "agreed",
        })
    }
}

impl ProofKind {
    /// What the proof says about the peer.
    pub fn meaning(self) -> &'static str {
        match self {
            ProofKind::Fenced => "the fence plan made the peer harmless and read that back",
            ProofKind::Released => "the peer stopped the service, verified that, and gave its token up",
            ProofKind::Rebooted => "the peer has rebooted since it last acted, and holds nothing",
            ProofKind::Confirmed => "an operator confirmed that the peer is down",
            ProofKind::Agreed => "both nodes are in contact, neither acts, and the peer granted the lease",
        }
    }
}

impl Display for Severity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Info => "info",
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Alarm => "alarm",
        })
    }
}

/// Agents by their place in the configuration, as `#1, #3`; counted from one, as people do.
impl Display for AgentSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no agent");
        }
        let mut separator = "agent ";
        for index in (0..32).filter(|&index| self.contains(index)) {
            write!(f, "{separator}#{}", index + 1)?;
            separator = ", ";
        }
        Ok(())
    }
}

impl Display for PowerReading {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PowerReading::Off { verified_by } => write!(f, "the peer's power reads off ({verified_by})"),
            PowerReading::On => f.write_str("the peer's power reads on"),
            PowerReading::Unknown => f.write_str("the peer's power could not be read"),
        }
    }
}

impl Display for FenceResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FenceResult::Confirmed { scope, verified_by } => {
                write!(f, "fence confirmed, {scope} scope, read back by {verified_by}")
            }
            FenceResult::Refused { highest: None } => {
                f.write_str("fence refused: the device said no, or the peer still acts")
            }
            FenceResult::Refused { highest: Some(token) } => {
                write!(f, "fence refused: the store already holds token {token}")
            }
            FenceResult::Unknown => f.write_str("fence unknown: no device could say whether the peer still acts"),
        }
    }
}

impl Display for TakeResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            TakeResult::Taken => f.write_str("the store took the token"),
            TakeResult::Refused { highest } => write!(f, "the store refused the token: it holds {highest}"),
            TakeResult::Unknown => f.write_str("nobody knows whether the store took the token"),
        }
    }
}

impl Display for StopReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::LeaseEnded => f.write_str("its lease ended without a new grant"),
            StopReason::StaleToken { peer_holds } => write!(f, "the peer holds the newer token {peer_holds}"),
            StopReason::Handover => f.write_str("planned handover to the peer"),
            StopReason::Leaving => f.write_str("clean stop of this daemon"),
            StopReason::StartFailed => f.write_str("a resource did not start; see the journal for which"),
            StopReason::ResourceFailed => f.write_str("a resource failed for good; see the journal for which"),
            StopReason::TakeRefused { highest } => write!(f, "the store refused the token: it holds {highest}"),
            StopReason::GenerationIdChanged => f.write_str("this virtual machine was restored, copied or moved"),
            StopReason::WallClockJumped => {
                f.write_str("the wall clock jumped forward: this machine may have stood still (lease.wall_check)")
            }
            StopReason::Joining => f.write_str("a starting daemon first makes sure that nothing runs here"),
            StopReason::LostLeaseDuringStart => f.write_str("the lease ended while resources were starting"),
        }
    }
}

impl Hindrance {
    /// Why, as a clause.
    pub fn cause(self) -> &'static str {
        match self {
            Hindrance::Frozen => "role changes are frozen",
            Hindrance::NotReady => "this node's resources say that it could not serve",
            Hindrance::PeerNotReady => "the peer's resources say that it could not serve",
            Hindrance::RolledBack => "this node's record is older than what it once announced",
            Hindrance::NoRecordNoContact => "this node has no record and has not heard its peer yet",
            Hindrance::DigestDiffers => "the two nodes run different safety-relevant configurations",
            Hindrance::RecordNotWritable => "this node's record cannot be written",
            Hindrance::NeverAdmitted => "no primary has admitted this node since its daemon started",
            Hindrance::OutWithoutNodeFence => {
                "this node is out: the peer may act without a lease, and no fence of node scope is configured"
            }
            Hindrance::NoAgent => "no fence agent is configured against the peer",
            Hindrance::ReplicatedAlone => "the data is replicated and the silent peer may hold newer data",
            Hindrance::PoweredOnPeerNeverHeard => {
                "the peer is powered on and was never heard since this machine booted"
            }
            Hindrance::Settling => "an `off` sent to the peer may still land",
            Hindrance::Leaving => "this daemon is stopping",
            Hindrance::PeerSilent => "the peer is silent",
            Hindrance::NotAdmitted => "the standby has not been admitted by the primary yet",
            Hindrance::Stopping => "resources are still being stopped",
            Hindrance::TokensUsedUp => "the token numbers are used up",
            Hindrance::NoWorkingLink => {
                "no heartbeat link of this node can be bound: it may be the one that is cut off"
            }
            Hindrance::StartFailed => "the resources failed on this node a moment ago",
            Hindrance::PowerUnknown => {
                "the peer was never heard since this machine booted, and its power cannot be read"
            }
        }
    }

    /// What ends it, where an operator can.
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Hindrance::Frozen => "`leasehold thaw` ends it",
            Hindrance::NotReady => "see this node's `ready` commands in the journal",
            Hindrance::PeerNotReady => {
                "see the peer's `ready` commands in its journal; it would hand the service straight back"
            }
            Hindrance::RolledBack => "make sure that its data is current, then `leasehold clear-alarms`",
            Hindrance::NoRecordNoContact => "start the peer's daemon, or, for a new pair, `leasehold init-record`",
            Hindrance::DigestDiffers => {
                "install the same file on both nodes, `leasehold check` it, restart the daemons"
            }
            Hindrance::RecordNotWritable => "mend the disk under the state directory, then restart this daemon",
            Hindrance::OutWithoutNodeFence | Hindrance::NoAgent | Hindrance::ReplicatedAlone => {
                "start the peer's daemon, or, if you saw that the peer is down, `leasehold confirm-fenced`"
            }
            Hindrance::NoWorkingLink => "mend this node's network; `leasehold status` shows what each link lacks",
            Hindrance::StartFailed => "see the journal for why; the next try comes by itself after `start_backoff`",
            Hindrance::PoweredOnPeerNeverHeard | Hindrance::PowerUnknown => {
                "start the peer's daemon or mend the links; to take over without it, `leasehold fence`, \
                 or, if you saw that it is down, `leasehold confirm-fenced`"
            }
            Hindrance::PeerSilent => "see `leasehold status` on both nodes, and the links",
            Hindrance::TokensUsedUp => {
                "this cannot happen in practice: a record is damaged; restore both from their backups"
            }
            Hindrance::NotAdmitted => "it asks by itself; `leasehold failover --force` does not wait for that",
            Hindrance::NeverAdmitted | Hindrance::Settling | Hindrance::Leaving | Hindrance::Stopping => return None,
        })
    }
}

impl Display for Hindrance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_with_remedy(f, self.cause(), self.remedy())
    }
}

impl Refusal {
    /// Why, as a clause.
    pub fn cause(self) -> String {
        match self {
            Refusal::NotPrimary => "this node is not the primary".into(),
            Refusal::NotNow(because) => because.cause().into(),
            Refusal::PeerInContact => "the peer is in contact: it is alive, whatever was seen".into(),
            Refusal::WrongIncident { current } => format!("that incident is over; the present one is {current}"),
            Refusal::NothingToConfirm => "there is nothing to confirm: no peer is lost".into(),
            Refusal::AlreadyStopping => "this daemon is stopping already".into(),
            Refusal::AlreadyFrozen => "the pair is frozen already".into(),
            Refusal::NotFrozen => "the pair is not frozen".into(),
            Refusal::PeerNotFrozen => {
                "the peer is not heard to be frozen: with nobody here to answer it could take over beside these resources".into()
            }
            Refusal::NotServing => "the resources here are not all up".into(),
            Refusal::NoAgent => "no fence agent is configured against the peer".into(),
            Refusal::YieldingNode => {
                "with a yielding plan this node may not shoot: it was not an admitted standby".into()
            }
            Refusal::NothingToDrill => {
                "the fence plan has no agent of node scope: a drill could not switch the standby off and on".into()
            }
        }
    }

    /// What to do instead, where there is something.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Refusal::NotPrimary => Some("give the command on the primary; `leasehold status` names it"),
            Refusal::NotNow(because) => because.remedy(),
            Refusal::PeerInContact => Some("look at `leasehold status`; to change roles use `leasehold failover`"),
            Refusal::WrongIncident { .. } => Some("look at the peer again, then repeat `leasehold confirm-fenced`"),
            Refusal::NoAgent => Some("if you saw that the peer is down, `leasehold confirm-fenced`"),
            Refusal::YieldingNode => {
                Some("restore the contact, or `leasehold confirm-fenced` once you saw the peer down")
            }
            Refusal::NothingToDrill => Some("`leasehold check --live` looks at the devices, without changing anything"),
            Refusal::PeerNotFrozen => Some(
                "start the peer's daemon and `leasehold freeze` while both are in contact, or stop in order: `leasehold stop`",
            ),
            Refusal::NotServing => Some("`leasehold status` says what is missing"),
            Refusal::NothingToConfirm | Refusal::AlreadyStopping | Refusal::AlreadyFrozen | Refusal::NotFrozen => None,
        }
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_with_remedy(f, &self.cause(), self.remedy())
    }
}

fn write_with_remedy(f: &mut Formatter<'_>, cause: &str, remedy: Option<&str>) -> fmt::Result {
    match remedy {
        Some(remedy) => write!(f, "{cause}; {remedy}"),
        None => f.write_str(cause),
    }
}
