//! How long the service was away, and with what it passed: silence, fence, the rest of the lease, start.
//!
//! ```text
//!   fault     the reading or fencing that proved it     proof-obtained     promoting     first write of the other node
//!     |--- silence ---------|------------ fence --------------|--- lease ---|-------- start -------|
//! ```

use std::collections::HashSet;

use jiff::Timestamp;
use leasehold::cli::demo::history::Line;
use leasehold::core::{Instant, Span};
use leasehold::os::clock;

use super::site::Lab;
use super::spans::{median, sorted, told};

/// The moment of a fault, on both clocks: decisions carry the wall's, writes that of the boot.
#[derive(Clone, Copy)]
pub struct Moment {
    boot: Instant,
    wall: Timestamp,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { boot: clock::now(), wall: clock::wall() }
    }

    pub fn elapsed(self) -> Span {
        clock::now().since(self.boot)
    }

    pub fn is_before(self, at: Timestamp) -> bool {
        self.wall <= at
    }
}

const PARTS: usize = 4;

/// One failover. The parts stand where the daemon's decisions tell them.
pub struct Failover {
    pub scenario: &'static str,
    pub fault: Moment,
    pub total: Span,
    /// At most, by `leasehold explain`.
    promised: Span,
    parts: Option<[Span; PARTS]>,
}

impl Failover {
    /// From the fault until the first write of the host that took over, by its own journal.
    pub fn measure(scenario: &'static str, fault: Moment, lab: &Lab, host: &str, first: &Line) -> Failover {
        let total = Instant(first.boottime_ns).since(fault.boot);
        let decisions = lab.decisions(host);
        let since = |at: Timestamp| u64::try_from(at.as_nanosecond() - fault.wall.as_nanosecond()).ok().map(Span);
        let mut told = decisions.iter().filter_map(|d| Some((d.kind.as_str(), since(d.at)?)));
        let mut asked = None;
        let proven = told.find_map(|(kind, after)| {
            // A reading of the power alone may be the proof; else it is the last attempt.
            asked = if matches!(kind, "probe-started" | "attempt-started") { Some(after) } else { asked };
            (kind == "proof-obtained").then_some(after)
        });
        let promoted = told.find_map(|(kind, after)| (kind == "promoting").then_some(after));
        let parts = asked.zip(proven).zip(promoted).map(|((asked, proven), promoted)| {
            [asked, proven.minus(asked), promoted.minus(proven), total.minus(promoted)]
        });
        // A survivor whose wall clock was stepped tells nothing of them.
        let parts = parts.filter(|parts| parts.iter().fold(Span::ZERO, |sum, part| sum.plus(*part)) <= total);
        Failover { scenario, fault, total, promised: lab.promise.served, parts }
    }

    /// From the fault until this node began to start the service, where its decisions tell.
    pub fn began(&self) -> Option<Span> {
        self.parts.map(|[silence, fence, lease, _]| silence.plus(fence).plus(lease))
    }
}

const HEAD: &str = "| scenario | measured | runs | total, median | worst | promised | silence | fence | lease | start |\n\
    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";

/// One row a scenario: the median, and the worst. Rows of an older table stay where their scenario was not played now.
pub fn table(failovers: &[Failover], day: &str, older: &str) -> String {
    let rows = rows(failovers, day);
    let is_row = |line: &&str| line.starts_with("| ") && !HEAD.contains(line);
    let mut lines: Vec<String> = older.lines().filter(is_row).map(str::to_owned).collect();
    for (name, row) in rows {
        let start = format!("| {name} |");
        match lines.iter_mut().find(|line| line.starts_with(&start)) {
            Some(line) => *line = row,
            None => lines.push(row),
        }
    }
    format!("{HEAD}{}\n", lines.join("\n"))
}

fn rows(failovers: &[Failover], day: &str) -> Vec<(&'static str, String)> {
    let mut names: Vec<&str> = failovers.iter().map(|failover| failover.scenario).collect();
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    let row = |name| {
        let runs: Vec<&Failover> = failovers.iter().filter(|failover| failover.scenario == name).collect();
        let totals = sorted(runs.iter().map(|run| run.total));
        let parts: Vec<[Span; PARTS]> = runs.iter().filter_map(|run| run.parts).collect();
        let part = |index: usize| median(&sorted(parts.iter().map(|parts| parts[index])));
        let promised = runs.iter().map(|run| &run.promised).max();
        let cells = [median(&totals), told(totals.last()), told(promised), part(0), part(1), part(2), part(3)];
        (name, format!("| {name} | {day} | {} | {} |", runs.len(), cells.join(" | ")))
    };
    names.into_iter().map(row).collect()
}

#[test]
fn a_table_has_the_median_and_the_worst_of_each_scenario() {
    let run = |scenario, ms, parts: Option<[u64; PARTS]>| Failover {
        scenario,
        fault: Moment::now(),
        total: Span::from_ms(ms),
        promised: Span::from_secs(30),
        parts: parts.map(|parts| parts.map(Span::from_ms)),
    };
    let runs = [
        run("power cut", 1900, Some([1500, 300, 0, 100])),
        run("power cut", 2500, Some([1600, 800, 0, 100])),
        run("power cut", 1800, Some([1400, 300, 0, 100])),
        run("stop", 90, None),
    ];
    let older = format!("words\n{HEAD}| stop | 2026-11-29 | 5 | 1 ms |\n| a rare one | 2026-11-29 | 5 | 2 ms |\n");
    let table = table(&runs, "2026-11-30", &older);
    assert_eq!(
        table.lines().skip(2).collect::<Vec<_>>(),
        [
            "| stop | 2026-11-30 | 1 | 90 ms | 90 ms | 30000 ms | - | - | - | - |",
            "| a rare one | 2026-11-29 | 5 | 2 ms |",
            "| power cut | 2026-11-30 | 3 | 1900 ms | 2500 ms | 30000 ms | 1500 ms | 300 ms | 0 ms | 100 ms |",
        ]
    );
}
