//! How long the service was away, and with what that passed.

use std::fmt::Write as _;

use jiff::Timestamp;
use leasehold::control::Decision;
use leasehold::core::Span;

use crate::site::{FAULTS, Fault};
use crate::spans::{median, sorted, told};

/// One failover.
#[derive(Debug, Clone)]
pub struct Failover {
    pub fault: Fault,
    /// Until the other node said that it serves.
    pub served: Span,
    /// Until the first row that was sent after the fault was acknowledged through the address.
    pub acked: Span,
    /// Until the old primary was a ready standby again.
    pub whole: Span,
    /// Silence, fence and start, where there was a fence.
    pub parts: Option<[Span; 3]>,
}

/// From the decisions of the node that took over: when it served, and the parts of that.
pub fn read(decisions: &[Decision], fault: Timestamp) -> Option<(Span, Option<[Span; 3]>)> {
    let since = |at: Timestamp| u64::try_from(at.as_nanosecond() - fault.as_nanosecond()).ok().map(Span);
    let told: Vec<(&str, Span)> = decisions.iter().filter_map(|d| Some((d.kind.as_str(), since(d.at)?))).collect();
    let served = told.iter().find(|(kind, _)| *kind == "serving")?.1;
    let proven = told.iter().find(|(kind, at)| *kind == "proof-obtained" && *at <= served);
    let asked = proven.and_then(|(_, proven)| {
        let asking = |kind: &str| matches!(kind, "probe-started" | "attempt-started");
        told.iter().rev().find(|(kind, at)| asking(kind) && at <= proven)
    });
    let parts =
        proven.zip(asked).map(|((_, proven), (_, asked))| [*asked, proven.minus(*asked), served.minus(*proven)]);
    Some((served, parts))
}

/// One row a kind: medians, and the worst.
pub fn table(failovers: &[Failover]) -> String {
    let mut text = "| fault | runs | serves, median | worst | silence | fence | start | first row acknowledged | worst \
                    | ready standby again | worst |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for fault in FAULTS {
        let runs: Vec<&Failover> = failovers.iter().filter(|run| run.fault == fault).collect();
        let of = |part: fn(&Failover) -> Span| sorted(runs.iter().map(|run| part(run)));
        let (served, acked, whole) = (of(|run| run.served), of(|run| run.acked), of(|run| run.whole));
        let part = |index: usize| {
            let parts = sorted(runs.iter().filter_map(|run| Some(run.parts?[index])));
            median(&parts)
        };
        let cells = [
            format!("{fault:?}"),
            runs.len().to_string(),
            median(&served),
            told(served.last()),
            part(0),
            part(1),
            part(2),
            median(&acked),
            told(acked.last()),
            median(&whole),
            told(whole.last()),
        ];
        writeln!(text, "| {} |", cells.join(" | ")).expect("a string takes everything");
    }
    text
}
