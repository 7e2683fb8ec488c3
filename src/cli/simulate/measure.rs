//! From many worlds to the figures that an operator asks for. The `Serialize` here is the JSON of docs/SIMULATE.md.

use std::collections::BTreeMap;

use serde::Serialize;

use super::faults::Fault;
use super::figures::Figures;
use super::worlds::{End, Job, Ran, Sample};
use crate::sim::text::Range;

const MS: u64 = 1_000_000;
const YEAR_HOURS: f64 = 8766.0;
const HOUR_NS: f64 = 3.6e12;
/// Bars of a histogram: what fits on a screen beside the rest.
const BARS: u64 = 12;
/// Spans of stall lengths.
const SPANS: u64 = 10;
/// Of n cases none was seen: with 95 % confidence fewer than this many in n ("rule of three").
const NONE_SEEN: f64 = 3.0;

/// The outage of a world in which nobody served any more: longer than each that ended.
pub const FOR_GOOD: u64 = u64::MAX;

/// Everything that `simulate` says.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub version: u32,
    pub cluster: String,
    pub nodes: [String; 2],
    pub assumed: Assumed,
    pub worlds: u64,
    pub simulated_hours: f64,
    pub faults: Vec<Row>,
    pub false_failovers: False,
    /// Worlds in which both nodes acted at one moment.
    pub both_acted: u64,
    /// Worlds in which a guarantee was broken, by its name.
    pub broken: BTreeMap<String, u64>,
    pub worst: Option<Worst>,
}

/// The figures that were used, in milliseconds: the shortest and the longest.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Assumed {
    pub round_trip_ms: [f64; 2],
    pub loss_percent: f64,
    pub fence_latency_ms: [f64; 2],
    pub start_ms: [f64; 2],
    pub stop_ms: [f64; 2],
    pub stalls_ms: [f64; 2],
    pub stall_every_hours: f64,
}

/// What one fault did, in many worlds.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub fault: String,
    pub worlds: u64,
    /// Worlds whose pair never became whole; they are not part of the other figures.
    pub never_whole: u64,
    pub outage: Outage,
    pub without_outage: u64,
    pub still_down: u64,
    pub primary_shot: u64,
    pub standby_shot: u64,
    pub both_shot: u64,
    /// Both acted for the service at one moment.
    pub both_acted: u64,
    pub histogram: Vec<Bar>,
    /// Every outage, sorted, for plots; of those that are still down [`FOR_GOOD`].
    #[serde(skip)]
    pub outages: Vec<u64>,
}

/// Time without service from the fault on, in milliseconds. `None`: still down when the world ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Outage {
    pub median_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub worst_ms: Option<f64>,
}

/// Worlds whose outage lay from here to there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bar {
    pub from_ms: f64,
    pub to_ms: f64,
    pub worlds: u64,
}

/// A healthy primary shot, or the service started anew, while nothing happened but losses and stalls.
#[derive(Debug, Clone, Default, Serialize)]
pub struct False {
    /// Losses alone.
    pub calm_hours: f64,
    pub in_calm: u64,
    pub in_calm_per_year: f64,
    pub stalls: u64,
    pub stalls_per_year: f64,
    pub from_stalls: u64,
    pub from_stalls_per_year: f64,
    /// Fewer than this, with 95 % confidence, where none was seen.
    pub from_stalls_per_year_below: Option<f64>,
    /// Standbys shot for a stall: no interruption, but no standby either.
    pub standby_shot: u64,
    pub standby_shot_per_year: f64,
    pub by_length: Vec<ByLength>,
}

/// Stalls of about one length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ByLength {
    pub from_ms: f64,
    pub to_ms: f64,
    pub of_primary: u64,
    pub failed_over: u64,
    pub of_standby: u64,
    pub standby_shot: u64,
}

/// The world with the broken guarantee, else the longest outage.
#[derive(Debug, Clone, Serialize)]
pub struct Worst {
    pub fault: String,
    pub seed: u64,
    /// `None`: still down when the world ended, or there was no fault yet.
    pub outage_ms: Option<f64>,
    pub broken: Vec<String>,
    /// Settings and schedule; the nodes are called as in the configuration.
    pub script: Vec<String>,
    #[serde(skip)]
    pub job: Option<Job>,
}

impl Assumed {
    pub fn of(f: &Figures) -> Assumed {
        let span = |r: Range| [ms(r.0), ms(r.1)];
        Assumed {
            round_trip_ms: span(f.round_trip),
            loss_percent: f64::from(f.loss) / 10_000.0,
            fence_latency_ms: span(f.fence_latency),
            start_ms: span(f.start),
            stop_ms: span(f.stop),
            stalls_ms: span(f.stalls),
            stall_every_hours: f.stall_every as f64 / HOUR_NS,
        }
    }
}

pub fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

/// How long the outage of this world lasted, for comparisons.
fn lasting(ran: &Ran) -> u64 {
    if ran.still_down { FOR_GOOD } else { ran.outage }
}

/// The same in milliseconds.
pub fn lasting_ms(ran: &Ran) -> Option<f64> {
    ended(lasting(ran))
}

fn ended(outage: u64) -> Option<f64> {
    (outage != FOR_GOOD).then(|| ms(outage))
}

fn ran(samples: &[Sample], fault: Fault) -> impl Iterator<Item = &Ran> {
    samples.iter().filter(move |s| s.job.fault == fault).filter_map(|sample| match &sample.end {
        End::Ran(ran) => Some(ran),
        End::NeverWhole | End::FailedInCalm => None,
    })
}

/// One row of the table.
pub fn row(samples: &[Sample], fault: Fault) -> Row {
    let of_fault = || samples.iter().filter(|s| s.job.fault == fault);
    let count = |what: fn(&Ran) -> bool| ran(samples, fault).filter(|r| what(r)).count() as u64;
    let mut outages: Vec<u64> = ran(samples, fault).map(lasting).collect();
    outages.sort_unstable();
    Row {
        fault: fault.to_string(),
        worlds: of_fault().count() as u64,
        never_whole: of_fault().filter(|s| s.end == End::NeverWhole).count() as u64,
        outage: outage(&outages),
        without_outage: count(|r| r.outage == 0),
        still_down: count(|r| r.still_down),
        primary_shot: count(|r| r.shot[0]),
        standby_shot: count(|r| r.shot[1]),
        both_shot: count(Ran::both_shot),
        both_acted: count(|r| r.both_acted),
        histogram: histogram(&outages),
        outages,
    }
}

fn outage(sorted: &[u64]) -> Outage {
    let at = |part| quantile(sorted, part).and_then(ended);
    Outage { median_ms: at(0.5), p90_ms: at(0.9), p99_ms: at(0.99), worst_ms: at(1.0) }
}

/// The smallest value that this part of the sorted values does not exceed.
pub fn quantile(sorted: &[u64], part: f64) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[((sorted.len() as f64 * part).ceil() as usize).saturating_sub(1).min(last)])
}

/// Of the outages that ended: bars of a round width from the shortest to the 99th percentile, and one for what is longer.
fn histogram(sorted: &[u64]) -> Vec<Bar> {
    let some = &sorted[sorted.partition_point(|o| *o == 0)..sorted.partition_point(|o| *o < FOR_GOOD)];
    let (Some(least), Some(most), Some(longest)) = (some.first(), quantile(some, 0.99), some.last()) else {
        return Vec::new();
    };
    let width = round_width((most - least).div_ceil(BARS).max(1));
    let first = least / width * width;
    let count = |from: u64, to: u64| some.partition_point(|o| *o < to) - some.partition_point(|o| *o < from);
    let bar = |from: u64, to: u64| Bar { from_ms: ms(from), to_ms: ms(to), worlds: count(from, to) as u64 };
    let end = (most / width + 1) * width;
    let mut bars: Vec<Bar> = (first..end).step_by(width as usize).map(|from| bar(from, from + width)).collect();
    if *longest >= end {
        bars.push(bar(end, (longest / MS + 1) * MS));
    }
    bars
}

/// 1, 2 or 5 times a power of ten milliseconds, not below `least`.
fn round_width(least: u64) -> u64 {
    let tens = std::iter::successors(Some(MS), |w| w.checked_mul(10));
    let widths = tens.flat_map(|ten| [1, 2, 5].map(|n: u64| ten.saturating_mul(n)));
    widths.into_iter().find(|w| *w >= least).unwrap_or(least)
}

/// What losses and stalls alone did.
pub fn false_failovers(samples: &[Sample], figures: &Figures) -> False {
    let stalls: Vec<&Ran> = ran(samples, Fault::Stall).collect();
    let calm_hours = samples.iter().map(|s| s.calm as f64).sum::<f64>() / HOUR_NS;
    let in_calm = samples.iter().filter(|s| s.end == End::FailedInCalm).count() as u64;
    let per_year = 2.0 * YEAR_HOURS * HOUR_NS / figures.stall_every as f64;
    let from_stalls = stalls.iter().filter(|r| r.failed_over).count() as u64;
    let standby_shot = stalls.iter().filter(|r| r.shot[1] && !r.failed_over).count() as u64;
    let of_all = |count: f64| if stalls.is_empty() { 0.0 } else { rounded(count / stalls.len() as f64 * per_year) };
    False {
        calm_hours: rounded(calm_hours),
        in_calm,
        in_calm_per_year: if calm_hours > 0.0 { rounded(in_calm as f64 / calm_hours * YEAR_HOURS) } else { 0.0 },
        stalls: stalls.len() as u64,
        stalls_per_year: rounded(per_year),
        from_stalls,
        from_stalls_per_year: of_all(from_stalls as f64),
        from_stalls_per_year_below: (from_stalls == 0 && !stalls.is_empty()).then(|| of_all(NONE_SEEN)),
        standby_shot,
        standby_shot_per_year: of_all(standby_shot as f64),
        by_length: by_length(&stalls, figures.stalls),
    }
}

fn by_length(stalls: &[&Ran], range: Range) -> Vec<ByLength> {
    let width = ((range.1 - range.0) / SPANS).max(1);
    let mut spans: Vec<ByLength> = (0..SPANS)
        .map(|i| {
            let from = range.0 + i * width;
            ByLength { from_ms: ms(from), to_ms: ms(from + width), ..ByLength::default() }
        })
        .collect();
    for (ran, (of_primary, length)) in stalls.iter().filter_map(|r| Some((r, r.stall?))) {
        let span = &mut spans[((length.saturating_sub(range.0)) / width).min(SPANS - 1) as usize];
        span.of_primary += u64::from(of_primary);
        span.of_standby += u64::from(!of_primary);
        span.failed_over += u64::from(ran.failed_over);
        span.standby_shot += u64::from(ran.shot[1] && !ran.failed_over);
    }
    spans.retain(|s| s.of_primary + s.of_standby > 0);
    spans
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Worlds in which each guarantee was broken.
pub fn broken(samples: &[Sample]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::from([(String::from("S1"), 0)]);
    for sample in samples {
        for name in names(sample) {
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

/// The guarantees that one world broke, each once.
pub fn names(sample: &Sample) -> Vec<String> {
    let mut names: Vec<String> = sample.broken.iter().map(|g| format!("{g:?}")).collect();
    names.sort();
    names.dedup();
    names
}

/// The sample to look at first: a broken guarantee, else both acting, else the longest outage.
pub fn worst(samples: &[Sample]) -> Option<&Sample> {
    let weight = |sample: &Sample| match sample.end {
        End::Ran(ran) => (!sample.broken.is_empty(), ran.both_acted, lasting(&ran)),
        End::NeverWhole | End::FailedInCalm => (!sample.broken.is_empty(), false, 0),
    };
    // The first of equals: `max_by_key` would give the last.
    samples.iter().rev().max_by_key(|s| weight(s)).filter(|s| weight(s) > (false, false, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!([0.0, 0.5, 0.9, 0.99, 1.0].map(|p| quantile(&values, p)), [1, 50, 90, 99, 100].map(Some));
        assert_eq!((quantile(&[], 0.5), quantile(&[7], 0.99)), (None, Some(7)));
    }

    #[test]
    fn every_outage_is_in_exactly_one_bar() {
        let mut outages: Vec<u64> = (0..500).map(|i| 3000 * MS + i * 7 * MS).collect();
        outages.extend([0, 0, 90_000 * MS, FOR_GOOD]);
        outages.sort_unstable();
        let bars = histogram(&outages);
        assert_eq!(
            bars.iter().map(|b| b.worlds).sum::<u64>(),
            501,
            "those without an outage, and without an end, are in none"
        );
        assert!(bars.len() <= BARS as usize + 2, "{bars:?}");
        assert_eq!(bars.last().map(|b| b.worlds), Some(1), "the one far out has its own");
        assert!(histogram(&[0, 0]).is_empty() && histogram(&[5]).len() == 1);
    }

    #[test]
    fn widths_are_round() {
        assert_eq!([1, MS + 1, 3 * MS, 70 * MS].map(round_width), [MS, 2 * MS, 5 * MS, 100 * MS]);
    }
}
