//! What goes into the core and what comes out: plain values, each with its obligation.
//!
//! The driver calls [`super::Node::handle_input`] for everything that happened and
//! [`super::Node::handle_timeout`] when [`super::Node::poll_timeout`] has passed; after each call it takes
//! outputs with [`super::Node::poll_output`] until there are none, and puts them into effect **in that order**.
//! An output never waits for a slow one before it: `Persist`, fencing and resources run beside the loop and
//! report back as inputs. What must wait for them, the core itself holds back.

use std::fmt;

use super::ids::{AgentSet, BootId, Incarnation, Token};
use super::message::{Datagram, Standing};
use super::record::{ProofKind, Record};
use super::time::{Instant, Span};

/// Version of the record within one daemon's life, rising by one with each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Generation(pub u64);

/// One probe, attempt, take or question to the fence agents; an answer names the job that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Job(pub u64);

/// One start or stop of the resource group; an answer of an older epoch is stale and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

/// What a fence agent's success covers (protocol section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Only the named resources are protected; the peer still runs and can fence back.
    Resource,
    /// Nothing on the peer acts any more.
    Node,
}

/// The verified outcome of one fence attempt. `Unknown` never promotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FenceResult {
    /// Verified by reading back; `verified_by` are the agents that read it.
    Confirmed { scope: Scope, verified_by: AgentSet },
    /// The device said no, or read back that the peer still acts; `highest` when a store named its token.
    Refused { highest: Option<Token> },
    /// Nobody knows.
    Unknown,
}

/// What a status probe read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PowerReading {
    /// Every outlet and supply of the node reads off, stably.
    Off {
        verified_by: AgentSet,
    },
    On,
    Unknown,
}

/// The `seen` of an exclusive take (protocol section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// The stored token must be at most this, or minted by the caller's node.
    AtMost(Token),
    /// Whatever is stored (after `Confirmed` or a verified fence of node scope).
    Whatever,
}

/// The compare-and-swap at the resource: succeeds iff `new` is above the stored token and the stored one satisfies `seen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Take {
    pub new: Token,
    pub seen: Seen,
}

/// The outcome of a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeResult {
    /// Stored durably, peer revoked, own access restored, all verified.
    Taken,
    /// Refused; the store names its highest token.
    Refused {
        highest: Token,
    },
    Unknown,
}

/// Something happened.
#[allow(clippy::large_enum_variant)] // a datagram is the common case, and inputs are never stored
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// An authentic datagram arrived (opened by `wire`, from any link).
    Datagram(Datagram),
    /// The record of this generation is durable.
    Persisted(Generation),
    /// Writing or syncing failed. Final: the driver must not write that file again.
    PersistFailed(Generation),
    ProbeDone {
        job: Job,
        reading: PowerReading,
    },
    FenceDone {
        job: Job,
        result: FenceResult,
    },
    /// Highest token stored by any agent or resource; `None` when a store could not be asked.
    HighestRead {
        job: Job,
        highest: Option<Token>,
    },
    TakeDone {
        job: Job,
        result: TakeResult,
    },
    /// Whether this node's own access to the resources is verified.
    AccessDone {
        job: Job,
        assured: bool,
    },
    /// All resources are up.
    ResourcesStarted(Epoch),
    /// A resource failed to start, or failed for good while up. Those that are up stay up until `StopResources`.
    ResourcesFailed(Epoch),
    /// Nothing of the service is left here, verified.
    ResourcesStopped(Epoch),
    /// The stop could not be verified within its budget; the driver goes on trying.
    StopStuck(Epoch),
    /// The resources' own word on whether this node could serve.
    Readiness(bool),
    /// Whether no level of the fence plan is proven to work. Only told to the peer, for its operator.
    CannotFence(bool),
    /// The virtual machine's generation id changed: this guest was restored, copied or moved.
    GenerationIdChanged,
    /// The wall clock jumped forward against the boot clock, by more than the margin allows for a pause: this guest stood
    /// still, and no clock of its own noticed (`lease.wall_check`).
    WallClockJumped,
    /// Whether at least one heartbeat link of this node could be bound.
    LinksUsable(bool),
}

/// An operator asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Planned handover to the peer. `force` goes on although the standby is not admitted yet.
    Failover {
        force: bool,
    },
    /// Shoot the peer by the plan, now.
    Fence,
    /// Fence a healthy standby, and bring it back: whether the plan works is known before it is needed.
    Drill,
    /// The operator saw that the peer is down (protocol section 1, `Confirmed`).
    ConfirmFenced {
        incident: u64,
        uid: u32,
    },
    Freeze,
    Thaw,
    /// Clean stop of this daemon: hand over or leave, then [`Output::Finished`].
    Stop,
    /// End this daemon and leave the resources up, of a pair that is frozen on both nodes; then [`Output::Finished`].
    StopKeeping,
    /// A node without a record may promote.
    Init,
    /// The operator has looked at the alarms (rolled-back record, lying devices) and clears them.
    ClearAlarms,
}

/// Why the core does what it does: the trace, the journal and `why` print these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    LeaseEnded,
    StaleToken { peer_holds: Token },
    Handover,
    Leaving,
    StartFailed,
    ResourceFailed,
    TakeRefused { highest: Token },
    GenerationIdChanged,
    WallClockJumped,
    Joining,
    LostLeaseDuringStart,
}

/// Why this node will not promote, or not hand over, right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hindrance {
    Frozen,
    NotReady,
    PeerNotReady,
    RolledBack,
    NoRecordNoContact,
    DigestDiffers,
    RecordNotWritable,
    NeverAdmitted,
    OutWithoutNodeFence,
    NoAgent,
    ReplicatedAlone,
    PoweredOnPeerNeverHeard,
    Settling,
    Leaving,
    PeerSilent,
    NotAdmitted,
    Stopping,
    TokensUsedUp,
    NoWorkingLink,
    StartFailed,
    PowerUnknown,
}

/// The driver must do this. Outputs are put into effect in order.
#[allow(clippy::large_enum_variant)] // a datagram is the common case, and the queue is short
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Seal and send on every link. Everything that it relies on is durable already.
    Send(Datagram),
    /// Write and sync the record off the loop, then answer `Persisted` or `PersistFailed`. One at a time.
    Persist { generation: Generation, record: Record },
    /// Read the peer's power (agents of node scope, but not `excluded`), then answer `ProbeDone`.
    StartProbe { job: Job, excluded: AgentSet },
    /// Run the fence plan (for an exclusive plan: this take), then answer `FenceDone`. Agents in `excluded` prove nothing.
    StartFence { job: Job, token: Token, take: Option<Take>, excluded: AgentSet, deadline: Instant },
    /// The answer of this job is no longer wanted; its effects may still land.
    CancelJob(Job),
    /// Ask every agent and resource that stores tokens, then answer `HighestRead`.
    ReadHighest { job: Job },
    /// The take immediately before a start or a re-mint, then answer `TakeDone`.
    Take { job: Job, take: Take },
    /// Make sure of this node's own access (unfence), verified, then answer `AccessDone`.
    EnsureAccess { job: Job, token: Token },
    /// Set the guard's deadline and write the run-time lease record BEFORE anything that follows. With `sole`
    /// the lease needs no grant.
    ArmLease { deadline: Instant, token: Token, sole: bool },
    /// Remove the run-time lease record and fix the guard's deadline here, BEFORE the first resource stops.
    DisarmLease { deadline: Instant },
    /// Refuse and reset the clients at once, whatever else is slow.
    CutClients,
    /// Start the group in order under this token; between any two steps check the armed deadline and this epoch.
    StartResources { epoch: Epoch, token: Token, proof: ProofKind },
    /// A daemon of this boot left the group running under this token: watch it, start nothing; what is not running
    /// answers `ResourcesFailed`.
    AdoptResources { epoch: Epoch, token: Token },
    /// Stop in reverse order, verify that nothing is left, answer `ResourcesStopped`. Ends a start under way.
    StopResources { epoch: Epoch, reason: StopReason },
    /// The primary goes on under a newer token: tell the service.
    TokenChanged { token: Token },
    /// Switch the fenced peer on again.
    PowerOn { job: Job },
    /// Note in the run-time record of this boot that the peer was heard.
    NoteContact,
    /// Tell the journal, `why` and `status`.
    Report(Event),
    /// The clean stop is over: the daemon may end.
    Finished,
}

/// How loud an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Info,
    Notice,
    Warning,
    Alarm,
}

/// A decision or an observation, with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Started { record_found: bool },
    LeaseAdopted { token: Token, left: Span },
    ContactMade { peer: Incarnation, boot: BootId },
    PeerRestarted { peer: Incarnation, rebooted: bool },
    PeerDoubtful { silence: Span },
    PeerLost { silence: Span, incident: u64 },
    ContactRegained,
    BecameStandby { standing: Standing },
    StandingChanged { from: Standing, to: Standing },
    Claimed { token: Token },
    ClaimWithdrawn { token: Token },
    GrantedFirst { token: Token },
    ProbeStarted,
    AttemptStarted { token: Token, number: u32 },
    AttemptFailed { result: FenceResult, retry_in: Span },
    AttemptVoided,
    AttemptCalledOff,
    AttemptTooLate { needs: Span, left: Span },
    ProofObtained { proof: ProofKind },
    ProofVoided { proof: ProofKind },
    ProofWaits { proof: ProofKind, wait: Span },
    Promoting { proof: ProofKind, token: Token },
    Promoted { proof: ProofKind, token: Token },
    Serving { token: Token },
    WentSole { proof: Option<ProofKind> },
    Admitted { peer: Incarnation },
    TokenReminted { from: Token, to: Token },
    TakeFailed { result: TakeResult },
    AccessFailed,
    Demoting { reason: StopReason, token: Token },
    Released { token: Token },
    ReleaseWithdrawn { token: Token },
    HandoverRefusedByPeer { token: Token },
    CannotPromote { token: Token, because: Hindrance },
    Waiting { because: Hindrance },
    StopStuck,
    Frozen,
    Thawed,
    Confirmed { uid: u32, incident: u64 },
    StalePeer { held: Token },
    DeviceLied { boot: BootId, agents: AgentSet },
    PeerRolledBack { announced: Token, once: Token },
    RolledBack,
    AlarmsCleared,
    RecordUnwritable,
    DigestDiffers,
    DigestAgrees,
    PeerLeaving,
    LeaveAcknowledged,
    LeaveUnacknowledged,
    OperatorFence,
    OperatorFenceDone { result: FenceResult },
    PowerOnDue { number: u32 },
    PowerOnLimit { limit: u32 },
    DrillBegun,
    DrillPowersOn,
    DrillDone,
    DrillFailed,
    Stopping,
    KeepsResources { token: Token },
}

/// Why a command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    NotPrimary,
    NotNow(Hindrance),
    PeerInContact,
    WrongIncident { current: u64 },
    NothingToConfirm,
    AlreadyStopping,
    AlreadyFrozen,
    NotFrozen,
    PeerNotFrozen,
    NotServing,
    NoAgent,
    YieldingNode,
    NothingToDrill,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Resource => "resource",
            Scope::Node => "node",
        })
    }
}
