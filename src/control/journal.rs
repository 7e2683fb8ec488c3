//! The last decisions, kept in a ring for `why` and handed on to every `watch`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::broadcast;

use super::reply::Decision;

/// Decisions kept: some days of a quiet pair, an hour of a bad one; about 300 kB.
const KEPT: usize = 1000;

/// How far a `watch` may lag before it misses decisions.
const BACKLOG: usize = 256;

/// Shared by the daemon, which publishes, and the control server, which answers from it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Journal {
    ring: Arc<Mutex<Ring>>,
    live: broadcast::Sender<Arc<Decision>>,
}

#[derive(Debug, Default)]
struct Ring {
    published: u64,
    kept: VecDeque<Arc<Decision>>,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal { ring: Arc::default(), live: broadcast::Sender::new(BACKLOG) }
    }
}

impl Journal {
    /// Adds a decision and numbers it. Never blocks and never waits for a reader.
    pub fn publish(&self, decision: Decision) {
        let mut ring = self.ring();
        ring.published += 1;
        let decision = Arc::new(Decision { number: ring.published, ..decision });
        if ring.kept.len() == KEPT {
            ring.kept.pop_front();
        }
        ring.kept.push_back(decision.clone());
        // Nobody watching is no error. Sent under the lock, so that every reader sees the numbers in order.
        let _ = self.live.send(decision);
    }

    /// The newest `last` decisions, oldest first.
    pub fn last(&self, last: Option<u32>) -> Vec<Decision> {
        let ring = self.ring();
        let wanted = last.map_or(KEPT, |last| last as usize);
        let skipped = ring.kept.len().saturating_sub(wanted);
        ring.kept.iter().skip(skipped).map(|decision| Decision::clone(decision)).collect()
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<Decision>> {
        self.live.subscribe()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().expect("no code panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::control::{Role, Severity};

    fn decision(text: &str) -> Decision {
        Decision {
            number: 0,
            at: Timestamp::UNIX_EPOCH,
            severity: Severity::Info,
            role: Role::Standby,
            kind: "started".into(),
            text: text.into(),
        }
    }

    #[test]
    fn the_newest_are_kept_and_numbered_and_told_oldest_first() {
        let journal = Journal::default();
        for n in 0..KEPT + 5 {
            journal.publish(decision(&n.to_string()));
        }
        assert_eq!(journal.last(None).len(), KEPT);
        let numbers: Vec<u64> = journal.last(Some(2)).iter().map(|d| d.number).collect();
        assert_eq!(numbers, [KEPT as u64 + 4, KEPT as u64 + 5]);
    }

    #[test]
    fn publishing_without_a_watcher_is_fine() {
        let journal = Journal::default();
        journal.publish(decision("alone"));
        assert_eq!(journal.last(Some(9))[0].text, "alone");
    }
}
