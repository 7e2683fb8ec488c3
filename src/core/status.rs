//! What an observer may know of a node: a snapshot of plain values, for `status`, the simulator and the tests.

use super::detector::Presence;
use super::ids::{AgentSet, BootId, Incarnation, Seq, SystemUuid, Token};
use super::io::{FenceResult, Hindrance, PowerReading, StopReason};
use super::message::{Activity, Notices, Role, Standing};
use super::node::{Node, Resources, RoleState};
use super::record::{ProofKind, Record};
use super::time::{Instant, Span};

/// What runs of the service, without epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceState {
    Stopped,
    Starting,
    Up,
    Stopping,
}

/// One node as it sees itself and its peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub role: Role,
    pub standing: Standing,
    /// The record as it is on the disk.
    pub record: Record,
    /// The record cannot be written any more.
    pub record_failed: bool,
    /// Waiting for the disk.
    pub record_pending: bool,
    /// Never had a record and has not met its peer.
    pub recordless: bool,
    /// Held now, or last.
    pub token: Token,
    pub proof: Option<ProofKind>,
    /// A primary that acts without a lease.
    pub sole: bool,
    pub lease_left: Option<Span>,
    pub resources: ResourceState,
    pub ready: bool,
    /// A standby: the primary has admitted it. A primary: it has admitted its peer.
    pub admitted: bool,
    pub frozen: bool,
    pub stopping: bool,
    pub stop_reason: Option<StopReason>,
    pub activity: Activity,
    /// Failed attempts in this silence, the result of the last, and when the next is due.
    pub attempts: u32,
    pub last_attempt: Option<FenceResult>,
    pub retry_in: Option<Span>,
    pub last_reading: Option<PowerReading>,
    /// `TakingOver`, and the last attempt failed.
    pub blocked: bool,
    pub waiting_for: Option<Hindrance>,
    pub incident: u64,
    pub release: Option<Token>,
    pub distrusted: AgentSet,
    pub rolled_back: bool,
    pub peer_rolled_back: bool,
    pub digest_differs: bool,
    pub presence: Presence,
    pub silence: Span,
    pub peer: Option<PeerStatus>,
    /// Empty: yes, a failover would go through right now.
    pub hindrances: Vec<Hindrance>,
}

/// The peer as it last said itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerStatus {
    pub incarnation: Incarnation,
    pub boot: BootId,
    pub uuid: SystemUuid,
    pub seq: Seq,
    pub role: Role,
    pub standing: Standing,
    pub held_token: Token,
    pub holding: bool,
    pub resources_up: bool,
    pub ready: bool,
    pub activity: Activity,
    pub admitted_me: bool,
    pub notices: Notices,
    /// Since its last datagram that counted was received.
    pub age: Span,
}

impl Node {
    /// A snapshot.
    pub fn status(&self, now: Instant) -> Status {
        let written = *self.record.written();
        Status {
            role: self.role(),
            standing: written.standing,
            record: written,
            record_failed: self.record.failed(),
            record_pending: !self.record.is_idle(),
            recordless: self.recordless,
            token: written.held_token,
            proof: self.proof_of_role(),
            sole: self.acts_sole(),
            lease_left: self.right_until.map(|until| until.since(now)),
            resources: self.resource_state(),
            ready: self.is_ready,
            admitted: self.admitted().is_some() || self.named,
            frozen: self.frozen(),
            stopping: self.leaving(),
            stop_reason: self.stop_reason(),
            activity: self.shown_activity(),
            attempts: self.fencing.tries(),
            last_attempt: self.fencing.last_result(),
            retry_in: self.fencing.retry_at().map(|at| at.since(now)),
            last_reading: self.fencing.reading(),
            blocked: matches!(&self.role, RoleState::TakingOver(t) if !t.has_proof()) && self.fencing.has_failed(),
            waiting_for: self.told_waiting.or_else(|| self.promotion_unrecorded()),
            incident: self.incident,
            release: self.release.map(|r| r.token),
            distrusted: written.distrusted,
            rolled_back: written.rolled_back,
            peer_rolled_back: self.peer_record_is_old,
            digest_differs: self.digest_differs,
            presence: self.presence,
            silence: self.detector.silence(now),
            peer: self.peer_status(now),
            hindrances: self.failover_hindrances(now),
        }
    }

    /// A take-over with a proof in hand goes on only once its token is durable.
    fn promotion_unrecorded(&self) -> Option<Hindrance> {
        let takes_over = matches!(self.role, RoleState::TakingOver(_));
        (takes_over && self.record.failed()).then_some(Hindrance::RecordNotWritable)
    }

    /// Until when this node may have promised its peer not to start by the end of a lease.
    pub fn promised_until(&self) -> Instant {
        self.promise_end()
    }

    fn proof_of_role(&self) -> Option<ProofKind> {
        match &self.role {
            RoleState::Primary(p) => Some(p.proof()),
            RoleState::TakingOver(t) => t.proof_kind(),
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::Demoting(_) => self.record.written().held_proof,
        }
    }

    fn stop_reason(&self) -> Option<StopReason> {
        match &self.role {
            RoleState::Demoting(d) => Some(d.reason()),
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::TakingOver(_) | RoleState::Primary(_) => None,
        }
    }

    fn resource_state(&self) -> ResourceState {
        match self.resources {
            Resources::Stopped => ResourceState::Stopped,
            Resources::Starting(_) => ResourceState::Starting,
            Resources::Up(_) => ResourceState::Up,
            Resources::Stopping(_) => ResourceState::Stopping,
        }
    }

    /// From a primary: what stands in the way of handing over. From the other: what stands in the way of taking over.
    fn failover_hindrances(&self, now: Instant) -> Vec<Hindrance> {
        match self.role {
            RoleState::Primary(_) => self.handover_hindrances(now),
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::TakingOver(_) | RoleState::Demoting(_) => {
                self.shoot_hindrance().into_iter().collect()
            }
        }
    }

    fn peer_status(&self, now: Instant) -> Option<PeerStatus> {
        let accepted = self.peer.accepted()?;
        let said = &accepted.datagram;
        Some(PeerStatus {
            incarnation: said.incarnation,
            boot: said.boot,
            uuid: said.uuid,
            seq: said.seq,
            role: said.role,
            standing: said.standing,
            held_token: said.held_token,
            holding: said.holding,
            resources_up: said.resources_up,
            ready: said.ready,
            activity: said.activity,
            admitted_me: said.admitted == Some(self.identity.incarnation),
            notices: said.notices,
            age: now.since(accepted.received),
        })
    }
}
