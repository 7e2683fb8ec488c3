//! Two nodes with one fingerprint go on alike: what a model checker needs in order to visit each state once.
//!
//! The numbers of a state that only ever grow are hashed by what they are compared with: instants by their distance
//! from now, jobs and epochs from the newest, sequences by their rank among those that anyone still knows. A pair
//! that idles then comes back to a state already seen. Each of these newtypes hashes itself after a mark, by which
//! the hasher here knows what the number means; to any other hasher it is two bytes more.

use std::hash::{Hash, Hasher};

use super::ids::{Incarnation, Seq};
use super::io::{Epoch, Generation, Job};
use super::node::Node;
use super::time::{Instant, Span};

/// From where the numbers of a state are seen.
#[derive(Debug, Clone)]
pub struct Lens {
    now: Instant,
    horizon: Span,
    /// Every sequence that a node or a datagram on its way still knows, in order.
    known: Vec<(u64, u64)>,
}

impl Lens {
    /// What lies further back than `horizon` is equally over: it is longer than every span compared with the past.
    pub fn new(now: Instant, horizon: Span) -> Lens {
        Lens { now, horizon, known: Vec::new() }
    }

    /// Notes the sequences that `value` knows. Everything must be gathered before anything is hashed.
    pub fn gather(&mut self, own: Incarnation, value: &impl Hash) {
        let mut gatherer = Gatherer { own: own.0, seen: own.0, mark: None, known: &mut self.known };
        value.hash(&mut gatherer);
    }

    pub fn gather_node(&mut self, node: &Node) {
        self.gather(node.identity.incarnation, &State(node));
    }

    /// The gathering is over.
    pub fn focus(&mut self) {
        self.known.sort_unstable();
        self.known.dedup();
    }

    /// Hashes what a node, a datagram or anything else made of the core's types holds.
    ///
    /// `own` is the incarnation whose sequences stand alone or after an instant; others follow their incarnation.
    pub fn hash(&self, own: Incarnation, newest: (Job, Epoch), value: &impl Hash) -> u64 {
        let inner = Mixer::default();
        let (own, seen) = (own.0, own.0);
        let mut hasher = Relative { lens: self, own, seen, newest, mark: None, forgotten: false, inner };
        value.hash(&mut hasher);
        hasher.finish()
    }

    /// What this node will do from now on, whatever it did before, hangs on this alone (random spreads aside).
    pub fn node(&self, node: &Node) -> u64 {
        let newest = (Job(node.next_job), Epoch(node.next_epoch));
        self.hash(node.identity.incarnation, newest, &State(node))
    }

    fn rank(&self, of: u64, seq: u64) -> Option<usize> {
        let at = self.known.binary_search(&(of, seq)).ok()?;
        Some(at - self.known.partition_point(|(i, _)| *i < of))
    }
}

/// A node without what only its reports show, its constants and its randomness.
struct State<'a>(&'a Node);

impl Hash for State<'_> {
    fn hash<H: Hasher>(&self, h: &mut H) {
        let n = self.0;
        (n.identity.incarnation, n.identity.boot).hash(h);
        (&n.peer, &n.detector, &n.promise, n.right_until).hash(h);
        (&n.role, &n.record, &n.fencing, n.resources).hash(h);
        (n.recordless, n.readiness, n.is_ready, n.links_usable, n.had_contact_this_boot).hash(h);
        (n.fenced_at, n.called, n.attentive_since).hash(h);
        (n.named, n.thaw_asked, n.freeze_asked, n.finished, n.taking_back, n.send_now).hash(h);
        (n.power_on_due, n.powered_on > 0, n.peer_record_is_old, n.presence, n.digest_differs).hash(h);
        n.drill.hash(h);
        (n.claim.map(|c| c.token), n.release, n.cannot).hash(h);
        (n.stopping, n.backoff_until, n.settle_until, &n.timers).hash(h);
        // After its incarnation a sequence is one of this node's own.
        let since = (n.idle_since, n.acting_since, n.wish_since, n.leave_since, n.claim.and_then(|c| c.since));
        (n.identity.incarnation, since).hash(h);
    }
}

const INSTANT: u8 = b'i';
const SEQ: u8 = b's';
/// A sequence in the log of what was sent: nothing, unless somebody can still echo it.
pub(super) const LOGGED: u8 = b'l';
const INCARNATION: u8 = b'n';
const JOB: u8 = b'j';
const EPOCH: u8 = b'e';
const GENERATION: u8 = b'g';

/// Collects sequences.
struct Gatherer<'a> {
    own: u64,
    seen: u64,
    mark: Option<u8>,
    known: &'a mut Vec<(u64, u64)>,
}

impl Hasher for Gatherer<'_> {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u16(&mut self, mark: u16) {
        self.mark = Some(mark as u8);
    }

    fn write_u64(&mut self, number: u64) {
        match self.mark.take() {
            Some(INSTANT) => self.seen = self.own,
            Some(INCARNATION) => self.seen = number,
            Some(SEQ) => self.known.push((self.seen, number)),
            Some(_) | None => {}
        }
    }
}

struct Relative<'a> {
    lens: &'a Lens,
    own: u64,
    /// Whose sequence comes next.
    seen: u64,
    newest: (Job, Epoch),
    mark: Option<u8>,
    /// The next instant is when something was sent that nobody can echo any more.
    forgotten: bool,
    inner: Mixer,
}

impl Relative<'_> {
    fn instant(&mut self, at: u64) -> u64 {
        self.seen = self.own;
        let floor = self.lens.now.before(self.lens.horizon);
        at.max(floor.0).wrapping_sub(self.lens.now.0)
    }

    fn number(&mut self, mark: u8, number: u64) -> u64 {
        match mark {
            INSTANT if std::mem::take(&mut self.forgotten) => 0,
            INSTANT => self.instant(number),
            SEQ => self.lens.rank(self.seen, number).map_or(u64::MAX, |rank| rank as u64),
            LOGGED => {
                let rank = self.lens.rank(self.own, number);
                self.forgotten = rank.is_none();
                rank.map_or(0, |rank| rank as u64)
            }
            JOB => self.newest.0.0.wrapping_sub(number),
            EPOCH => self.newest.1.0.wrapping_sub(number),
            INCARNATION => {
                self.seen = number;
                number
            }
            // One write at a time: the one under way is the one that is answered.
            _ => 0,
        }
    }
}

/// A model checker does little else than hash, and nobody chooses what it hashes: one multiplication a number.
#[derive(Debug, Default)]
struct Mixer(u64);

/// Odd and without a pattern: the fraction of the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mixer {
    /// Undoable, so that two states once told apart are never confused by what they have in common.
    fn mix(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_add(SPREAD).wrapping_mul(SPREAD);
        self.0 = product ^ (product >> 32);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.mix(chunk.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)));
        }
    }

    fn mixed(mut self) -> u64 {
        self.mix(0);
        self.mix(0);
        self.0
    }
}

impl Hasher for Relative<'_> {
    fn finish(&self) -> u64 {
        Mixer(self.inner.0).mixed()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.inner.bytes(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.inner.mix(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.inner.mix(number as u64);
    }

    /// Attempts are counted for reports only; a model has few agents, whose sets are small.
    fn write_u32(&mut self, count: u32) {
        self.inner.mix(u64::from(count.min(3)));
    }

    fn write_u16(&mut self, mark: u16) {
        self.mark = Some(mark as u8);
    }

    fn write_u64(&mut self, number: u64) {
        let mark = self.mark.take();
        let skipped = mark == Some(LOGGED) && self.lens.rank(self.own, number).is_none()
            || mark == Some(INSTANT) && self.forgotten;
        let number = match mark {
            Some(mark) => self.number(mark, number),
            None => number,
        };
        if !skipped {
            self.inner.mix(number);
        }
    }
}

macro_rules! marked {
    ($($name:ident: $mark:expr),*) => {$(
        impl Hash for $name {
            fn hash<H: Hasher>(&self, hasher: &mut H) {
                hasher.write_u16(u16::from($mark));
                hasher.write_u64(self.0);
            }
        }
    )*};
}

marked!(Instant: INSTANT, Seq: SEQ, Incarnation: INCARNATION, Job: JOB, Epoch: EPOCH, Generation: GENERATION);
