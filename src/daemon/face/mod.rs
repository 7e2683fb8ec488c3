//! What this node shows to its own service and to load balancers: role, token, and until when.
//!
//! ```text
//!  driver ──▶ Face ──▶ token.json   (run-time directory, replaced whole)
//!                 ├──▶ hook         (`service.notify`, at each change of role or token)
//!                 └──▶ http         (`/primary`, `/standby`, `/token`, `/status`)
//! ```
//!
//! The loop only stores; everything that may wait happens on the worker thread. Whoever asks gets the deadline compared
//! with the clock at that instant: a node whose lease is over is no primary, whatever the loop is busy with.

pub mod hook;
pub mod http;
pub mod token_file;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;

use crate::core::{Instant, Role, Token};
use crate::os::clock;

/// The newest that the loop has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Face {
    role: Role,
    /// The token under which this node acts, and until when without a renewal.
    right: Option<(Token, Instant)>,
    /// All resources are up.
    serving: bool,
    /// This node could serve.
    ready: bool,
}

/// The loop's end.
#[derive(Debug)]
pub struct Shown(watch::Sender<Face>);

/// What is told, in the public JSON of `token.json` and of `/token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    pub version: u32,
    pub node: String,
    pub role: crate::control::Role,
    /// Null when this node must not act.
    pub token: Option<u64>,
    pub serving: bool,
    pub ready: bool,
    /// Until when the token may be used unless it is renewed: wall clock, for people.
    pub deadline: Option<Timestamp>,
    /// The same in nanoseconds of CLOCK_BOOTTIME, for programs: no clock that is set moves it.
    pub deadline_boot_ns: Option<u64>,
}

impl Shown {
    pub fn new() -> Shown {
        Shown(watch::Sender::new(Face { role: Role::Joining, right: None, serving: false, ready: false }))
    }

    pub fn watch(&self) -> watch::Receiver<Face> {
        self.0.subscribe()
    }

    pub fn acts(&self, token: Token, deadline: Instant) {
        self.change(|face| face.right = Some((token, deadline)));
    }

    pub fn acts_no_more(&self) {
        self.change(|face| (face.right, face.serving) = (None, false));
    }

    pub fn serves(&self) {
        self.change(|face| face.serving = true);
    }

    pub fn is(&self, role: Role) {
        self.change(|face| face.role = role);
    }

    pub fn could_serve(&self, ready: bool) {
        self.change(|face| face.ready = ready);
    }

    fn change(&self, change: impl FnOnce(&mut Face)) {
        self.0.send_if_modified(|face| {
            let before = *face;
            change(face);
            *face != before
        });
    }
}

impl Face {
    /// The token of a right that has not ended.
    pub fn token(&self, now: Instant) -> Option<Token> {
        self.right.filter(|(_, deadline)| now < *deadline).map(|(token, _)| token)
    }

    /// Acts and serves, at this instant.
    pub fn is_primary(&self, now: Instant) -> bool {
        self.role == Role::Primary && self.serving && self.token(now).is_some()
    }

    pub fn is_ready_standby(&self) -> bool {
        self.role == Role::Standby && self.ready
    }

    fn told(&self, node: &str) -> Told {
        let now = clock::now();
        let right = self.right.filter(|(_, deadline)| now < *deadline);
        let wall = |deadline: Instant| clock::wall().checked_add(std::time::Duration::from(deadline.since(now))).ok();
        Told {
            version: 1,
            node: node.to_owned(),
            role: self.role.into(),
            token: right.map(|(token, _)| token.0),
            serving: self.is_primary(now),
            ready: self.ready,
            deadline: right.and_then(|(_, deadline)| wall(deadline)),
            deadline_boot_ns: right.map(|(_, deadline)| deadline.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Span;

    #[test]
    fn a_node_is_primary_only_within_its_lease_and_with_its_resources_up() {
        let shown = Shown::new();
        let now = clock::now();
        let end = now.after(Span::from_secs(5));
        let face = || *shown.watch().borrow();
        shown.is(Role::Primary);
        shown.acts(Token(4), end);
        assert!(!face().is_primary(now), "nothing is up yet");
        shown.serves();
        assert!(face().is_primary(now));
        assert!(!face().is_primary(end), "the lease is over, whatever the loop does");
        assert_eq!((face().token(now), face().token(end)), (Some(Token(4)), None));
        shown.acts_no_more();
        assert!(!face().is_primary(now) && !face().serving);
    }

    #[test]
    fn only_a_ready_standby_is_one() {
        let shown = Shown::new();
        shown.is(Role::Standby);
        assert!(!shown.watch().borrow().is_ready_standby());
        shown.could_serve(true);
        assert!(shown.watch().borrow().is_ready_standby());
    }
}
