//! Proof ahead of need: one look at one agent, within its limit, and only while no attempt wants it.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Attempt, Entry, Evidence, FencePlan, Health, Identity, Reading};

/// What a look at an agent found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// The agent's place among all agents of the configuration.
    pub index: usize,
    pub health: Health,
    /// Whose machine the device says that it controls.
    pub identity: Identity,
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
            probed = self.look(entry) => Some(probed),
        }
    }

    async fn look(&self, entry: &Entry) -> Probed {
        let attempt = Arc::new(Attempt::new(&entry.name, self.stamp).expecting(self.expected(entry)));
        // In a task of its own, so that an agent that panics harms only itself; it ends with this future.
        let mut task = JoinSet::new();
        let (agent, look) = (entry.agent.clone(), attempt.clone());
        task.spawn(async move { agent.prove(&look).await });
        let health = match timeout(entry.limit, task.join_next()).await {
            Ok(Some(Ok(health))) => self.with_last_words(health, &attempt),
            Ok(Some(Err(_)) | None) => unknown("it failed inside; see the journal of this daemon"),
            Err(_) => {
                attempt.give_up(entry.limit.into());
                let limit = crate::core::Span::from(entry.limit);
                self.with_last_words(unknown(&format!("no verdict within its limit of {limit}")), &attempt)
            }
        };
        Probed { index: entry.index, health, identity: attempt.identity(), evidence: attempt.evidence() }
    }

    /// The newest answer says more than "cannot be read".
    fn with_last_words(&self, mut health: Health, attempt: &Attempt) -> Health {
        let exchanges = attempt.evidence();
        let last = exchanges.iter().rev().find(|e| e.sent != "(waiting)");
        if let (Some(fault), Some(last)) =
            (health.faults.last_mut(), last.filter(|_| health.reading == Reading::Unknown))
        {
            *fault = format!("{fault} ({} → {})", last.sent, last.read);
        }
        health
    }
}

fn unknown(why: &str) -> Health {
    Health { reading: Reading::Unknown, faults: vec![why.to_owned()], notes: Vec::new() }
}
