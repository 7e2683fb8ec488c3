//! The one datagram type (protocol section 5), as plain data. `wire` turns it into bytes.

use super::ids::{BootId, Digest, Incarnation, NodeId, Seq, SystemUuid, Token};
use super::time::Span;

/// What a node is doing for the service (protocol section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Joining,
    Standby,
    TakingOver,
    Primary,
    Demoting,
}

/// What a node may assume of its peer, durably (protocol section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The peer acts only under my grants.
    Paired,
    /// The peer was proven harmless and has not been re-admitted; I act without its grant.
    Sole,
    /// The peer may be acting without a lease.
    Out,
}

/// A take-over under way, as the sender shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    Idle,
    /// A fence attempt is under way.
    Attempt,
    /// A proof is in hand and not yet used up.
    Proof,
}

/// Which datagram of the receiver the sender received last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Echo {
    pub incarnation: Incarnation,
    pub seq: Seq,
}

/// A grant: valid for this holder, this token and this renewal alone. `term` is the grantor's T.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    pub holder: Incarnation,
    pub token: Token,
    pub seq: Seq,
    pub term: Span,
}

/// What the sender tells beyond its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Notices {
    /// The sender is about to end and takes over nothing.
    pub leave: bool,
    /// The sender is frozen, or (from a primary) asks its standby to freeze.
    pub freeze: bool,
    /// The sender cannot promote by the release of this token.
    pub cannot: Option<Token>,
    /// To the receiver: your record is older than what you once announced.
    pub rolled_back: bool,
    /// For people at the receiver: no level of the sender's fence plan is proven. Nothing is decided by it.
    pub cannot_fence: bool,
}

/// One datagram. Sent on every link at each interval, and at once in answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Datagram {
    pub sender: NodeId,
    pub incarnation: Incarnation,
    pub boot: BootId,
    pub seq: Seq,
    pub role: Role,
    /// The token under which the sender asks to start by `Agreed`.
    pub claim: Option<Token>,
    /// The highest token that the sender has seen (durable).
    pub highest_token: Token,
    /// The token last held by the sender (durable).
    pub held_token: Token,
    /// The sender holds `held_token` now: as primary, or written with a proof.
    pub holding: bool,
    /// Something of the service may still be up on the sender.
    pub resources_up: bool,
    pub standing: Standing,
    /// The incarnation of the receiver that the sender, a primary, has admitted.
    pub admitted: Option<Incarnation>,
    /// The sender asks to be admitted.
    pub wish: bool,
    /// The sender's resources say that it could serve.
    pub ready: bool,
    pub activity: Activity,
    pub echo: Option<Echo>,
    pub grant: Option<Grant>,
    /// The token that the sender has given up, stopped and verified.
    pub release: Option<Token>,
    pub notices: Notices,
    pub digest: Digest,
    pub uuid: SystemUuid,
}
