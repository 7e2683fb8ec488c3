//! What fails over: an ordered group of resources, started under a token and stopped with evidence.
//!
//! ```text
//!   Group ── in order ──▶ Resource::start      each under the token, with may_continue between any two
//!         ◀─ reversed ──  Resource::stop       ask, then SIGKILL, then look whether anything is left
//!         ◀─ Failure ───  Resource::watch
//! ```
//!
//! "Stopped" is a reading of the machine, never a memory: a daemon that was just started knows as much about left-overs
//! of its predecessor as one that started them itself. For the same reason it can adopt a service that still runs.

mod account;
mod address;
mod cgroup;
mod exec;
mod group;
mod mount;
mod mounts;
mod output;
mod postgres;
mod progress;
mod search;
mod stop;
mod strikes;
mod unit;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use crate::core::{ProofKind, Role, Severity, Standing, Token};
use crate::os::net::cut::Spec;
use crate::process::{ProcessError, Untrusted};

pub use exec::Exec;
pub use group::{Group, MayContinue, Patience, StopResult};
pub use mount::Mount;
pub use postgres::Postgres;
pub use progress::{Progress, Share};
pub use unit::{Host, Unit};

/// An answer that comes later.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Under what a resource acts. Every program of it gets this in its environment: `LEASEHOLD_TOKEN`, `LEASEHOLD_ROLE`,
/// `LEASEHOLD_REASON`, `LEASEHOLD_PROOF` and `LEASEHOLD_NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub token: Token,
    pub role: Role,
    /// Why it starts or stops, in words.
    pub reason: String,
    pub proof: Option<ProofKind>,
}

impl Context {
    /// Of a node that holds nothing.
    pub fn idle(reason: impl Into<String>) -> Context {
        Context { token: Token::NONE, role: Role::Joining, reason: reason.into(), proof: None }
    }

    fn environment(&self) -> Vec<(String, String)> {
        let proof = self.proof.map_or("none", proof_word);
        let values = [
            ("LEASEHOLD_TOKEN", self.token.to_string()),
            ("LEASEHOLD_ROLE", role_word(self.role).to_owned()),
            ("LEASEHOLD_REASON", self.reason.clone()),
            ("LEASEHOLD_PROOF", proof.to_owned()),
        ];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// One kind of thing that fails over.
pub trait Resource: Send + Sync + fmt::Debug {
    fn name(&self) -> &str;

    /// The share of this resource in the stop budget S, SIGKILL and verification included.
    fn stop_budget(&self) -> Duration;

    /// Completes when it is up. What a failed or dropped start leaves behind, [`Resource::stop`] finds.
    fn start<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<(), ResourceError>>;

    /// Takes over one that runs already, left by a former daemon of this boot. `false` when it does not run.
    fn adopt<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<bool, ResourceError>>;

    /// Stops it within its budget and verifies that nothing is left.
    fn stop<'a>(&'a self, context: &'a Context) -> Pending<'a, Result<(), ResourceError>>;

    /// As [`Resource::stop`], without asking: SIGKILL to all of it.
    fn kill(&self) -> Pending<'_, Result<(), ResourceError>>;

    /// Refuses and resets its clients at once. A resource without clients of its own does nothing.
    fn cut(&self) {}

    /// Makes it follow the primary on the other node: what must be done here before this node is a ready standby. Begun
    /// after every verified stop, and ended by the next start; whatever it leaves when it is dropped in the middle must
    /// be found and mended by the next one.
    fn stand_by<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(async { Ok(()) })
    }

    /// What it is doing now, where that takes long or must be known.
    fn progress(&self) -> Option<Progress> {
        None
    }

    /// What belongs into the record of a failover, such as what was lost. Each is given out once.
    fn take_news(&self) -> Vec<News> {
        Vec::new()
    }

    /// Whether nothing of it is left here, by looking: at its processes, and for one of commands at its status command.
    fn is_stopped(&self) -> Pending<'_, Result<bool, ResourceError>>;

    /// Whether this node could run it.
    fn ready(&self) -> Pending<'_, Result<(), ResourceError>>;

    /// Completes when it has failed, with the reason. Only for one that is up.
    fn watch(&self) -> Pending<'_, String>;

    /// Why it is of little use on this node although it is up, such as a full disk or no carrier: its watch ends when that
    /// begins, and a watch that is begun meanwhile ends for other reasons alone. `None`: it is well, or it is not up.
    fn strain(&self) -> Option<String> {
        None
    }

    /// What strains it is over, and has to stay so for a while before that is believed.
    fn is_mending(&self) -> bool {
        false
    }

    /// The token under which it goes on.
    fn set_token(&self, token: Token);

    /// What the durable record says of the peer: whether it may take over (`Paired`), was proven harmless (`Sole`), or may
    /// be acting (`Out`). Told before a start, and whenever it changes. For a resource that replicates by itself: with whom a
    /// primary must share each write, and how long a standby's data are known to be whole.
    fn set_standing(&self, _standing: Standing) {}

    /// How the guard ends it and sees that nothing is left, without this daemon. What does not say so only this daemon
    /// can see stopped: at the lease's end the guard then resets the node unless it did.
    fn remains(&self) -> Remains {
        Remains { hidden: vec![self.name().to_owned()], ..Remains::default() }
    }
}

/// What is left of resources when nobody stops them, for the guard's emergency plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remains {
    /// Each process with one of these in its environment (`NAME=value`), with its group and its descendants.
    pub marks: Vec<String>,
    /// Servers that hide their marks: each process that runs `program` (or one whose name begins so) in this directory.
    pub servers: Vec<ServerRemains>,
    /// Control groups that are killed whole.
    pub cgroups: Vec<PathBuf>,
    /// Units of a service manager.
    pub units: Vec<UnitRemains>,
    /// Whose connections are refused and reset first.
    pub clients: Option<Spec>,
    /// Taken away from every interface.
    pub addresses: Vec<IpAddr>,
    /// Resources of which the guard cannot see whether they are stopped.
    pub hidden: Vec<String>,
}

/// See [`Remains::servers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRemains {
    pub program: String,
    pub directory: PathBuf,
}

/// A unit of a service manager, whose control group is looked for when it is needed: it has none while it does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRemains {
    pub unit: String,
    /// Where the groups of the manager begin, in each tree.
    pub trees: Vec<PathBuf>,
    /// The manager's own socket, which needs no bus.
    pub manager: PathBuf,
    /// The call that stops it, ready to be sent: a manager that is not told would start again what is killed (`Restart=`).
    pub stop: Vec<u8>,
}

impl Remains {
    /// Those of both, each once. Of the clients the first to say.
    pub fn and(self, more: Remains) -> Remains {
        Remains {
            marks: united(self.marks, more.marks),
            servers: united(self.servers, more.servers),
            cgroups: united(self.cgroups, more.cgroups),
            units: united(self.units, more.units),
            clients: self.clients.or(more.clients),
            addresses: united(self.addresses, more.addresses),
            hidden: united(self.hidden, more.hidden),
        }
    }
}

/// Something that an operator should read beside the decisions of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub severity: Severity,
    /// Stable name.
    pub kind: &'static str,
    pub text: String,
}

/// A resource that was up has failed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub resource: String,
    pub what: String,
}

/// What can go wrong with a resource.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error("resource {resource:?}: {source}")]
    Untrusted { resource: String, source: Untrusted },
    #[error("resource {resource:?}: {source}")]
    Process { resource: String, source: ProcessError },
    #[error("resource {resource:?}: there is no user {user:?} in /etc/passwd")]
    NoUser { resource: String, user: String },
    #[error("resource {resource:?}: no command is configured to start it")]
    NoCommand { resource: String },
    #[error("resource {resource:?}: cannot look for its processes: {source}; is /proc mounted?")]
    Search { resource: String, source: std::io::Error },
    #[error("resource {resource:?}: no pipe for its output: {source}")]
    Output { resource: String, source: std::io::Error },
    #[error("resource {resource:?}: not started, processes of an earlier start are left: {left}")]
    Leftovers { resource: String, left: String },
    #[error("resource {resource:?}: {what} while it was starting")]
    Start { resource: String, what: String },
    #[error("resource {resource:?}: not up within {limit:?}")]
    StartTimeout { resource: String, limit: Duration },
    #[error("the start was ended before resource {resource:?}: the right to act is gone")]
    MayNotContinue { resource: String },
    #[error("the start was ended: a stop was asked for")]
    Cancelled,
    #[error("resource {resource:?}: not stopped within {limit:?}: {left}")]
    Stuck { resource: String, limit: Duration, left: String },
    #[error("resource {resource:?}: {what}")]
    Other { resource: String, what: String },
    #[error("resource {resource:?}: this node could not run it: {what}")]
    NotReady { resource: String, what: String },
}

fn united<T: PartialEq>(mut all: Vec<T>, more: Vec<T>) -> Vec<T> {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Joining => "joining",
        Role::Standby => "standby",
        Role::TakingOver => "taking-over",
        Role::Primary => "primary",
        Role::Demoting => "demoting",
    }
}

fn proof_word(proof: ProofKind) -> &'static str {
    match proof {
        ProofKind::Fenced => "fenced",
        ProofKind::Released => "released",
        ProofKind::Rebooted => "rebooted",
        ProofKind::Confirmed => "confirmed",
        ProofKind::Agreed => "agreed",
    }
}
