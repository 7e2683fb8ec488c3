//! Lease arithmetic, both sides (protocol section 2).
//!
//! ```text
//! holder   t ───────────── t+T−M  starts to stop        (t: its own sending of the renewal)
//! grantor      r ──────────────────────────── r+T       (r: receipt, after t)
//! ```
//! Since t came before r, and M covers drift, pauses and the stop itself, the holder is done before the grantor may rely on it.

use super::message::Grant;
use super::mutant::{self, Mutant};
use super::settings::Settings;
use super::time::{Instant, Span};

/// Until when the holder of a grant may act: from the sending of the renewal, by the shorter of both terms.
pub fn right_by_grant(sent: Instant, grant: &Grant, settings: &Settings) -> Instant {
    let term = grant.term.min(settings.term);
    let margin = if mutant::on(Mutant::NoMargin) { Span::ZERO } else { settings.margin };
    sent.after(term.minus(margin))
}

/// Until when a start whose peer lives may act: T − M from the sending of my datagram that the peer's one echoes.
pub fn right_by_contact(sent: Instant, settings: &Settings) -> Instant {
    sent.after(settings.term.minus(settings.margin))
}

/// How long this node's own promises last, so that a start may rely on the end of the peer's lease.
#[derive(Debug, Clone, Copy, Hash)]
pub struct Promise {
    started: Instant,
    last_receipt: Option<Instant>,
}

impl Promise {
    pub fn new(started: Instant) -> Promise {
        Promise { started, last_receipt: None }
    }

    /// An authentic datagram of the peer arrived, whatever it said (an exact replay does not come here).
    pub fn prolong(&mut self, now: Instant) {
        self.last_receipt = self.last_receipt.max(Some(now));
    }

    /// The end of everything that this node may ever have promised. A node that lost its memory keeps the
    /// promises that it forgot, because it also counts from its own start.
    pub fn end(&self, longest: Span, term: Span) -> Instant {
        let born = if mutant::on(Mutant::PromiseForgottenAtStart) { Instant(0) } else { self.started };
        let from = self.last_receipt.map_or(born, |r| r.max(born));
        let end = from.after(term);
        // A shorter T is used for waiting only after the longer one has passed once (K14).
        let shortened = longest > term && !mutant::on(Mutant::ShortTermAtOnce);
        if shortened { end.max(self.started.after(longest)) } else { end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_runs_from_the_last_receipt_and_never_less_than_from_the_start() {
        let mut promise = Promise::new(Instant(100));
        assert_eq!(promise.end(Span(10), Span(10)), Instant(110));
        promise.prolong(Instant(150));
        promise.prolong(Instant(120));
        assert_eq!(promise.end(Span(10), Span(10)), Instant(160));
    }

    #[test]
    fn a_shortened_term_waits_once_for_the_longer_one() {
        let promise = Promise::new(Instant(100));
        assert_eq!(promise.end(Span(25), Span(10)), Instant(125));
    }
}
