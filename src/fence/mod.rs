//! Makes the peer harmless, and proves it by reading back (protocol section 1).
//!
//! ```text
//!   FencePlan ── levels in rising order, agents of a level side by side ──▶ Report { result, evidence }
//!      └─ Agent: ipmi (ipmitool), exec (any program), manual (an operator)
//!            └─ drive: read, switch, read until it holds
//! ```
//!
//! Every attempt ends in the [`journal`]; and long before one is needed, each agent is proven again and again.
//!
//! No command's answer is ever a proof; only a reading is (casebook C01, C02). What was sent and what was read goes
//! into an [`Attempt`], from which the verdict is drawn even when the time runs out in the middle. Secrets leave this
//! room only through the stdin of the program that needs them.

mod attempt;
pub mod conformance;
mod drive;
mod ec2;
mod exec;
mod fence_agent;
mod gate;
mod health;
mod identity;
mod ipmi;
pub mod journal;
mod manual;
mod openstack;
mod plan;
mod prove;
mod proving;
mod redfish;
mod scsi_pr;
mod secret;
mod trail;
mod turns;
mod web;

use std::fmt;
use std::pin::Pin;

use crate::core::{AgentSet, NodeId, Scope, Span, Take, TakeResult, Token};
use crate::process::Untrusted;

pub use attempt::{Attempt, Evidence, Stamp};
pub use ec2::{Ec2Power, Ec2Volume};
pub use exec::Exec;
pub use fence_agent::{FenceAgent, metadata_of};
pub use health::Health;
pub use identity::{Identities, Identity};
pub use ipmi::Ipmi;
pub use manual::Manual;
pub use openstack::{OpenstackPower, OpenstackVolume};
pub use plan::{Entry, FencePlan, Order, Report};
pub use prove::Probed;
pub use proving::Proving;
pub use redfish::Redfish;
pub use scsi_pr::{Places, ScsiPr};
pub use secret::{Secret, SecretError};

/// An answer that comes later. Dropping it ends the work and kills its children.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One reading of the target: its power for an agent of node scope, its access for one of resource scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Powered off, detached, revoked: stably, as far as the agent can tell.
    Off,
    On,
    Unknown,
}

/// The verified end of one agent's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Read back as wanted.
    Confirmed,
    /// The device said no, and reading back showed that nothing changed; `highest` when a store named its token.
    Refused { highest: Option<Token> },
    /// Nobody knows. Never a proof.
    Unknown,
}

/// One device or program that can make a node harmless.
///
/// The methods work until they know, without a limit of their own: the plan drops them when the agent's time is over
/// and takes the verdict from the [`Attempt`].
pub trait Agent: Send + Sync + fmt::Debug {
    fn scope(&self) -> Scope;

    /// Makes the target harmless. Reads first: a target that is off already is `Confirmed` without a command.
    fn off<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome>;

    /// One settled reading, without changing anything.
    fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading>;

    /// Looks at all that a fence will need, long before it does: login, privilege, state, identity. Changes nothing.
    fn prove<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Health> {
        Box::pin(async move { Health::of(self.status(attempt).await) })
    }

    /// Lets the target act again, verified.
    fn on<'a>(&'a self, token: Token, attempt: &'a Attempt) -> Pending<'a, Outcome>;

    /// Lets go of what it holds at its device (a session), as the daemon ends. Best effort, and soon given up.
    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }

    /// Whether this agent has [`Agent::take`] and [`Agent::highest`].
    fn takes(&self) -> bool {
        false
    }

    /// The atomic compare-and-swap at the resource (protocol section 1, "exclusive").
    fn take<'a>(&'a self, _take: Take, _attempt: &'a Attempt) -> Pending<'a, TakeResult> {
        Box::pin(async { TakeResult::Unknown })
    }

    /// The highest token stored at the resource; `None` when it cannot be read.
    fn highest<'a>(&'a self, _attempt: &'a Attempt) -> Pending<'a, Option<Token>> {
        Box::pin(async { None })
    }
}

/// What every agent is told when it is made.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The agent's own name.
    pub name: &'a str,
    pub scope: Scope,
    /// The time of one whole attempt with its verification.
    pub limit: Span,
    /// The node to be made harmless.
    pub target: &'a str,
    /// The node that runs the agent.
    pub caller: &'a str,
    /// The same, by its place in the configuration: who mints its tokens.
    pub me: NodeId,
}

/// Why a fence plan cannot be made from the configuration. Found at the start, never first at a failover.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    #[error("fence agent {agent:?}: {source}")]
    Secret { agent: String, source: SecretError },
    #[error("fence agent {agent:?}: {source}")]
    Program { agent: String, source: Untrusted },
    #[error(
        "fence agent {agent:?}: the password has {length} bytes, IPMI carries at most {limit}; set a shorter one in the BMC"
    )]
    PasswordTooLong { agent: String, length: usize, limit: usize },
    #[error(
        "fence agent {agent:?}: the password contains {what}, which ipmitool cannot pass on; set another in the BMC"
    )]
    PasswordUnusable { agent: String, what: &'static str },
    #[error("fence agent {agent:?}: the user name has {length} bytes, IPMI carries at most {limit}")]
    UserTooLong { agent: String, length: usize, limit: usize },
    #[error("fence agent {agent:?}: cipher suite 0 means no authentication and is never used; take 17 or 3")]
    NoCipher { agent: String },
    #[error("fence agent {agent:?}: {why}")]
    Unusable { agent: String, why: String },
    #[error("fence agent {agent:?} is number {index} of the configuration; at most 32 are allowed")]
    TooMany { agent: String, index: usize },
}

/// `set` with the agents of these places.
fn with_all(set: AgentSet, indices: impl IntoIterator<Item = usize>) -> AgentSet {
    indices.into_iter().fold(set, AgentSet::with)
}
