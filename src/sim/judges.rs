//! Judges that look from outside: at what the nodes did, never at what they believe (protocol section 8).
//!
//! Where an assumption is broken on purpose, the guarantee that rests on it is void from then on, and the others are
//! still checked.

use std::fmt;

use crate::core::{Datagram, NodeId, PromoteAfter, ProofKind, Record, Standing, Token};

use super::text::{self, NODES};

/// What was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// Never active on both nodes.
    S1,
    /// Nor after a take-over from a `Paired` primary that waits for the lease, even where a device lied.
    S2,
    /// Tokens rise; none is used twice; the storage accepts no lower one after a higher one.
    S3,
    /// Every promotion has a proof, recorded before it.
    S4,
    /// What was acknowledged as durable stays; nothing is shown before it is durable.
    S5,
    /// A primary within the bound.
    L1,
    /// After healing, a primary and a ready standby.
    L2,
    /// Bytes that were changed on the way are refused.
    Wire,
    /// The core panicked.
    Panic,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub at: u64,
    pub guarantee: Guarantee,
    pub text: String,
}

/// One start of the service from nothing, as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promotion {
    pub at: u64,
    pub node: NodeId,
    pub token: Token,
    pub proof: ProofKind,
}

/// What one node is doing at this moment, for the judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deed {
    /// Something of the service may act.
    pub acts: bool,
    /// The storage would accept a write of this node.
    pub accepted: bool,
    /// Clients are served: all resources up, storage accepting.
    pub serves: bool,
    /// The guard's deadline is that of a `Sole` primary.
    pub sole: bool,
    pub token: Token,
}

/// Why a guarantee no longer holds in this world.
#[derive(Debug, Default, Clone)]
pub struct Void {
    pub s1: Option<&'static str>,
    pub s2: Option<&'static str>,
    pub s3: Option<&'static str>,
}

#[derive(Debug)]
pub struct Judges {
    pub violations: Vec<Violation>,
    pub void: Void,
    pub promotions: Vec<Promotion>,
    /// Tokens under which each node promised the service or started it, re-mints included.
    used: Vec<(NodeId, Token)>,
    /// Tokens of reported promotions.
    reported: Vec<(NodeId, Token)>,
    pub deeds: [Deed; 2],
    /// When each node served clients: closed intervals and, last, an open one.
    pub served: [Vec<(u64, u64)>; 2],
    /// When each node acted.
    pub acted: [Vec<(u64, u64)>; 2],
    /// Highest token that each node has shown since its record was last tampered with.
    shown: [Token; 2],
    tampered: [bool; 2],
    /// Highest token under which the storage accepted a write.
    written: Token,
    pub both_active: u64,
    /// The storage guards itself: by a compare-and-swap, or by checking tokens.
    pub storage_arbitrates: bool,
    promote_after: [PromoteAfter; 2],
}

impl Judges {
    pub fn new(promote_after: [PromoteAfter; 2], storage_arbitrates: bool) -> Judges {
        Judges {
            violations: Vec::new(),
            void: Void::default(),
            promotions: Vec::new(),
            used: Vec::new(),
            reported: Vec::new(),
            deeds: [Deed::default(); 2],
            served: [Vec::new(), Vec::new()],
            acted: [Vec::new(), Vec::new()],
            shown: [Token::NONE; 2],
            tampered: [false; 2],
            written: Token::NONE,
            both_active: 0,
            storage_arbitrates,
            promote_after,
        }
    }

    pub fn accuse(&mut self, at: u64, guarantee: Guarantee, text: String) {
        self.violations.push(Violation { at, guarantee, text });
    }

    /// Something changed in what the nodes do.
    pub fn deeds(&mut self, at: u64, deeds: [Deed; 2]) {
        if deeds == self.deeds {
            return;
        }
        let before = std::mem::replace(&mut self.deeds, deeds);
        for node in NODES {
            let (old, new) = (before[node.index()], deeds[node.index()]);
            mark(&mut self.served[node.index()], at, old.serves, new.serves);
            mark(&mut self.acted[node.index()], at, old.acts, new.acts);
            if new.accepted {
                self.write(at, node, new.token);
            }
        }
        if deeds[0].acts && deeds[1].acts && !(before[0].acts && before[1].acts) {
            self.both_act(at);
        }
        if self.storage_arbitrates && deeds[0].accepted && deeds[1].accepted {
            self.accuse(at, Guarantee::S3, String::from("the storage accepts writes of both nodes"));
        }
    }

    /// S1 and S2, at the moment at which the second node began to act.
    fn both_act(&mut self, at: u64) {
        self.both_active += 1;
        let newest = self.promotions.last().copied();
        let who = newest.map_or("?", |p| text::name(p.node));
        if self.void.s1.is_none() {
            self.accuse(at, Guarantee::S1, format!("both nodes act; {who} was promoted last"));
        }
        let Some(newest) = newest.filter(|_| self.void.s2.is_none()) else { return };
        let waited = self.promote_after[newest.node.index()] == PromoteAfter::FenceAndLease
            || newest.proof == ProofKind::Confirmed;
        if waited && !self.deeds[newest.node.peer().index()].sole {
            self.accuse(at, Guarantee::S2, format!("{who} waited for the lease, and the old primary still acts"));
        }
    }

    /// The storage accepts writes under this token from now on.
    fn write(&mut self, at: u64, node: NodeId, token: Token) {
        if token < self.written && self.storage_arbitrates {
            let text = format!("the storage accepts token {token} of {} after {}", text::name(node), self.written);
            self.accuse(at, Guarantee::S3, text);
        }
        self.written = self.written.max(token);
    }

    /// The service starts from nothing.
    pub fn promoted(&mut self, promotion: Promotion, durable: Option<&Record>) {
        let Promotion { at, node, token, proof } = promotion;
        let written =
            durable.is_some_and(|r| r.held_token == token && r.held_proof == Some(proof) && r.highest_token >= token);
        if !written {
            let text = format!("{} starts under token {token} by {proof:?} without that on its disk", text::name(node));
            self.accuse(at, Guarantee::S4, text);
        }
        self.promotions.push(promotion);
        self.use_token(at, node, token);
    }

    /// A token comes into use: by a promotion or by a re-mint.
    pub fn use_token(&mut self, at: u64, node: NodeId, token: Token) {
        if self.void.s3.is_none() {
            if self.used.iter().any(|(_, t)| *t == token) {
                self.accuse(at, Guarantee::S3, format!("{} uses token {token} again", text::name(node)));
            }
            // Of the tokens that were used, those up to the highest that this node showed are known to it. Others that
            // it showed may be burnt: minted for an attempt or a claim that came to nothing.
            let shown = self.shown[node.index()];
            let known = self.used.iter().map(|(_, t)| *t).filter(|t| *t <= shown).max();
            if let Some(known) = known.filter(|k| token < *k) {
                self.accuse(at, Guarantee::S3, format!("{} uses token {token} below {known}", text::name(node)));
            }
        }
        self.used.push((node, token));
    }

    pub fn reported(&mut self, node: NodeId, token: Token) {
        self.reported.push((node, token));
    }

    /// A datagram leaves: what it relies on is on the disk. `newest` may be durable without the daemon's knowing it yet.
    pub fn sent(&mut self, at: u64, d: &Datagram, newest: Option<&Record>, known: Option<&Record>) {
        let shown = &mut self.shown[d.sender.index()];
        *shown = (*shown).max(d.highest_token);
        let missing = Record::missing();
        let (newest, known) = (newest.unwrap_or(&missing), known.unwrap_or(&missing));
        if let Some(fault) = undurable(d, newest, known) {
            self.accuse(at, Guarantee::S5, format!("{} shows {fault}", text::name(d.sender)));
        }
    }

    /// A write is asked for: tokens on the disk never fall.
    pub fn persisted(&mut self, at: u64, node: NodeId, new: &Record, known: Option<&Record>) {
        if known.is_some_and(|k| new.highest_token < k.highest_token) {
            self.accuse(at, Guarantee::S5, format!("{} writes a lower highest token", text::name(node)));
        }
    }

    /// Somebody put an old record, or none, in place of this node's.
    pub fn tampered(&mut self, node: NodeId, rolled_back: bool) {
        self.shown[node.index()] = Token::NONE;
        self.tampered[node.index()] = true;
        if rolled_back {
            self.void.s3.get_or_insert("a record was restored from an old copy");
        } else if self.tampered == [true, true] {
            self.void.s3.get_or_insert("both records were lost");
        }
    }

    /// The world ends here: open intervals are closed, and what is still missing is named.
    pub fn finish(&mut self, at: u64) {
        for promotion in self.promotions.clone() {
            if !self.reported.contains(&(promotion.node, promotion.token)) {
                let text = format!("{} never reported token {}", text::name(promotion.node), promotion.token);
                self.accuse(at, Guarantee::S4, text);
            }
        }
    }

    pub fn is_void(&self, guarantee: Guarantee) -> bool {
        match guarantee {
            Guarantee::S1 => self.void.s1.is_some(),
            Guarantee::S2 => self.void.s2.is_some(),
            Guarantee::S3 => self.void.s3.is_some(),
            Guarantee::S4 | Guarantee::S5 | Guarantee::Wire | Guarantee::L1 | Guarantee::L2 | Guarantee::Panic => false,
        }
    }
}

/// What this datagram shows without its being durable.
fn undurable(d: &Datagram, newest: &Record, known: &Record) -> Option<&'static str> {
    let standing_known = |s: Standing| s == newest.standing || s == known.standing;
    if d.highest_token > newest.highest_token {
        Some("a highest token that is not durable")
    } else if d.held_token > newest.held_token && d.held_token > known.held_token {
        Some("a held token that is not durable")
    } else if d.grant.is_some_and(|g| g.token != newest.granted_token && g.token != known.granted_token) {
        Some("a grant that is not durable")
    } else if !standing_known(d.standing) {
        Some("a standing that is not durable")
    } else {
        None
    }
}

fn mark(intervals: &mut Vec<(u64, u64)>, at: u64, before: bool, now: bool) {
    match (before, now) {
        (false, true) => intervals.push((at, u64::MAX)),
        (true, false) => {
            if let Some(last) = intervals.last_mut() {
                last.1 = at;
            }
        }
        _ => {}
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} VIOLATED {:?}: {}", text::stamp(self.at), self.guarantee, self.text)
    }
}
