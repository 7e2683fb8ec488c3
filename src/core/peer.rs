//! Which datagrams count (protocol section 5), and what the peer last said in one that did.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use super::fingerprint::LOGGED;
use super::ids::{Incarnation, NodeId, Seq, Token};
use super::message::{Datagram, Echo};
use super::mutant::{self, Mutant};
use super::time::{Instant, Span};

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Contact, proof, notice, grant, claim: everything it says holds.
    Counts { echo_sent: Instant },
    /// Authentic, but it echoes nothing recent of mine: answered, noted, otherwise ignored.
    Hello,
    /// Seen before, or older than the window: nothing at all.
    Replay,
    /// Not from the peer: my own, reflected.
    Reflected,
}

/// The last datagram that counted.
#[derive(Debug, Clone, Copy, Hash)]
pub struct Accepted {
    pub datagram: Datagram,
    pub received: Instant,
    /// When I sent the datagram that it echoes.
    pub echo_sent: Instant,
    pub echo_seq: Seq,
    /// My newest sequence when it was accepted: a successor must echo something sent later.
    sent_then: Seq,
}

/// Everything known of the peer in this incarnation.
#[derive(Debug, Clone, Hash)]
pub struct Peer {
    me: NodeId,
    incarnation: Incarnation,
    accepted: Option<Accepted>,
    /// Highest sequence received of the accepted incarnation, counted or not.
    heard: Option<Echo>,
    /// The last hello of another incarnation, when it is the newest thing received.
    hello: Option<Echo>,
    /// The lowest `highest_token` in the hellos of that incarnation: its record as it was before it learnt from me.
    newcomer: Option<(Incarnation, Token)>,
    /// The same of the accepted incarnation.
    first_announced: Token,
    seen: Seen,
    sent: SentLog,
}

impl Peer {
    pub fn new(me: NodeId, incarnation: Incarnation) -> Peer {
        Peer {
            me,
            incarnation,
            accepted: None,
            heard: None,
            hello: None,
            newcomer: None,
            first_announced: Token::NONE,
            seen: Seen::default(),
            sent: SentLog::default(),
        }
    }

    pub fn accepted(&self) -> Option<&Accepted> {
        self.accepted.as_ref()
    }

    /// What the peer last said in a datagram that counted.
    pub fn said(&self) -> Option<&Datagram> {
        self.accepted.as_ref().map(|a| &a.datagram)
    }

    /// What the accepted incarnation announced as its highest token before it could learn a higher one from me.
    pub fn first_announced(&self) -> Token {
        self.first_announced
    }

    /// The echo that my next datagram carries: of what was *received*, not of what counted (K22).
    pub fn echo(&self) -> Option<Echo> {
        let hello = self.hello.filter(|_| !mutant::on(Mutant::EchoOfAcceptedOnly) || self.accepted.is_none());
        hello.or(self.heard)
    }

    /// Gives the next sequence and notes when it was sent.
    pub fn sending(&mut self, now: Instant, keep: Span) -> Seq {
        self.sent.push(now, keep)
    }

    /// When my datagram of this sequence left, if that is recent enough to be known.
    pub fn sent_at(&self, seq: Seq) -> Option<Instant> {
        self.sent.at(seq)
    }

    /// Judges an authentic datagram and notes it.
    pub fn receive(&mut self, datagram: &Datagram, now: Instant, dead_after: Span) -> Verdict {
        if datagram.sender == self.me || datagram.incarnation == self.incarnation {
            return Verdict::Reflected;
        }
        if !self.seen.is_new(datagram.incarnation, datagram.seq) {
            return Verdict::Replay;
        }
        self.note_echo(datagram);
        self.note_newcomer(datagram);
        let Some((echo, echo_sent)) = self.fresh_echo(datagram, now, dead_after) else { return Verdict::Hello };
        if !self.is_in_order(datagram, echo.seq) {
            return Verdict::Hello;
        }
        self.accept(datagram, now, echo_sent, echo.seq);
        Verdict::Counts { echo_sent }
    }

    /// The echo of the datagram, if it is of this incarnation and of something sent at most D ago.
    fn fresh_echo(&self, datagram: &Datagram, now: Instant, dead_after: Span) -> Option<(Echo, Instant)> {
        let echo = datagram.echo.filter(|e| e.incarnation == self.incarnation)?;
        let sent = self.sent.at(echo.seq)?;
        let fresh = now.since(sent) <= dead_after || mutant::on(Mutant::OldEchoCounts);
        fresh.then_some((echo, sent))
    }

    /// Of one incarnation only a higher sequence with an echo not below the last; another incarnation only if it
    /// echoes what I sent after I last accepted the former one (K3).
    fn is_in_order(&self, datagram: &Datagram, echo: Seq) -> bool {
        match &self.accepted {
            None => true,
            Some(last) if last.datagram.incarnation == datagram.incarnation => {
                datagram.seq > last.datagram.seq && echo >= last.echo_seq || mutant::on(Mutant::OvertakenCounts)
            }
            Some(last) => echo > last.sent_then || mutant::on(Mutant::FormerIncarnationCounts),
        }
    }

    fn accept(&mut self, datagram: &Datagram, now: Instant, echo_sent: Instant, echo_seq: Seq) {
        if let Some((_, lowest)) = self.newcomer.take_if(|(known, _)| *known == datagram.incarnation) {
            self.first_announced = lowest;
        }
        let sent_then = self.sent.last;
        self.accepted = Some(Accepted { datagram: *datagram, received: now, echo_sent, echo_seq, sent_then });
        let mine = Echo { incarnation: datagram.incarnation, seq: datagram.seq };
        self.heard = Some(match self.hello.take().or(self.heard) {
            Some(e) if e.incarnation == mine.incarnation => Echo { seq: e.seq.max(mine.seq), ..mine },
            Some(_) | None => mine,
        });
    }

    fn note_newcomer(&mut self, datagram: &Datagram) {
        let (incarnation, announced) = (datagram.incarnation, datagram.highest_token);
        if self.said().is_some_and(|d| d.incarnation == incarnation) {
            return;
        }
        let lowest =
            self.newcomer.filter(|(known, _)| *known == incarnation).map_or(announced, |(_, t)| t.min(announced));
        self.newcomer = Some((incarnation, lowest));
    }

    fn note_echo(&mut self, datagram: &Datagram) {
        let new = Echo { incarnation: datagram.incarnation, seq: datagram.seq };
        let accepted = self.accepted.as_ref().map(|a| a.datagram.incarnation);
        let slot = if accepted == Some(new.incarnation) { &mut self.heard } else { &mut self.hello };
        let highest = match *slot {
            Some(old) if old.incarnation == new.incarnation => Echo { seq: old.seq.max(new.seq), ..new },
            Some(_) | None => new,
        };
        *slot = Some(highest);
        if accepted == Some(new.incarnation) {
            self.hello = None;
        }
    }
}

/// When each of my recent datagrams left.
#[derive(Debug, Clone, Default)]
struct SentLog {
    last: Seq,
    log: VecDeque<(Seq, Instant)>,
}

impl SentLog {
    fn push(&mut self, now: Instant, keep: Span) -> Seq {
        self.last = Seq(self.last.0 + 1);
        while self.log.front().is_some_and(|(_, at)| now.since(*at) > keep) {
            self.log.pop_front();
        }
        self.log.push_back((self.last, now));
        self.last
    }

    fn at(&self, seq: Seq) -> Option<Instant> {
        let first = self.log.front()?.0;
        let index = usize::try_from(seq.0.checked_sub(first.0)?).ok()?;
        self.log.get(index).map(|(_, at)| *at)
    }
}

/// What nobody can echo any more is nothing (`fingerprint`).
impl Hash for SentLog {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for (seq, at) in &self.log {
            hasher.write_u16(u16::from(LOGGED));
            hasher.write_u64(seq.0);
            at.hash(hasher);
        }
    }
}

/// How many incarnations of the peer are remembered against replays. An attacker would need recordings of more
/// than this many, under one key, to prolong a promise by replaying them in turn.
const INCARNATIONS: usize = 64;
/// Sequences below the highest that are still told apart, per incarnation; older ones count as seen.
const WINDOW: u64 = 1024;

/// Which (incarnation, sequence) pairs were received before.
#[derive(Debug, Clone, Default)]
struct Seen {
    windows: VecDeque<(Incarnation, Window)>,
}

/// Which datagrams can still arrive, and whether for the first time, is a state of the network (`fingerprint`).
impl Hash for Seen {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Seen {
    fn is_new(&mut self, incarnation: Incarnation, seq: Seq) -> bool {
        if let Some((_, window)) = self.windows.iter_mut().find(|(i, _)| *i == incarnation) {
            return window.insert(seq.0);
        }
        if self.windows.len() == INCARNATIONS {
            self.windows.pop_front();
        }
        let mut window = Window::default();
        let new = window.insert(seq.0);
        self.windows.push_back((incarnation, window));
        new
    }
}

#[derive(Debug, Clone)]
struct Window {
    highest: u64,
    bits: [u64; (WINDOW / 64) as usize],
}

impl Default for Window {
    fn default() -> Window {
        Window { highest: 0, bits: [0; (WINDOW / 64) as usize] }
    }
}

impl Window {
    /// Whether `seq` is new; notes it.
    fn insert(&mut self, seq: u64) -> bool {
        if seq > self.highest {
            let from = self.highest + 1;
            (from..=seq).take(WINDOW as usize).for_each(|s| self.set(s, false));
            if seq - self.highest > WINDOW {
                self.bits = Default::default();
            }
            self.highest = seq;
        } else if self.highest - seq >= WINDOW || self.get(seq) {
            return false;
        }
        self.set(seq, true);
        true
    }

    fn get(&self, seq: u64) -> bool {
        let i = seq % WINDOW;
        self.bits[(i / 64) as usize] & (1 << (i % 64)) != 0
    }

    fn set(&mut self, seq: u64, on: bool) {
        let i = seq % WINDOW;
        let bit = 1 << (i % 64);
        let word = &mut self.bits[(i / 64) as usize];
        *word = if on { *word | bit } else { *word & !bit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sequence_is_new_once_also_out_of_order() {
        let mut window = Window::default();
        for seq in [5, 3, 4, 900, 1500, 1400, 1] {
            let fresh = seq + WINDOW > window.highest;
            assert_eq!(window.insert(seq), fresh, "{seq}");
            assert!(!window.insert(seq), "{seq} again");
        }
    }

    #[test]
    fn a_jump_beyond_the_window_forgets_what_lies_below() {
        let mut window = Window::default();
        assert!(window.insert(7));
        assert!(window.insert(7 + 10 * WINDOW));
        assert!(!window.insert(7));
        assert!(window.insert(6 + 10 * WINDOW));
    }

    #[test]
    fn sending_times_are_known_while_recent() {
        let mut log = SentLog::default();
        for t in 0..10 {
            log.push(Instant(t), Span(4));
        }
        assert_eq!(log.at(Seq(10)), Some(Instant(9)));
        assert_eq!(log.at(Seq(6)), Some(Instant(5)));
        assert_eq!(log.at(Seq(2)), None);
        assert_eq!(log.at(Seq(11)), None);
    }
}
