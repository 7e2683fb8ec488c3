//! What is counted of one link: sent, received, rejected by kind, failed by kind, loss, round trip. All O(1) a datagram.

use std::fmt;

use rustix::io::Errno;

use crate::core::{Incarnation, Instant, Seq, Span};

/// Why the system would not bind, send or receive. Never fatal: the other links go on, and this one may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The address is not on this machine (yet, or any more).
    NoAddress,
    /// The device does not exist (yet, or any more).
    NoDevice,
    /// No route, or the device is down.
    Unreachable,
    /// The socket's or the device's queue is full.
    QueueFull,
    /// A firewall or a missing privilege.
    NotPermitted,
    /// Another socket has the address and port.
    InUse,
    /// Larger than the path allows.
    TooLong,
    Other,
}

/// All faults, in the order of their counters.
const FAULTS: [Fault; 8] = [
    Fault::NoAddress,
    Fault::NoDevice,
    Fault::Unreachable,
    Fault::QueueFull,
    Fault::NotPermitted,
    Fault::InUse,
    Fault::TooLong,
    Fault::Other,
];

impl Fault {
    pub(super) fn of(error: &std::io::Error) -> Fault {
        match Errno::from_io_error(error) {
            Some(Errno::ADDRNOTAVAIL | Errno::INVAL) => Fault::NoAddress,
            Some(Errno::NODEV | Errno::NXIO) => Fault::NoDevice,
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN) => Fault::Unreachable,
            Some(Errno::AGAIN | Errno::NOBUFS) => Fault::QueueFull,
            Some(Errno::PERM | Errno::ACCESS) => Fault::NotPermitted,
            Some(Errno::ADDRINUSE) => Fault::InUse,
            Some(Errno::MSGSIZE) => Fault::TooLong,
            _ => Fault::Other,
        }
    }

    /// The socket is bound to what is no longer there: only a new one can work again (a device that was made anew has
    /// another index).
    pub(super) fn needs_new_socket(self) -> bool {
        matches!(self, Fault::NoAddress | Fault::NoDevice)
    }

    pub fn kind(self) -> &'static str {
        match self {
            Fault::NoAddress => "no address",
            Fault::NoDevice => "no device",
            Fault::Unreachable => "unreachable",
            Fault::QueueFull => "queue full",
            Fault::NotPermitted => "not permitted",
            Fault::InUse => "address in use",
            Fault::TooLong => "too long",
            Fault::Other => "other",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// A copy of everything that is counted of one link, for `status` and metrics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkCounters {
    /// Handed to the network.
    pub sent: u64,
    /// Not sent, by kind; kinds that never occurred are left out.
    pub send_faults: Vec<(Fault, u64)>,
    /// From the peer's address, before anybody checked its seal.
    pub received: u64,
    /// Not accepted, by kind: `foreign source` and `oversized` by the link itself, the others as the daemon noted them.
    pub rejected: Vec<(&'static str, u64)>,
    /// Authentic ones.
    pub authentic: u64,
    pub last_authentic: Option<Instant>,
    /// Of the peer's newest datagrams, how many did not come by this link, per mille; `None` before there are any.
    pub loss_per_mille: Option<u32>,
    pub round_trip: Option<RoundTrip>,
    /// Times that the socket was made anew.
    pub reopened: u64,
}

/// Round trip of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    pub last: Span,
    pub least: Span,
    /// Moves by an eighth with each sample, as RFC 6298 has it.
    pub smoothed: Span,
}

/// The counters while they count.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub sent: u64,
    pub received: u64,
    pub reopened: u64,
    authentic: u64,
    last_authentic: Option<Instant>,
    faults: [u64; FAULTS.len()],
    rejected: Vec<(&'static str, u64)>,
    loss: LossWindow,
    round_trip: Option<RoundTrip>,
}

impl Tally {
    pub fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Kinds are names in the program, a handful: the list is short and stops growing.
    pub fn rejected(&mut self, kind: &'static str) {
        match self.rejected.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, n)) => *n += 1,
            None => self.rejected.push((kind, 1)),
        }
    }

    pub fn authentic(&mut self, incarnation: Incarnation, seq: Seq, now: Instant) {
        self.authentic += 1;
        self.last_authentic = Some(now);
        self.loss.exists(incarnation, seq);
        self.loss.arrived(seq);
    }

    pub fn exists(&mut self, incarnation: Incarnation, seq: Seq) {
        self.loss.exists(incarnation, seq);
    }

    pub fn round_trip(&mut self, sample: Span) {
        let smoothed = |old: Span| Span((old.0 - old.0 / 8).saturating_add(sample.0 / 8));
        self.round_trip = Some(match self.round_trip {
            None => RoundTrip { last: sample, least: sample, smoothed: sample },
            Some(r) => RoundTrip { last: sample, least: r.least.min(sample), smoothed: smoothed(r.smoothed) },
        });
    }

    pub fn copy(&self) -> LinkCounters {
        let send_faults = FAULTS.into_iter().zip(self.faults).filter(|(_, n)| *n > 0).collect();
        LinkCounters {
            sent: self.sent,
            send_faults,
            received: self.received,
            rejected: self.rejected.clone(),
            authentic: self.authentic,
            last_authentic: self.last_authentic,
            loss_per_mille: self.loss.per_mille(),
            round_trip: self.round_trip,
            reopened: self.reopened,
        }
    }
}

/// Which of the peer's last datagrams came by this link. Each datagram goes out on every link under one number, so that
/// a link's loss shows as soon as any other link has brought a later one.
#[derive(Debug, Clone, Default)]
struct LossWindow {
    incarnation: Option<Incarnation>,
    newest: u64,
    /// Bit i: number `newest` − i has come.
    came: u128,
    /// Numbers that the window covers: from the first one heard of, at most all bits.
    covered: u32,
}

impl LossWindow {
    /// The peer has sent this, by whichever link it was heard.
    fn exists(&mut self, incarnation: Incarnation, seq: Seq) {
        if self.incarnation != Some(incarnation) {
            *self = LossWindow { incarnation: Some(incarnation), newest: seq.0, came: 0, covered: 1 };
        }
        let ahead = seq.0.saturating_sub(self.newest);
        let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
        self.came = self.came.checked_shl(shift).unwrap_or(0);
        self.covered = self.covered.saturating_add(shift).min(u128::BITS);
        self.newest = self.newest.max(seq.0);
    }

    /// It came by this link.
    fn arrived(&mut self, seq: Seq) {
        let behind = u32::try_from(self.newest - seq.0.min(self.newest)).unwrap_or(u32::MAX);
        self.came |= 1u128.checked_shl(behind).unwrap_or(0);
    }

    /// The newest number is left out: by this link it may still be under way.
    fn per_mille(&self) -> Option<u32> {
        let judged = self.covered.checked_sub(1).filter(|n| *n > 0)?;
        let mask = u128::MAX.checked_shr(u128::BITS - judged).unwrap_or(0);
        let came = (self.came >> 1 & mask).count_ones();
        Some((judged - came) * 1000 / judged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation(1);

    fn loss_after(sent: u64, came: impl Fn(u64) -> bool) -> Option<u32> {
        let mut tally = Tally::default();
        for seq in 1..=sent {
            if came(seq) {
                tally.authentic(LIFE, Seq(seq), Instant(seq));
            } else {
                tally.exists(LIFE, Seq(seq));
            }
        }
        tally.copy().loss_per_mille
    }

    #[test]
    fn loss_is_the_share_of_the_peers_numbers_that_did_not_come_by_this_link() {
        assert_eq!(loss_after(0, |_| true), None);
        assert_eq!(loss_after(1, |_| true), None, "the newest one is still under way elsewhere");
        assert_eq!(loss_after(1000, |_| true), Some(0));
        assert_eq!(loss_after(1000, |_| false), Some(1000));
        assert_eq!(loss_after(11, |seq| seq % 2 == 0), Some(500));
        assert_eq!(loss_after(5000, |seq| seq < 4000), Some(1000), "what was long ago is forgotten");
    }

    #[test]
    fn what_comes_late_or_twice_is_not_lost_and_a_new_life_starts_anew() {
        let mut tally = Tally::default();
        for seq in [5, 3, 4, 4, 5, 6, 1] {
            tally.authentic(LIFE, Seq(seq), Instant(0));
        }
        assert_eq!(tally.copy().loss_per_mille, Some(0));
        tally.authentic(LIFE, Seq(u64::MAX), Instant(0));
        assert_eq!(tally.copy().loss_per_mille, Some(1000));
        tally.authentic(Incarnation(2), Seq(1), Instant(0));
        tally.authentic(Incarnation(2), Seq(2), Instant(0));
        assert_eq!(tally.copy().loss_per_mille, Some(0));
    }

    #[test]
    fn a_round_trip_is_smoothed_and_its_least_is_kept() {
        let mut tally = Tally::default();
        for ms in [8, 16, 4] {
            tally.round_trip(Span::from_ms(ms));
        }
        let told = tally.copy().round_trip.unwrap();
        assert_eq!((told.last, told.least), (Span::from_ms(4), Span::from_ms(4)));
        assert_eq!(told.smoothed, Span(8_375_000));
        tally.round_trip(Span(u64::MAX));
    }

    #[test]
    fn each_fault_has_its_own_counter_and_kinds_of_rejection_theirs() {
        let mut tally = Tally::default();
        for (i, fault) in FAULTS.into_iter().enumerate() {
            assert_eq!(fault as usize, i);
            tally.fault(fault);
        }
        tally.fault(Fault::TooLong);
        ["wrong key", "malformed", "wrong key"].into_iter().for_each(|kind| tally.rejected(kind));
        let told = tally.copy();
        assert_eq!(told.send_faults.len(), FAULTS.len());
        assert_eq!(told.send_faults[6], (Fault::TooLong, 2));
        assert_eq!(told.rejected, [("wrong key", 2), ("malformed", 1)]);
    }
}
