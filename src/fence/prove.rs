//! Proof ahead of need: one look at one agent, within its limit, and only while no attempt wants it.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::core::Span;

use super::attempt::tidy;
use super::{Attempt, Entry, Evidence, FencePlan, Health, Identity, Reading};

/// What a look at an agent found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// The agent's place among all agents of the configuration.
    pub index: usize,
    pub health: Health,
    /// Whose machine the device says that it controls.
    pub identity: Identity,
    /// Which one that is by the device's own word: the UUID of a machine, the id of an instance.
    pub named: Option<String>,
    pub evidence: Vec<Evidence>,
}

impl FencePlan {
    /// The places of all agents that this node runs, the peer's and its own.
    pub fn places(&self) -> Vec<usize> {
        self.against.iter().chain(&self.own).map(|entry| entry.index).collect()
    }

    /// Looks whether this agent could fence now. `None`: an attempt wants it, or there is no such agent.
    pub async fn prove(&self, index: usize) -> Option<Probed> {
        let entry = self.against.iter().chain(&self.own).find(|entry| entry.index == index)?;
        tokio::select! {
            biased;
            () = self.turns.taken(index) => None,
            probed = look(entry, self.attempt(entry)) => Some(probed),
        }
    }

    /// What a look at this agent is told, and gathers.
    pub(super) fn attempt(&self, entry: &Entry) -> Arc<Attempt> {
        Arc::new(Attempt::new(&entry.name, self.stamp).expecting(self.expected(entry)))
    }
}

impl Probed {
    /// Of an agent that cannot even be made.
    pub(super) fn unusable(index: usize, why: &str) -> Probed {
        Probed { index, health: unknown(why), identity: Identity::Unknown, named: None, evidence: Vec::new() }
    }
}

/// One look, within the agent's limit.
pub(super) async fn look(entry: &Entry, attempt: Arc<Attempt>) -> Probed {
    // In a task of its own, so that an agent that panics harms only itself; it ends with this future.
    let mut task = JoinSet::new();
    let (agent, gathers) = (entry.agent.clone(), attempt.clone());
    task.spawn(async move { agent.prove(&gathers).await });
    let health = match timeout(entry.limit, task.join_next()).await {
        Ok(Some(Ok(health))) => with_last_words(health, &attempt),
        Ok(Some(Err(_)) | None) => unknown("the agent itself failed; this is a bug of leasehold, please report it"),
        Err(_) => {
            attempt.give_up(entry.limit.into());
            let limit = Span::from(entry.limit);
            with_last_words(unknown(&format!("no verdict within its limit of {limit}")), &attempt)
        }
    };
    let (identity, named, evidence) = (attempt.identity(), attempt.named(), attempt.evidence());
    Probed { index: entry.index, health, identity, named, evidence }
}

/// The newest answer says more than "cannot be read".
fn with_last_words(mut health: Health, attempt: &Attempt) -> Health {
    // Faults quote what came from outside: each is one line, like the evidence.
    health.faults.iter_mut().for_each(|fault| *fault = tidy(fault));
    let exchanges = attempt.evidence();
    let last = exchanges.iter().rev().find(|e| e.sent != "(waiting)");
    let unread = health.reading == Reading::Unknown;
    if let (Some(fault), Some(last)) = (health.faults.last_mut(), last.filter(|_| unread))
        && !fault.contains(&last.read)
    {
        *fault = format!("{fault} ({} → {})", last.sent, last.read);
    }
    health
}

fn unknown(why: &str) -> Health {
    Health { reading: Reading::Unknown, faults: vec![why.to_owned()], notes: Vec::new() }
}
