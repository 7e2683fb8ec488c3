//! The configuration as the rest of the program sees it: parsed, complete, consistent.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use super::agents::{
    AbortSupport, Ec2Access, Ec2Credentials, Ec2Power, Ec2Volume, FenceAgent, GateAgent, GateClient, Login,
    OPENSTACK_STABLE_READS, OpenstackCloud, OpenstackPower, OpenstackVolume, Persistence, RedfishAgent, ScsiPr,
    SystemName, Trust,
};
pub use super::raw::GuardProcess;
pub use super::resources::{
    AddressResource, Announce, Fsck, Interfaces, MountResource, OldCopy, PostgresResource, Probe, Rejoin, Synchronous,
    UnitResource,
};
use crate::core::{DataModel, Digest, FirstShooter, NodeId, Plan, PowerOn, PromoteAfter, Scope, Span};

/// Everything from one file, the same on both nodes.
#[derive(Debug, Clone)]
pub struct Config {
    /// `cluster.name`
    pub cluster: String,
    /// `cluster.key` or `cluster.key_credential`: where the key lies
    pub key: SecretSource,
    pub data: DataModel,
    /// In the order of the configuration: the first mints even tokens.
    pub nodes: [Node; 2],
    pub links: Vec<Link>,
    pub timing: Timing,
    pub guard: Guard,
    pub fence: Fence,
    pub resources: Vec<Resource>,
    pub service: Service,
    pub control: Control,
    pub paths: Paths,
    /// Of the safety-relevant part; travels in every heartbeat.
    pub digest: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
}

/// One heartbeat link: its own socket on each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// Address and port of each node, in the order of the nodes.
    pub addresses: [SocketAddr; 2],
    /// Bind to this device as well (SO_BINDTODEVICE), for each node.
    pub devices: [Option<String>; 2],
}

/// All parameters of protocol section 2, given or computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// H
    pub interval: Span,
    /// D
    pub dead_after: Span,
    /// T
    pub term: Span,
    /// M
    pub margin: Span,
    /// L
    pub head_start: Span,
    /// F: bound of one whole fence attempt, the longer of both directions
    pub fence_bound: Span,
    /// Longest `settle` of the agents
    pub settle: Span,
    /// P: tolerated pause
    pub pause: Span,
    /// A wall clock that jumps forward by more than P stops a primary.
    pub wall_check: bool,
    /// S: stop budget of all resources
    pub stop_budget: Span,
    /// R: time from "reset" to dead
    pub reset: Span,
    /// W: hardware watchdog time; `None` without a watchdog
    pub watchdog: Option<Span>,
    /// ρ in parts per million
    pub drift_ppm: u32,
    /// Assumed round trip
    pub round_trip: Span,
    pub join_wait: Span,
    pub join_fence: bool,
    pub boot_time: Span,
    pub leave_timeout: Span,
    pub start_backoff: Span,
    pub promote_after: PromoteAfter,
}

impl Timing {
    /// M − 2ρT − R: how long after the end of its right a node is reset unless its stop is verified.
    pub fn reset_after(&self) -> Span {
        self.margin.minus(super::timing::drift(self, self.term)).minus(self.reset)
    }
}

/// The guard section, but for its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    pub process: GuardProcess,
    /// The hardware watchdog, where `guard.watchdog` asks for one.
    pub device: PathBuf,
}

/// The fence section.
#[derive(Debug, Clone)]
pub struct Fence {
    pub plan: Plan,
    pub first: FirstShooter,
    pub power_on: PowerOn,
    /// How often every agent is proven ahead of need.
    pub probe_interval: Span,
    pub agents: Vec<Agent>,
}

/// One fence agent, aimed at one node.
#[derive(Debug, Clone)]
pub struct Agent {
    pub name: String,
    /// The node that this agent fences.
    pub target: NodeId,
    /// Levels are tried in rising order; all agents of a level must confirm.
    pub level: u32,
    pub scope: Scope,
    /// Limit of one whole attempt with its verification; zero for a manual agent, which answers at once.
    pub timeout: Span,
    /// How long it usually takes until an `off` has landed.
    pub typical: Span,
    /// How long a late `off` may still land.
    pub settle: Span,
    pub kind: AgentKind,
}

#[derive(Debug, Clone)]
pub enum AgentKind {
    Ipmi(IpmiAgent),
    Redfish(RedfishAgent),
    FenceAgent(FenceAgent),
    Ec2Power(Ec2Power),
    Ec2Volume(Ec2Volume),
    OpenstackPower(OpenstackPower),
    OpenstackVolume(OpenstackVolume),
    NfsExport(GateAgent),
    IscsiAcl(GateAgent),
    ScsiPr(ScsiPr),
    Exec(ExecAgent),
    Manual,
}

/// RMCP+ to a BMC, through `ipmitool`.
#[derive(Debug, Clone)]
pub struct IpmiAgent {
    pub address: String,
    pub port: u16,
    pub user: String,
    pub password: SecretSource,
    /// `None`: 17, then 3.
    pub cipher_suite: Option<u8>,
    /// `ADMINISTRATOR` or `OPERATOR`
    pub privilege: String,
    /// Off must be read this many times in a row, `poll` apart.
    pub stable_reads: u32,
    pub poll: Span,
    /// The BMC stays alive when its host has lost all power.
    pub independent_power: bool,
    pub identity: IdentityCheck,
}

/// Whether a device must name the machine that is meant before anything is sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityCheck {
    /// Its system UUID is compared with the one that the node told in its heartbeats.
    Uuid,
    /// For a device that shows another number than its machine's UUID.
    None,
}

/// Any program that speaks the exec contract of `leasehold-fence-exec(7)`.
#[derive(Debug, Clone)]
pub struct ExecAgent {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Free settings, handed over in the JSON of the environment variable `LEASEHOLD_FENCE`.
    pub settings: BTreeMap<String, String>,
    /// Has the operations `take` and `highest`.
    pub takes: bool,
}

/// Where a secret comes from. Never the value itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    File(PathBuf),
    /// A systemd credential: a file of this name in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

impl Display for SecretSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "{}", path.display()),
            SecretSource::Credential(name) => write!(f, "the credential {name}"),
        }
    }
}

/// The credential of this name in the directory that systemd made for the unit. One that came with a whole folder
/// (`LoadCredential=leasehold:/etc/leasehold/credentials`, systemd.exec(5)) has the first word before its name.
pub fn credential_in(directory: &Path, name: &str) -> PathBuf {
    let plain = directory.join(name);
    if plain.exists() { plain } else { directory.join(format!("leasehold_{name}")) }
}

/// Where it lies for a person outside of the unit, such as one who runs `leasehold check --live`.
pub const CREDENTIALS: &str = "/etc/leasehold/credentials";

/// What holds for the group as a whole.
#[derive(Debug, Clone, Default)]
pub struct Service {
    /// At most one failover because of a failed resource within this time; later failures leave the service down.
    pub flap_window: Span,
    /// TCP ports on which clients are cut on every address of this machine, beside those of the group's addresses.
    pub cut_ports: Vec<u16>,
    /// Where `/primary`, `/standby`, `/token` and `/status` are served; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// Told of each new token: the pid file of a process that gets SIGHUP, or a command.
    pub notify: Option<Vec<String>>,
}

/// One resource of the group, in order of starting.
#[derive(Debug, Clone)]
pub struct Resource {
    pub name: String,
    pub start_timeout: Span,
    /// Share of the stop budget S, SIGKILL and verification included.
    pub stop_timeout: Span,
    /// Refuses writes of an older token.
    pub checks_token: bool,
    /// Starts and stops beside the resource before it, on which it does not depend.
    pub beside: bool,
    /// How often it is restarted in place within `restart_window` before it counts as failed for good.
    pub restarts: u32,
    pub restart_window: Span,
    pub kind: ResourceKind,
}

#[derive(Debug, Clone)]
pub enum ResourceKind {
    Exec(ExecResource),
    Address(AddressResource),
    Unit(UnitResource),
    Mount(MountResource),
    Postgres(PostgresResource),
}

/// A program in its own process group.
#[derive(Debug, Clone)]
pub struct ExecResource {
    /// The service itself: runs in the foreground until stopped.
    pub start: Vec<String>,
    /// Asks it to stop; without it SIGTERM goes to the process group.
    pub stop: Option<Vec<String>>,
    /// Exit status 0: it serves. Run each `interval`.
    pub status: Option<Vec<String>>,
    pub interval: Span,
    /// Exit status 0: this node could serve.
    pub ready: Option<Vec<String>>,
    /// `true`: `start` runs in the foreground and is the service; `false`: `start` returns when the service is up.
    pub foreground: bool,
    pub environment: BTreeMap<String, String>,
    pub user: Option<String>,
    pub directory: Option<PathBuf>,
}

/// The control socket.
#[derive(Debug, Clone)]
pub struct Control {
    pub socket: PathBuf,
    /// Members may ask for status.
    pub read_group: Option<String>,
    /// Members may give commands, beside root.
    pub command_group: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Paths {
    /// Durable record and fence journal, `/var/lib/leasehold`.
    pub state: PathBuf,
    /// Run-time lease record, lock and control socket, `/run/leasehold`. Must not outlive a boot.
    pub runtime: PathBuf,
}

impl Config {
    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        [NodeId::First, NodeId::Second].into_iter().find(|id| self.nodes[id.index()].name == name)
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The agents that fence `target`, in the order of the configuration.
    pub fn agents_against(&self, target: NodeId) -> impl Iterator<Item = &Agent> {
        self.fence.agents.iter().filter(move |a| a.target == target)
    }
}
