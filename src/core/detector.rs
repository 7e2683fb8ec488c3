//! Silence: present, doubtful, lost. Dated by the *sending* of my newest datagram that the peer echoed, so that
//! both ends measure the same silence, also when only one direction is cut (protocol section 5, K12).

use super::settings::Settings;
use super::time::{Instant, Span};

/// What the silence of the peer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Presence {
    Present,
    /// Silent for D/2.
    Doubtful,
    /// Silent for D.
    Lost,
}

/// Contact with the peer, dated.
#[derive(Debug, Clone, Copy, Hash)]
pub struct Detector {
    started: Instant,
    contact: Option<Instant>,
}

impl Detector {
    pub fn new(started: Instant) -> Detector {
        Detector { started, contact: None }
    }

    /// A counted datagram echoed mine that was sent at `sent`.
    pub fn echoed(&mut self, sent: Instant) {
        self.contact = self.contact.max(Some(sent));
    }

    /// Whether the peer was ever heard in this incarnation.
    pub fn ever(&self) -> bool {
        self.contact.is_some()
    }

    /// Where the silence began: the last contact, or the start of this daemon.
    pub fn silent_since(&self) -> Instant {
        self.contact.unwrap_or(self.started)
    }

    pub fn silence(&self, now: Instant) -> Span {
        now.since(self.silent_since())
    }

    pub fn presence(&self, now: Instant, settings: &Settings) -> Presence {
        match self.silence(now) {
            _ if !self.ever() => Presence::Lost,
            s if s >= settings.dead_after => Presence::Lost,
            s if s >= settings.dead_after.half() => Presence::Doubtful,
            _ => Presence::Present,
        }
    }
}
