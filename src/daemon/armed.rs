//! The armed deadline and the wanted epoch, shared with whoever starts resources: between any two steps of a start
//! both are looked at, without asking the loop.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::{Epoch, Instant};
use crate::os::clock;

/// Zero until the first arming.
#[derive(Debug, Default)]
pub struct Armed {
    deadline: AtomicU64,
    epoch: AtomicU64,
}

impl Armed {
    pub fn arm(&self, deadline: Instant) {
        self.deadline.store(deadline.0, Ordering::SeqCst);
    }

    /// From now on only this start or stop is wanted.
    pub fn want(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::SeqCst);
    }

    /// Whether this start or stop is the one that is wanted.
    pub fn is_wanted(&self, epoch: Epoch) -> bool {
        self.epoch.load(Ordering::SeqCst) == epoch.0
    }

    /// Whether this node still may act.
    pub fn is_valid(&self) -> bool {
        clock::now().0 < self.deadline.load(Ordering::SeqCst)
    }

    /// Whether a start of this epoch may take its next step.
    pub fn may_continue(&self, epoch: Epoch) -> bool {
        self.is_wanted(epoch) && self.is_valid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Span;

    #[test]
    fn a_start_goes_on_only_in_its_epoch_and_within_the_deadline() {
        let armed = Armed::default();
        assert!(!armed.may_continue(Epoch(1)));
        armed.want(Epoch(1));
        armed.arm(clock::now().after(Span::from_secs(3600)));
        assert!(armed.may_continue(Epoch(1)));
        armed.want(Epoch(2));
        assert!(!armed.may_continue(Epoch(1)));
        armed.arm(clock::now());
        assert!(!armed.may_continue(Epoch(2)));
    }
}
