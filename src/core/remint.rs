//! A primary goes on under a newer token: minted, durable, taken where the storage is the arbiter, then held (K8).

use super::ids::Token;
use super::io::{Event, Job, Output, Seen, StopReason, TakeResult};
use super::message::Standing;
use super::mutant::{self, Mutant};
use super::node::{Node, RoleState};
use super::primary::Primary;
use super::time::Instant;

/// A newer token on the way: minted and durable, taken at the store, written as held.
#[derive(Debug, Clone, Copy, Hash)]
pub enum Remint {
    Minting(Token),
    Taking(Token, Job),
    Writing(Token),
}

impl Node {
    pub(super) fn begin_remint(&mut self) {
        if self.primary().is_some_and(|p| p.remint.is_none())
            && let Some(token) = self.mint()
            && let Some(primary) = self.primary()
        {
            primary.remint = Some(Remint::Minting(token));
            self.again = true;
        }
    }

    /// A higher token was seen, of an abandoned attempt: mint above it, take, and go on with the new one (K8).
    pub(super) fn step_remint(&mut self, now: Instant) {
        let record = *self.record.wanted();
        let busy = mutant::on(Mutant::SeenTokenIgnored)
            || !self.retry_due(now)
            || self.fencing.is_busy()
            || self.fencing.proof().is_some()
            || self.record.failed();
        let RoleState::Primary(primary) = &self.role else { return };
        match primary.remint {
            None if record.highest_token > record.held_token && self.in_contact() && !busy => self.begin_remint(),
            Some(Remint::Minting(token)) if self.is_minted(token) => self.take_or_hold(token),
            Some(Remint::Writing(token)) if self.record.written().held_token == token => self.finish_remint(token),
            None | Some(Remint::Minting(_) | Remint::Taking(..) | Remint::Writing(_)) => {}
        }
    }

    fn take_or_hold(&mut self, token: Token) {
        if self.record.wanted().highest_token > token {
            // A higher one was seen while this one was written.
            self.set_remint(None);
            self.begin_remint();
        } else if self.is_exclusive() {
            let seen = self.hears().map_or(self.record.written().held_token, |d| d.highest_token);
            let job = self.take(token, Seen::AtMost(seen.max(self.record.written().held_token)));
            self.set_remint(Some(Remint::Taking(token, job)));
        } else {
            self.hold(token);
        }
    }

    fn hold(&mut self, token: Token) {
        self.record.change(|r| r.held_token = token);
        self.set_remint(Some(Remint::Writing(token)));
        self.again = true;
    }

    fn finish_remint(&mut self, token: Token) {
        self.set_remint(None);
        let deadline = self.right_until.expect("a primary has a right, or has demoted");
        let sole = self.acts_sole();
        self.out(Output::ArmLease { deadline, token, sole });
        self.out(Output::TokenChanged { token });
        self.send_now = true;
    }

    fn set_remint(&mut self, remint: Option<Remint>) {
        if let Some(primary) = self.primary() {
            primary.remint = remint;
        }
    }

    /// A primary that takes acts on under the *new* token; a primary whose take is refused demotes.
    pub(super) fn note_remint_take(&mut self, job: Job, result: TakeResult, now: Instant) {
        let RoleState::Primary(Primary { remint: Some(Remint::Taking(token, asked)), .. }) = self.role else { return };
        if asked != job {
            return;
        }
        match result {
            TakeResult::Taken => {
                let from = self.record.wanted().held_token;
                self.report(Event::TokenReminted { from, to: token });
                if self.hears().copied().is_some_and(|d| self.stands_aside(&d)) {
                    self.want_standing(Standing::Sole);
                }
                self.hold(token);
            }
            TakeResult::Refused { highest } => {
                self.report(Event::TakeFailed { result });
                self.see_token(highest);
                self.become_demoting(StopReason::TakeRefused { highest }, now);
            }
            TakeResult::Unknown => {
                self.report(Event::TakeFailed { result });
                self.set_remint(None);
                self.retry_after(now, self.settings.interval);
            }
        }
    }
}
