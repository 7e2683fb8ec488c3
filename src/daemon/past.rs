//! What the daemon remembers of its service beyond its own life: the last failure for good, and how long stops took.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::Span;
use crate::os::keep;

const FILE: &str = "service";

/// Shared by those who note and those who ask.
#[derive(Debug, Clone)]
pub struct Past {
    path: PathBuf,
    flap_window: Span,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    failed: Option<FailedForGood>,
    #[serde(default)]
    stops: Stops,
}

/// The group could not be kept up on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedForGood {
    pub at: Timestamp,
    pub what: String,
}

/// How long orderly stops of the whole group took, verification included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stops {
    pub count: u64,
    pub last_ms: u64,
    pub longest_ms: u64,
}

impl Past {
    pub fn load(state: &Path, flap_window: Span) -> Past {
        let path = state.join(FILE);
        let kept = keep::load(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was remembered of the service is lost");
            None
        });
        Past { path, flap_window, kept: Arc::new(Mutex::new(kept.unwrap_or_default())) }
    }

    /// While this lasts the node is not ready: after it handed the service over because a resource failed, it takes the
    /// service back for no other failure within the window. `None`: it may serve.
    pub fn held_back(&self, now: Timestamp) -> Option<FailedForGood> {
        let window = jiff::SignedDuration::from_millis(i64::try_from(self.flap_window.as_ms()).unwrap_or(i64::MAX));
        // A failure dated in the future is one before the clock was set back: it holds no longer than the window either.
        self.kept().failed.clone().filter(|f| now.duration_since(f.at).abs() < window)
    }

    pub fn stops(&self) -> Stops {
        self.kept().stops
    }

    pub async fn note_failed(&self, at: Timestamp, what: String) {
        self.change(|kept| kept.failed = Some(FailedForGood { at, what })).await;
    }

    /// An operator has looked.
    pub async fn forgive(&self) {
        if self.kept().failed.is_some() {
            self.change(|kept| kept.failed = None).await;
        }
    }

    pub async fn note_stop(&self, took: Span) {
        let took = took.as_ms();
        self.change(|kept| {
            let Stops { count, longest_ms, .. } = kept.stops;
            kept.stops = Stops { count: count + 1, last_ms: took, longest_ms: longest_ms.max(took) };
        })
        .await;
    }

    /// In memory at once, on the disk beside everything else: a stalled disk delays neither a stop nor a handover.
    async fn change(&self, change: impl FnOnce(&mut Kept)) {
        let kept = {
            let mut kept = self.kept();
            change(&mut kept);
            kept.clone()
        };
        let path = self.path.clone();
        let saved = tokio::task::spawn_blocking(move || keep::save(&path, &kept)).await;
        if let Ok(Err(error)) = saved {
            tracing::warn!(%error, "it is remembered only until this daemon ends");
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Span = Span::from_secs(600);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[tokio::test]
    async fn a_failure_holds_back_for_the_window_and_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let past = Past::load(dir.path(), WINDOW);
        assert_eq!(past.held_back(at(0)), None);
        past.note_failed(at(0), "db: died".to_owned()).await;
        let next = Past::load(dir.path(), WINDOW);
        assert_eq!(next.held_back(at(599)).unwrap().what, "db: died");
        assert_eq!(next.held_back(at(601)), None);
        next.forgive().await;
        assert_eq!(Past::load(dir.path(), WINDOW).held_back(at(1)), None);
    }

    #[tokio::test]
    async fn the_longest_stop_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        for ms in [20, 90, 40] {
            Past::load(dir.path(), WINDOW).note_stop(Span::from_ms(ms)).await;
        }
        let stops = Past::load(dir.path(), WINDOW).stops();
        assert_eq!(stops, Stops { count: 3, last_ms: 40, longest_ms: 90 });
    }
}
