//! How late the loop was woken, as a histogram: told in `status` beside the margin that it eats into.
//!
//! A sample costs one increment and no allocation, so that the meter may run in the loop that it measures. Buckets are
//! log-linear: eight for each doubling, so that a quantile is at most 12.5 % above the true value and never below it.

use crate::core::{Instant, Span};

/// Values below this have a bucket each.
const EXACT: u64 = 16;
/// Buckets for each doubling above: three bits below the leading one.
const STEPS: usize = 8;
const BUCKETS: usize = EXACT as usize + (64 - 4) * STEPS;

/// The last hour is kept in slices of this length, the oldest of which falls out whole.
const SLICE: Span = Span::from_secs(600);
/// So that what is told of the last hour reaches back at least that far.
const SLICES: usize = 7;

/// Collects how late things happened, since the start and in the last hour.
#[derive(Debug, Clone)]
pub struct StallMeter {
    all: Histogram<u64>,
    slices: [Histogram<u32>; SLICES],
    /// Which of them is filled, and since when.
    slice: usize,
    since: Option<Instant>,
}

/// What the meter has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stalls {
    pub count: u64,
    pub p50: Span,
    pub p99_9: Span,
    pub longest: Span,
}

#[derive(Debug, Clone, Copy)]
struct Histogram<N> {
    buckets: [N; BUCKETS],
    longest: Span,
}

impl StallMeter {
    pub fn new() -> StallMeter {
        StallMeter { all: Histogram::new(), slices: [Histogram::new(); SLICES], slice: 0, since: None }
    }

    /// Something was due at `due` and happened at `now`.
    pub fn note(&mut self, due: Instant, now: Instant) {
        self.turn(now);
        let late = now.since(due);
        self.all.note(late);
        self.slices[self.slice].note(late);
    }

    /// Since the start.
    pub fn summary(&self) -> Stalls {
        summary(|bucket| self.all.buckets[bucket], self.all.longest)
    }

    /// In the last hour, and up to ten minutes more.
    pub fn last_hour(&self) -> Stalls {
        let count = |bucket: usize| self.slices.iter().map(|slice| u64::from(slice.buckets[bucket])).sum();
        summary(count, self.slices.iter().map(|slice| slice.longest).max().unwrap_or_default())
    }

    /// How many samples were later than this (a bucket counts as soon as its upper bound is).
    pub fn longer_than(&self, limit: Span) -> u64 {
        self.all.buckets.iter().enumerate().filter(|(i, _)| upper_bound(*i) > limit.0).map(|(_, n)| n).sum()
    }

    /// Begins the slices that are due. While nothing is noted nothing grows old: whoever measures is woken all the time.
    fn turn(&mut self, now: Instant) {
        let mut since = *self.since.get_or_insert(now);
        for _ in 0..SLICES {
            if now.since(since) < SLICE {
                break;
            }
            since = since.after(SLICE);
            self.slice = (self.slice + 1) % SLICES;
            self.slices[self.slice] = Histogram::new();
        }
        self.since = Some(if now.since(since) < SLICE { since } else { now });
    }
}

impl Default for StallMeter {
    fn default() -> StallMeter {
        StallMeter::new()
    }
}

impl<N: Copy + Default + std::ops::AddAssign + From<u8>> Histogram<N> {
    fn new() -> Histogram<N> {
        Histogram { buckets: [N::default(); BUCKETS], longest: Span::ZERO }
    }

    fn note(&mut self, late: Span) {
        self.buckets[bucket(late.0)] += N::from(1);
        self.longest = self.longest.max(late);
    }
}

fn summary(count_of: impl Fn(usize) -> u64, longest: Span) -> Stalls {
    let count = (0..BUCKETS).map(&count_of).sum();
    let quantile = |per_mille: u64| {
        let rank = u128::from(count) * u128::from(per_mille);
        let mut seen = 0;
        for bucket in 0..BUCKETS {
            let here = count_of(bucket);
            seen += u128::from(here) * 1000;
            if here > 0 && seen >= rank {
                return Span(upper_bound(bucket)).min(longest);
            }
        }
        Span::ZERO
    };
    Stalls { count, p50: quantile(500), p99_9: quantile(999), longest }
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros() as usize;
    let step = (value >> (exponent - 3)) as usize & (STEPS - 1);
    EXACT as usize + (exponent - 4) * STEPS + step
}

/// The largest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(EXACT as usize) else { return bucket as u64 };
    let (exponent, step) = (above / STEPS + 4, (above % STEPS) as u64);
    let width = 1u64 << (exponent - 3);
    (1u64 << exponent) + step * width + (width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_within_an_eighth_of_its_upper_bound() {
        let edges = (0..64).flat_map(|e| [(1u64 << e) - 1, 1 << e, (1 << e) + 1, 3 << (e / 2)]);
        for value in edges.chain([u64::MAX, u64::MAX - 1]) {
            let upper = upper_bound(bucket(value));
            assert!(upper >= value && upper - value <= value / 8, "{value} is told as {upper}");
        }
    }

    #[test]
    fn quantiles_are_told_from_above_and_never_beyond_the_longest() {
        let mut meter = StallMeter::new();
        assert_eq!(meter.summary(), Stalls::default());
        for late in 0..1000u64 {
            meter.note(Instant(5), Instant(5 + late * 1000));
        }
        let told = meter.summary();
        assert_eq!((told.count, told.longest), (1000, Span(999_000)));
        assert!((499_000..=562_000).contains(&told.p50.0), "{told:?}");
        assert!((998_000..=999_000).contains(&told.p99_9.0), "{told:?}");
    }

    #[test]
    fn one_long_stall_among_many_short_ones_shows_as_the_longest_alone() {
        let mut meter = StallMeter::new();
        (0..9_999).for_each(|_| meter.note(Instant(0), Instant(100)));
        meter.note(Instant(0), Instant(2_000_000_000));
        let told = meter.summary();
        assert!(told.p99_9.0 < 120 && told.longest == Span::from_secs(2), "{told:?}");
    }

    #[test]
    fn a_stall_falls_out_of_the_last_hour_and_stays_in_what_was_since_the_start() {
        let minute = |n: u64| Instant(n * 60_000_000_000);
        let mut meter = StallMeter::new();
        meter.note(minute(0), minute(0).after(Span::from_secs(2)));
        for n in 1..60 {
            meter.note(minute(n), minute(n).after(Span::from_ms(1)));
            assert_eq!(meter.last_hour(), meter.summary(), "minute {n}");
        }
        meter.note(minute(71), minute(71));
        let (hour, all) = (meter.last_hour(), meter.summary());
        assert_eq!((all.count, all.longest), (61, Span::from_secs(2)));
        assert!(hour.longest == Span::from_ms(1) && hour.count > 40, "{hour:?}");
        // After a pause longer than all slices only the newest sample is left.
        meter.note(minute(1000), minute(1000));
        assert_eq!((meter.last_hour().count, meter.summary().count), (1, 62));
    }

    #[test]
    fn being_early_counts_as_not_late() {
        let mut meter = StallMeter::new();
        meter.note(Instant(9), Instant(3));
        assert_eq!(meter.summary().longest, Span::ZERO);
    }
}
