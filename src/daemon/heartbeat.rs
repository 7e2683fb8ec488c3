//! Datagrams out and in: sealed on every link, opened, and counted by what they are.

use std::collections::VecDeque;

use crate::core::{Datagram, Identity, Incarnation, Instant, NodeId, Seq, Span};
use crate::os::clock;
use crate::os::links::Link;
use crate::wire::{self, Keyring, Rejection};

/// Sequences whose sending time is kept for the round trip: a few seconds at the fastest heartbeat.
const SENT_KEPT: usize = 64;

/// The newest datagram that was refused on a link.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    pub why: Rejection,
    pub at: Instant,
}

/// All links with the cluster's key.
#[derive(Debug)]
pub struct Heartbeats {
    pub links: Vec<Link>,
    keyring: Keyring,
    me: NodeId,
    identity: Identity,
    sent: VecDeque<(Seq, Instant)>,
    /// The newest authentic datagram, whether or not it counts.
    pub heard: Option<(Datagram, Instant)>,
    pub refused: Vec<Option<Refused>>,
    /// The incarnation whose guard said that it resets its node; told once.
    last_words: Option<Incarnation>,
    last_words_told: Option<Incarnation>,
    /// The newest renewal that was answered, and the datagram that did.
    answered: Option<(Seq, Seq)>,
}

impl Heartbeats {
    pub fn new(links: Vec<Link>, keyring: Keyring, me: NodeId, identity: Identity) -> Heartbeats {
        let refused = links.iter().map(|_| None).collect();
        Heartbeats {
            links,
            keyring,
            me,
            identity,
            sent: VecDeque::new(),
            heard: None,
            refused,
            last_words: None,
            last_words_told: None,
            answered: None,
        }
    }

    /// Seals for each link, since the link is part of what is sealed, and sends. Never waits.
    pub fn send(&mut self, datagram: &Datagram) {
        if self.sent.len() == SENT_KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back((datagram.seq, clock::now()));
        for (number, link) in self.links.iter().enumerate() {
            link.send(&wire::seal(&self.keyring, number as u8, datagram));
        }
    }

    /// Opens what came on a link, and counts it there.
    pub fn open(&mut self, number: usize, bytes: &[u8], now: Instant) -> Option<Datagram> {
        match wire::open(&self.keyring, self.me, number as u8, bytes) {
            Ok(datagram) => {
                self.note(number, &datagram, now);
                Some(datagram)
            }
            Err(_) if self.hears_last_words(number, bytes) => None,
            Err(why) => {
                self.links[number].note_rejected(why.kind());
                self.refused[number] = Some(Refused { why, at: now });
                None
            }
        }
    }

    /// Of the peer as it was heard last: those of an earlier life are old news.
    fn hears_last_words(&mut self, number: usize, bytes: &[u8]) -> bool {
        let words = wire::open_last_words(&self.keyring, self.me, number as u8, bytes);
        let known = words.filter(|words| self.heard.is_some_and(|(datagram, _)| datagram.incarnation == *words));
        self.last_words = known.or(self.last_words);
        known.is_some()
    }

    /// Whether the peer's guard has said that it resets its node, since this was last asked. They come by every link.
    pub fn take_last_words(&mut self) -> bool {
        std::mem::replace(&mut self.last_words_told, self.last_words) != self.last_words
    }

    fn note(&mut self, number: usize, datagram: &Datagram, now: Instant) {
        for (other, link) in self.links.iter().enumerate() {
            if other == number {
                link.note_authentic(datagram.incarnation, datagram.seq, now);
            } else {
                link.note_elsewhere(datagram.incarnation, datagram.seq);
            }
        }
        if let Some(sent) = self.answered_at_once(datagram) {
            self.links[number].note_rtt(now.since(sent));
        }
        let newer = self.heard.is_none_or(|(d, _)| d.incarnation != datagram.incarnation || d.seq < datagram.seq);
        if newer {
            self.heard = Some((*datagram, now));
        }
    }

    /// When the renewal left that this datagram answers. Only the first grant for a renewal came at once: any other
    /// echo waited for the peer's next heartbeat. The same datagram comes by every link.
    fn answered_at_once(&mut self, datagram: &Datagram) -> Option<Instant> {
        let renewal = datagram.grant?.seq;
        let first = self.answered.is_none_or(|(seen, answer)| renewal > seen || answer == datagram.seq);
        self.answered = Some((renewal, datagram.seq)).filter(|_| first).or(self.answered);
        self.echoed_at(datagram).filter(|_| first)
    }

    fn echoed_at(&self, datagram: &Datagram) -> Option<Instant> {
        let echo = datagram.echo.filter(|e| e.incarnation == self.identity.incarnation)?;
        self.sent.iter().rev().find(|(seq, _)| *seq == echo.seq).map(|(_, at)| *at)
    }

    /// Whether the newest datagram of the peer echoes something that this node had just sent when it arrived.
    /// Of a peer that is silent nobody knows: then this is what it last was.
    pub fn peer_hears_us(&self, recent: Span) -> bool {
        let Some((datagram, arrived)) = self.heard else { return false };
        self.echoed_at(&datagram).is_some_and(|at| arrived.since(at) <= recent)
    }

    /// Some link has a socket.
    pub fn any_usable(&self) -> bool {
        self.links.iter().any(|l| l.state_now() == crate::os::links::LinkState::Up)
    }
}
