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

/// Collects how late things happened.
#[derive(Debug, Clone)]
pub struct StallMeter {
    buckets: [u64; BUCKETS],
    count: u64,
    longest: Span,
}

/// What the meter has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stalls {
    pub count: u64,
    pub p50: Span,
    pub p99_9: Span,
    pub longest: Span,
}

impl StallMeter {
    pub fn new() -> StallMeter {
        StallMeter { buckets: [0; BUCKETS], count: 0, longest: Span::ZERO }
    }

    /// Something was due at `due` and happened at `now`.
    pub fn note(&mut self, due: Instant, now: Instant) {
        let late = now.since(due);
        self.buckets[bucket(late.0)] += 1;
        self.count += 1;
        self.longest = self.longest.max(late);
    }

    pub fn summary(&self) -> Stalls {
        Stalls { count: self.count, p50: self.quantile(500), p99_9: self.quantile(999), longest: self.longest }
    }

    /// How many samples were later than this (a bucket counts as soon as its upper bound is).
    pub fn longer_than(&self, limit: Span) -> u64 {
        self.buckets.iter().enumerate().filter(|(i, _)| upper_bound(*i) > limit.0).map(|(_, n)| n).sum()
    }

    /// Starts anew.
    pub fn reset(&mut self) {
        *self = StallMeter::new();
    }

    /// The lateness that `per_mille` of all samples did not exceed; zero without samples.
    fn quantile(&self, per_mille: u64) -> Span {
        let rank = u128::from(self.count) * u128::from(per_mille);
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += u128::from(*n) * 1000;
            if *n > 0 && seen >= rank {
                return Span(upper_bound(i)).min(self.longest);
            }
        }
        Span::ZERO
    }
}

impl Default for StallMeter {
    fn default() -> StallMeter {
        StallMeter::new()
    }
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
        meter.reset();
        assert_eq!(meter.summary(), Stalls::default());
    }

    #[test]
    fn being_early_counts_as_not_late() {
        let mut meter = StallMeter::new();
        meter.note(Instant(9), Instant(3));
        assert_eq!(meter.summary().longest, Span::ZERO);
    }
}
