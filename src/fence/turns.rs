//! Who may use an agent: an attempt at once and always, a proof ahead of need only while there is none.
//!
//! A BMC has few sessions, and a device that is looked at may refuse to switch meanwhile: the look gives way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// The turns of all agents, by their place in the configuration. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<BTreeMap<usize, watch::Sender<usize>>>>);

/// An attempt under way; over when it is dropped.
#[derive(Debug)]
pub struct Turn(watch::Sender<usize>);

impl Turns {
    /// Takes the agent, whoever looks at it now.
    pub fn attempt(&self, index: usize) -> Turn {
        let turn = Turn(self.of(index));
        turn.0.send_modify(|attempts| *attempts += 1);
        turn
    }

    /// Completes as soon as an attempt of this agent is under way.
    pub async fn taken(&self, index: usize) {
        let mut attempts = self.of(index).subscribe();
        if attempts.wait_for(|n| *n > 0).await.is_err() {
            unreachable!("the map holds a sender");
        }
    }

    fn of(&self, index: usize) -> watch::Sender<usize> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(index).or_insert_with(|| watch::Sender::new(0)).clone()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.send_modify(|attempts| *attempts -= 1);
    }
}
