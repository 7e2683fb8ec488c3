//! The contract of a fence agent, tried on one that stands before us (protocol section 1).
//!
//! Without leave, nothing is changed: what is read twice must be the same, a stale take must be refused. With it, the
//! target is really made harmless and let in again, and each step is believed only when it is read. The kit knows
//! nothing of what is behind the agent: it holds an own one, a program of anyone, and a fake of a test alike.

mod line;
mod run;

use std::time::Duration;

use crate::config::{self, AgentKind, SecretSource};
use crate::core::{SystemUuid, Token};

use super::{Agent, Secret};

pub use line::{Clause, Kept, Line};

/// Whether the target may be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    OnlyLook,
    /// Off, and on again.
    Really,
}

/// One agent to be tried.
#[derive(Debug)]
pub struct Kit<'a> {
    pub agent: &'a dyn Agent,
    pub name: &'a str,
    /// Of each step.
    pub limit: Duration,
    /// Those that the agent knows.
    pub secrets: &'a [Secret],
    /// The UUID of the target, if it is known.
    pub expected: Option<SystemUuid>,
    /// For `off` and `on`: below every token that is ever minted, so that no store is moved.
    pub token: Token,
    pub touch: Touch,
}

impl Kit<'_> {
    /// Tries every clause and tells each line as it is known.
    pub async fn run(&self, tell: &mut dyn FnMut(&Line)) -> Vec<Line> {
        run::Run::new(self, tell).through().await
    }
}

/// The secrets that the configuration names for an agent, as far as they can be read here. Of a program it names at most
/// the files, in settings such as `password_file`.
pub fn secrets_of(agent: &config::Agent) -> Vec<Secret> {
    let own: Vec<SecretSource> = match &agent.kind {
        AgentKind::Exec(exec) => {
            let files = exec.settings.iter().filter(|(key, _)| key.ends_with("_file"));
            files.map(|(_, path)| SecretSource::File(path.into())).collect()
        }
        other => other.facts().map(|facts| facts.secrets().into_iter().cloned().collect()).unwrap_or_default(),
    };
    own.iter().filter_map(|source| Secret::read(source).ok()).collect()
}
