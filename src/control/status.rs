//! The public picture of a node, as `leasehold status --json` prints it.
//!
//! Raw numbers carry their unit in the name; ages count from `at`. The daemon fills it in, the command line renders
//! it, other programs read it: a field may be added, none goes and none changes its meaning within a version.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::figures::{Figures, Stalls, Stops};
use super::reply::Version;
use crate::core;

/// Everything about this node, and what it knows of its peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub cluster: String,
    /// Wall clock of this node when the picture was taken.
    pub at: Timestamp,
    pub version: Version,
    pub uptime_ms: u64,
    pub me: Me,
    pub peer: Peer,
    pub lease: Lease,
    pub can_fail_over: CanFailOver,
    /// Whether some level of the fence plan against the peer is proven, all its agents; null while nothing is known, and
    /// where only an operator's word fences.
    #[serde(default)]
    pub can_fence: Option<bool>,
    /// Every fence agent that this node runs.
    #[serde(default)]
    pub fencing: Vec<Fencing>,
    #[serde(default)]
    pub fence_journal: FenceJournal,
    /// Why a take-over or a start does not go on.
    pub blocked: Option<Blocked>,
    /// Contact is lost: what an operator confirms is bound to this.
    pub incident: Option<Incident>,
    pub frozen: bool,
    pub alarms: Vec<Alarm>,
    pub resources: Vec<Resource>,
    /// Whether the clients of the service get through to this node.
    #[serde(default)]
    pub clients: Clients,
    pub links: Vec<Link>,
    pub last_proof: Option<Proof>,
    /// The last drill that this node made; null when it never made one.
    #[serde(default)]
    pub last_drill: Option<Drill>,
    pub record: Record,
    pub stalls: Stalls,
    /// How long orderly stops of the whole group took, against S.
    #[serde(default)]
    pub stops: Stops,
    /// Filled in by the control server itself.
    #[serde(default)]
    pub control: Figures,
}

/// This node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Me {
    pub name: String,
    pub role: Role,
    /// The token under which this node acts now; null when it does not.
    pub token: Option<u64>,
    /// The highest token that this node has seen.
    pub highest_token: u64,
    pub standing: Standing,
    /// This node's resources say that it could serve.
    pub ready: bool,
    /// Why not, in words.
    #[serde(default)]
    pub not_ready: Option<String>,
    /// A standby: the primary has admitted it. A primary: it has admitted its peer.
    pub admitted: bool,
}

/// The other node, as last heard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    pub name: String,
    pub contact: Contact,
    /// Since the last contact; null when it was never heard by this daemon.
    pub silence_ms: Option<u64>,
    /// What it last said; null when it was never heard by this daemon.
    pub said: Option<Said>,
    /// The system UUID of its machine, by its own word; null while that is not known.
    #[serde(default)]
    pub uuid: Option<String>,
}

/// What the peer's last datagram says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    pub role: Role,
    pub token: Option<u64>,
    pub standing: Standing,
    pub ready: bool,
    /// Its datagrams show that it receives ours.
    pub hears_us: bool,
    /// Its safety-relevant configuration is another one than ours.
    pub config_differs: bool,
    pub leaving: bool,
    /// No level of its fence plan is proven: it would not take over.
    pub cannot_fence: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contact {
    Never,
    Present,
    /// Silent for D/2.
    Doubtful,
    /// Silent for D.
    Lost,
}

/// By what right this node acts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    pub kind: LeaseKind,
    /// Until this node must stop, unless renewed.
    pub left_ms: Option<u64>,
    /// The same as a wall-clock time.
    pub deadline: Option<Timestamp>,
    /// Until the lease that this node may have given its peer has ended for certain.
    pub promised_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseKind {
    /// This node does not act.
    None,
    /// Granted by the peer, again and again.
    Granted,
    /// Without the peer's grant: the peer was proven harmless, or left.
    Sole,
}

/// Whether the service can be handed to the other node right now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CanFailOver {
    pub answer: Verdict,
    /// Why not. Empty with `yes`.
    pub reasons: Vec<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Yes,
    No,
}

/// One fence agent, as it was last proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fencing {
    pub agent: String,
    /// The node that it fences; this one, where the peer shoots with it and this node lets itself in again.
    pub target: String,
    /// `ipmi`, `exec`, and so on.
    pub kind: String,
    pub level: u32,
    /// `node` or `resource`.
    pub scope: String,
    pub state: FencingState,
    /// Since it was last proven; null when it never was by this daemon.
    pub age_ms: Option<u64>,
    /// Since it was last looked at, with whatever result.
    pub looked_ms: Option<u64>,
    /// Why it could not fence now.
    pub faults: Vec<String>,
    pub notes: Vec<String>,
    /// Whose machine the device says that it controls: `proven`, `foreign`, `unknown`.
    pub identity: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FencingState {
    /// The last look found nothing wrong, and is not old.
    Proven,
    /// The last look found a fault, or is older than three intervals.
    Failing,
    /// Not looked at yet; a person never is.
    Never,
}

/// The journal of fence attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FenceJournal {
    /// Number of the newest entry that this daemon wrote; 0 when it wrote none.
    pub entries: u64,
    /// Attempts since then that could not be written.
    pub missed: u64,
    /// Why, while that lasts.
    pub error: Option<String>,
}

/// Why something does not go, and what ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub text: String,
    pub remedy: Option<String>,
}

/// A take-over or start that does not go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    pub reason: Reason,
    pub since_ms: u64,
    /// Fence attempts made in this incident.
    pub attempts: u32,
    pub retry_in_ms: Option<u64>,
}

/// One loss of contact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Goes into `confirm-fenced`.
    pub id: u64,
    pub since_ms: u64,
    /// What probes and fence agents have read so far, newest last: an operator sees this before confirming.
    pub evidence: Vec<Evidence>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub at: Timestamp,
    pub agent: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Stable name, such as `device-lied`.
    pub kind: String,
    pub text: String,
    pub since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    pub name: String,
    pub state: ResourceState,
    /// The newest line about it: why it failed, what it waits for.
    pub detail: Option<String>,
    /// What it is doing now, of what takes long or must be known.
    #[serde(default)]
    pub progress: Option<Progress>,
}

/// One step of a rejoin, or the state of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// One of several steps, by a stable name; null for a state.
    pub step: Option<String>,
    /// All of it in words, for people.
    pub text: String,
    pub percent: Option<u8>,
    pub done_bytes: Option<u64>,
    pub total_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceState {
    Stopped,
    Starting,
    Up,
    Stopping,
    Failed,
    /// Its stop could not be verified.
    Stuck,
}

/// The clients of the service, on this node, and the last cut of this daemon. Its times count from the decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clients {
    pub state: ClientsState,
    /// Until new connections were refused.
    pub refused_us: Option<u64>,
    /// Until those that were there had been reset.
    pub reset_us: Option<u64>,
    /// How many that were.
    pub reset: Option<u32>,
    /// What this machine lacks for it.
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientsState {
    /// The configuration names nothing that could be cut.
    #[default]
    None,
    /// They get through; the cut is prepared.
    Open,
    /// They are refused.
    Cut,
    /// They get through, and could not be cut.
    Unable,
}

/// One heartbeat link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub name: String,
    pub local: String,
    pub remote: String,
    pub flow: Flow,
    /// Since the last authentic datagram on this link; null when there was none.
    pub heard_ms: Option<u64>,
    /// Of the peer's recent datagrams, how many in a thousand did not arrive on this link.
    pub loss_permille: u32,
    pub round_trip_us: Option<u64>,
    /// Datagrams from this address that were not accepted, by kind, since the daemon started.
    pub rejected: BTreeMap<String, u64>,
    /// The newest of them, while they still arrive.
    pub rejecting: Option<Rejecting>,
    /// The newest send error, while sending still fails.
    pub send_error: Option<String>,
}

/// Which way datagrams get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    Both,
    /// We hear it, it does not hear us.
    InOnly,
    /// It hears us, we do not hear it.
    OutOnly,
    /// Nothing authentic arrives, and nothing says whether ours do.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejecting {
    /// A key of `rejected`.
    pub kind: String,
    /// The reason in words.
    pub text: String,
    pub ago_ms: u64,
}

/// The proof by which a token was last held here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    pub kind: ProofKind,
    pub token: u64,
    /// Null when an earlier life of the daemon obtained it.
    pub at: Option<Timestamp>,
    pub evidence: Vec<Evidence>,
}

/// One drill: the primary fenced its standby, and brought it back. The times count from the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    /// The standby.
    pub node: String,
    pub at: Timestamp,
    pub state: DrillState,
    /// Until it was read back as off.
    pub off_ms: Option<u64>,
    /// Until it was told to go on again; null where it came back by itself.
    pub on_ms: Option<u64>,
    /// Until it was heard again.
    pub contact_ms: Option<u64>,
    /// Until it could have taken over.
    pub ready_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrillState {
    Running,
    /// The standby is back, and could take over.
    Ready,
    /// It was not verified to be off, or this node stopped being primary meanwhile.
    Failed,
}

/// The durable record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub state: RecordState,
    /// How long the write under way has taken so far.
    pub writing_ms: Option<u64>,
    /// The slowest write of this daemon's life.
    pub slowest_ms: u64,
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    Ok,
    /// None yet: promotes only after contact or `init-record`.
    Missing,
    RolledBack,
    Unwritable,
}

/// Defines the public twin of a plain enum of the core: the core knows no serde.
macro_rules! twin {
    ($(#[$doc:meta])* $name:ident { $($variant:ident),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($variant),+ }

        impl From<core::$name> for $name {
            fn from(plain: core::$name) -> $name {
                match plain { $(core::$name::$variant => $name::$variant),+ }
            }
        }

        impl From<$name> for core::$name {
            fn from(public: $name) -> core::$name {
                match public { $($name::$variant => core::$name::$variant),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                core::$name::from(*self).fmt(f)
            }
        }
    };
}

twin!(
    /// What a node does for the service.
    Role { Joining, Standby, TakingOver, Primary, Demoting }
);
twin!(
    /// What a node may assume of its peer, durably.
    Standing { Paired, Sole, Out }
);
twin!(
    /// The five proofs that a peer cannot act.
    ProofKind { Fenced, Released, Rebooted, Confirmed, Agreed }
);
twin!(
    /// How loud a decision is.
    Severity { Info, Notice, Warning, Alarm }
);

impl From<core::Hindrance> for Reason {
    fn from(hindrance: core::Hindrance) -> Reason {
        Reason { text: hindrance.cause().into(), remedy: hindrance.remedy().map(str::to_owned) }
    }
}
