//! The report for people. Pure.

use std::fmt::Write;

use super::measure::{Assumed, Bar, False, Outage, Report, Row, Worst};
use super::worlds::End;
use crate::cli::page::{Page, Paint};

const BAR_WIDTH: u64 = 40;
/// What the simulator leaves out, said each time: a figure is worth what stands behind it.
pub const LIMITS: &str = "Losses are independent of each other and latencies evenly spread; real trouble comes in bursts, which \
                      partition and flap stand for. Fence devices tell the truth. Nobody repairs anything, and clients \
                      that reconnect slowly are not counted.";

/// The whole report, wrapped at `width` columns, without colour.
pub fn text(report: &Report, width: usize) -> String {
    let mut page = Page::new(width, false);
    let [first, second] = &report.nodes;
    let title = format!(
        "{} of {first} and {second}: {} worlds, {} hours",
        report.cluster, report.worlds, report.simulated_hours
    );
    page.wrapped("", &title, Paint::Bold);
    page.blank();
    page.wrapped("assumed: ", &assumed(&report.assumed), Paint::Plain);
    heading(&mut page, "Time without service, from the fault on");
    page.table(&table(&report.faults));
    heading(&mut page, "What the nodes did");
    page.table(&deeds(&report.faults));
    remarks(&report.faults).iter().for_each(|line| page.wrapped("  - ", line, Paint::Plain));
    report.faults.iter().filter(|row| !row.histogram.is_empty()).for_each(|row| histogram(&mut page, row));
    heading(
        &mut page,
        "False failovers: a healthy primary shot or stopped, where nothing happens but losses and stalls",
    );
    page.table(&lengths(&report.false_failovers));
    false_failovers(report).iter().for_each(|line| page.wrapped("  - ", line, Paint::Plain));
    heading(&mut page, "Safety");
    page.wrapped("  ", &safety(report), Paint::Plain);
    if let Some(found) = &report.worst {
        worst(&mut page, found);
    }
    heading(&mut page, "What these figures leave out");
    page.wrapped("  ", LIMITS, Paint::Plain);
    page.into_text()
}

fn heading(page: &mut Page, text: &str) {
    page.blank();
    page.wrapped("", text, Paint::Bold);
}

/// The figures in one sentence.
pub fn assumed(a: &Assumed) -> String {
    format!(
        "round trip {}, loss {} % of each link, a fence attempt {}, start of the group {}, stop {}; a stall of {} every {} h on \
         each node",
        span(a.round_trip_ms),
        a.loss_percent,
        span(a.fence_latency_ms),
        span(a.start_ms),
        span(a.stop_ms),
        span(a.stalls_ms),
        a.stall_every_hours
    )
}

fn span([least, most]: [f64; 2]) -> String {
    if least == most { time(least) } else { format!("{} to {}", time(least), time(most)) }
}

/// An outage: its length, if it ended.
pub fn lasting(ms: Option<f64>) -> String {
    ms.map_or_else(|| String::from("for good"), time)
}

/// Milliseconds as people read them.
pub fn time(ms: f64) -> String {
    match ms {
        0.0 => String::from("0"),
        ..10.0 => format!("{ms:.2}ms"),
        ..1000.0 => format!("{ms:.0}ms"),
        _ => format!("{:.2}s", ms / 1000.0),
    }
}

fn table(rows: &[Row]) -> Vec<Vec<String>> {
    let head = ["  fault", "median", "90 %", "99 %", "worst", "no outage", "still down"];
    let mut lines = vec![head.map(String::from).to_vec()];
    for row in rows {
        let Outage { median_ms, p90_ms, p99_ms, worst_ms } = row.outage;
        let mut line = vec![format!("  {}", row.fault)];
        line.extend([median_ms, p90_ms, p99_ms, worst_ms].map(lasting));
        line.extend([row.without_outage, row.still_down].map(|n| share(n, row)));
        lines.push(line);
    }
    lines
}

fn deeds(rows: &[Row]) -> Vec<Vec<String>> {
    let head = ["  fault", "worlds", "primary shot", "standby shot", "both shot", "both acted"];
    let mut lines = vec![head.map(String::from).to_vec()];
    for row in rows {
        let mut line = vec![format!("  {}", row.fault), row.worlds.to_string()];
        line.extend([row.primary_shot, row.standby_shot, row.both_shot, row.both_acted].map(|n| share(n, row)));
        lines.push(line);
    }
    lines
}

/// What the tables call for.
pub fn remarks(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    if rows.iter().any(|row| row.both_shot > 0) {
        lines.push(String::from(
            "Where each shot the other, the second fired before the `off` of the first had landed: a longer fence.head_start \
             is the remedy.",
        ));
    }
    let never: u64 = rows.iter().map(|row| row.never_whole).sum();
    if never > 0 {
        lines.push(format!("In {never} worlds the pair never became whole; they are not part of these figures."));
    }
    lines
}

/// Few worlds are told as a number, many as a share.
pub fn share(count: u64, row: &Row) -> String {
    let of = row.outages.len() as u64;
    match count {
        0 => String::from("-"),
        _ if count == of => String::from("all"),
        _ if count * 200 < of => format!("{count}"),
        _ => format!("{:.1} %", count as f64 * 100.0 / of as f64),
    }
}

fn histogram(page: &mut Page, row: &Row) {
    heading(page, &format!("{}: worlds by time without service", row.fault));
    let most = row.histogram.iter().map(|b| b.worlds).max().unwrap_or(1).max(1);
    let line = |bar: &Bar| {
        let length = (bar.worlds * BAR_WIDTH).div_ceil(most) as usize;
        let label = format!("  {:>8} - {}", time(bar.from_ms), time(bar.to_ms));
        vec![label, format!("{:>5}", bar.worlds), "#".repeat(length)]
    };
    page.list(&row.histogram.iter().map(line).collect::<Vec<_>>());
}

/// The sentences about them.
pub fn false_failovers(report: &Report) -> Vec<String> {
    let f = &report.false_failovers;
    let calm = match f.in_calm {
        0 => format!("From losses alone: none in {} hours.", f.calm_hours),
        n => format!("From losses alone: {n} in {} hours, about {} a year.", f.calm_hours, f.in_calm_per_year),
    };
    let stalls = match f.from_stalls_per_year_below {
        Some(below) => format!(
            "From stalls: none of {} led to one. With {} stalls a year: fewer than {below} a year (95 %).",
            f.stalls, f.stalls_per_year
        ),
        None => format!(
            "From stalls: {} of {} led to one. With {} stalls a year: about {} a year.",
            f.from_stalls, f.stalls, f.stalls_per_year, f.from_stalls_per_year
        ),
    };
    let standby = format!(
        "A stalled standby was shot by {} of these stalls, about {} a year: no interruption, but nobody stands by.",
        f.standby_shot, f.standby_shot_per_year
    );
    vec![calm, stalls, standby]
}

fn lengths(f: &False) -> Vec<Vec<String>> {
    let head = ["  a stall of", "the primary's machine: failed over", "the standby's: shot"];
    let mut lines = vec![head.map(String::from).to_vec()];
    for span in &f.by_length {
        lines.push(vec![
            format!("  {:>8} - {}", time(span.from_ms), time(span.to_ms)),
            format!("{} of {}", span.failed_over, span.of_primary),
            format!("{} of {}", span.standby_shot, span.of_standby),
        ]);
    }
    lines
}

/// One paragraph: what was broken, and what both nodes did at one time.
pub fn safety(report: &Report) -> String {
    let mut text = match report.both_acted {
        0 => String::from("At no moment of any world did both nodes act."),
        n => format!(
            "In {n} worlds both nodes acted at one moment, after an assumption was broken if none is named below (such as a \
             machine that stood still for longer than lease.pause, where nothing switches its power off; docs/SAFETY.md)."
        ),
    };
    let broken: Vec<String> =
        report.broken.iter().filter(|(_, n)| **n > 0).map(|(g, n)| format!("{g} in {n}")).collect();
    // Writing into a string cannot fail.
    let _ = match &broken[..] {
        [] => write!(text, " No guarantee whose assumptions held was broken (S1 to S5, L1; docs/PROTOCOL.md)."),
        _ => write!(text, " BROKEN, though their assumptions held: {} worlds. Please report it.", broken.join(", ")),
    };
    text
}

fn worst(page: &mut Page, worst: &Worst) {
    heading(page, "The worst schedule found");
    page.wrapped("  ", &worst_line(worst), Paint::Plain);
    for line in worst.script.iter().filter(|line| line.starts_with("at ") || line.starts_with("run ")) {
        page.wrapped("    ", line, Paint::Plain);
    }
    let again =
        format!("again, with all that happens: the same command with --fault {} --seed {}", worst.fault, worst.seed);
    page.wrapped("  ", &again, Paint::Plain);
}

/// Which world it was.
pub fn worst_line(worst: &Worst) -> String {
    let outage = format!(", without service: {}", lasting(worst.outage_ms));
    let broken = if worst.broken.is_empty() { String::new() } else { format!(", broken: {}", worst.broken.join(" ")) };
    format!("fault {}, seed {}{outage}{broken}", worst.fault, worst.seed)
}

/// How a replayed world ended.
pub fn end(end: &End) -> String {
    match end {
        End::NeverWhole => String::from("The pair never became whole: a primary and a ready standby."),
        End::FailedInCalm => String::from("A healthy primary was shot or stopped before the fault, by losses alone."),
        End::Ran(ran) => {
            let down = if ran.still_down { "; nobody served at the end" } else { "" };
            format!("Without service: {}{down}.", time(super::measure::ms(ran.outage)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_three_figures() {
        assert_eq!([0.0, 0.25, 42.4, 1194.0, 90_000.0].map(time), ["0", "0.25ms", "42ms", "1.19s", "90.00s"]);
    }
}
