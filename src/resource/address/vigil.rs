//! What to do about an address that was up: nothing, put it back, or give it up. Pure: the time is handed in.
//!
//! ```text
//!   held ──removed──▶ put back, counted ──more often than `put_back` a minute──▶ failed
//!    │ ▲
//!    │ └── carrier back, put back uncounted, told anew on the segment
//!    └──── no carrier, no interface ──longer than `hold`, short returns included──▶ strained
//! ```

use std::collections::VecDeque;

use crate::core::{Instant, Span};

/// Removals that lie further apart belong to no duel with another program.
pub const WINDOW: Span = Span::from_secs(60);

/// What was seen of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    Held,
    /// The interface is well, the address is not on it.
    Missing,
    /// Another machine has it: the kernel has found out.
    Duplicate,
    /// The interface cannot carry it, and why.
    NoLink(String),
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Nothing,
    /// Somebody removed it.
    PutBack(Told),
    /// The interface is back: the address may have gone with it, and switches have forgotten it.
    Renew,
    /// Nobody reaches it here, and why. It may stay where nobody reaches it elsewhere either.
    Strained(String),
    /// It is of no use any more, and why.
    Failed(String),
}

/// A burst of removals is told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Now,
    Before,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    /// When the interface came back; it must stay for `hold` before the outage is over.
    back: Option<Instant>,
}

/// One life of an address, from its start to its failure.
#[derive(Debug)]
pub struct Vigil {
    hold: Span,
    most: u32,
    outage: Option<Outage>,
    put_back: VecDeque<Instant>,
}

impl Vigil {
    /// `most`: how often it is put back within [`WINDOW`].
    pub fn new(hold: Span, most: u32) -> Vigil {
        Vigil { hold, most, outage: None, put_back: VecDeque::new() }
    }

    /// Of one whose outage was told: it is over only when the interface has stayed for `hold`.
    pub fn in_outage(mut self, now: Instant) -> Vigil {
        self.outage = Some(Outage { since: now, back: None });
        self
    }

    /// No outage, nor a return that is too fresh to be trusted.
    pub fn is_steady(&self) -> bool {
        self.outage.is_none()
    }

    /// The interface is back, and has not stayed for `hold` yet.
    pub fn is_back(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| outage.back.is_some())
    }

    pub fn judge(&mut self, sight: Sight, now: Instant) -> Verdict {
        self.put_back.retain(|at| now.since(*at) < WINDOW);
        match sight {
            Sight::NoLink(why) => self.without_link(&why, now),
            Sight::Duplicate => Verdict::Failed("another machine on the segment has the same address".to_owned()),
            Sight::Held => self.with_link(now).unwrap_or(Verdict::Nothing),
            Sight::Missing => self.with_link(now).unwrap_or_else(|| self.missing(now)),
        }
    }

    /// How often it was put back within the window.
    pub fn put_back(&self) -> usize {
        self.put_back.len()
    }

    fn without_link(&mut self, why: &str, now: Instant) -> Verdict {
        let outage = self.outage.get_or_insert(Outage { since: now, back: None });
        outage.back = None;
        let lasted = now.since(outage.since);
        match lasted >= self.hold {
            true => Verdict::Strained(format!("{why}; not steady for {lasted} (hold = {})", self.hold)),
            false => Verdict::Nothing,
        }
    }

    /// The interface is well; `Some` when it came back just now. An outage is over when it has stayed for `hold`.
    fn with_link(&mut self, now: Instant) -> Option<Verdict> {
        let outage = self.outage.as_mut()?;
        let Some(back) = outage.back else {
            outage.back = Some(now);
            return Some(Verdict::Renew);
        };
        if now.since(back) >= self.hold {
            self.outage = None;
        }
        None
    }

    fn missing(&mut self, now: Instant) -> Verdict {
        if self.put_back.len() >= self.most as usize {
            let times = self.put_back.len() + 1;
            return Verdict::Failed(format!(
                "another program removes the address: {times} times within {WINDOW} (put_back = {}); \
                 `leasehold check` tells of systemd-networkd",
                self.most
            ));
        }
        let told = if self.put_back.is_empty() { Told::Now } else { Told::Before };
        self.put_back.push_back(now);
        Verdict::PutBack(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(0).after(Span::from_ms(ms))
    }

    fn vigil() -> Vigil {
        Vigil::new(Span::from_secs(5), 3)
    }

    fn no_link() -> Sight {
        Sight::NoLink("eth1 has no carrier".to_owned())
    }

    fn failed(verdict: &Verdict, word: &str) -> bool {
        matches!(verdict, Verdict::Failed(what) if what.contains(word))
    }

    fn strained(verdict: &Verdict, word: &str) -> bool {
        matches!(verdict, Verdict::Strained(what) if what.contains(word))
    }

    #[test]
    fn a_removed_address_is_put_back_and_told_once_a_burst() {
        let mut vigil = vigil();
        assert_eq!(vigil.judge(Sight::Missing, at(0)), Verdict::PutBack(Told::Now));
        assert_eq!(vigil.judge(Sight::Held, at(10)), Verdict::Nothing);
        assert_eq!(vigil.judge(Sight::Missing, at(30_000)), Verdict::PutBack(Told::Before));
        assert_eq!(vigil.put_back(), 2);
        assert_eq!(vigil.judge(Sight::Missing, at(100_000)), Verdict::PutBack(Told::Now));
    }

    #[test]
    fn a_duel_ends_at_the_limit_and_rare_removals_never_do() {
        let mut duel = vigil();
        (0..3).for_each(|n| assert!(matches!(duel.judge(Sight::Missing, at(n * 1000)), Verdict::PutBack(_))));
        assert!(failed(&duel.judge(Sight::Missing, at(4000)), "4 times"));
        let mut rare = vigil();
        (0..20).for_each(|n| assert!(matches!(rare.judge(Sight::Missing, at(n * 31_000)), Verdict::PutBack(_))));
    }

    #[test]
    fn an_outage_shorter_than_the_hold_time_is_mended_and_not_counted() {
        let mut vigil = vigil();
        assert_eq!(vigil.judge(no_link(), at(0)), Verdict::Nothing);
        assert_eq!(vigil.judge(no_link(), at(4_999)), Verdict::Nothing);
        assert_eq!(vigil.judge(Sight::Missing, at(5_500)), Verdict::Renew);
        assert_eq!(vigil.put_back(), 0);
        assert_eq!(vigil.judge(Sight::Missing, at(5_600)), Verdict::PutBack(Told::Now));
    }

    #[test]
    fn an_outage_of_the_hold_time_is_a_strain_that_says_what_was_seen() {
        let mut vigil = vigil();
        vigil.judge(no_link(), at(0));
        assert!(strained(&vigil.judge(no_link(), at(5_000)), "eth1 has no carrier; not steady for 5s"));
    }

    #[test]
    fn a_carrier_that_flaps_is_one_outage_until_it_has_stayed() {
        let mut flapping = vigil();
        assert_eq!(flapping.judge(no_link(), at(0)), Verdict::Nothing);
        assert_eq!(flapping.judge(Sight::Held, at(2_000)), Verdict::Renew);
        assert_eq!(flapping.judge(no_link(), at(4_000)), Verdict::Nothing);
        assert_eq!(flapping.judge(Sight::Held, at(6_000)), Verdict::Renew);
        assert!(strained(&flapping.judge(no_link(), at(8_000)), "no carrier"));
        let mut steady = vigil();
        steady.judge(no_link(), at(0));
        steady.judge(Sight::Held, at(2_000));
        assert_eq!(steady.judge(Sight::Held, at(7_000)), Verdict::Nothing);
        assert_eq!(steady.judge(no_link(), at(8_000)), Verdict::Nothing);
    }

    #[test]
    fn an_outage_that_was_told_ends_when_the_link_has_stayed() {
        let mut vigil = vigil().in_outage(at(0));
        assert_eq!(vigil.judge(Sight::Held, at(100)), Verdict::Renew);
        assert!(!vigil.is_steady() && vigil.is_back());
        assert_eq!(vigil.judge(Sight::Held, at(5_100)), Verdict::Nothing);
        assert!(vigil.is_steady() && !vigil.is_back());
    }

    #[test]
    fn a_duplicate_is_a_failure_at_once() {
        assert!(failed(&vigil().judge(Sight::Duplicate, at(0)), "another machine"));
    }
}
