//! The plots, as SVG that stands on its own inside a page.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::measure::{ByLength, FOR_GOOD, Report, Row};

const WIDTH: u32 = 860;
const HEIGHT: u32 = 380;
/// Told apart also by those who do not see red and green as two (Okabe and Ito's palette).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
];
/// Points of a curve: more cannot be seen.
const POINTS: usize = 200;

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// For each fault, the share of worlds whose outage lasted no longer than so many seconds.
pub fn outages(report: &Report) -> anyhow::Result<String> {
    let rows: Vec<&Row> = report.faults.iter().filter(|row| !row.outages.is_empty()).collect();
    let longest = rows.iter().flat_map(|row| &row.outages).filter(|o| **o < FOR_GOOD).max().copied().unwrap_or(0);
    svg(|area| draw_outages(area, &rows, (seconds(longest) * 1.05).max(0.1)))
}

fn draw_outages(area: &Drawing<'_>, rows: &[&Row], longest: f64) -> anyhow::Result<()> {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..longest, 0.0..102.0)?;
    chart
        .configure_mesh()
        .x_desc("seconds without service")
        .y_desc("% of worlds, at most so long")
        .x_label_formatter(&|x| format!("{x:.1}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (row, colour) in rows.iter().zip(COLOURS.iter().cycle()) {
        let line = LineSeries::new(curve(row, longest), colour.stroke_width(2));
        let colour = *colour;
        chart
            .draw_series(line)?
            .label(row.fault.clone())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    Ok(())
}

/// Steps of the distribution, from the lower left to the right; what is down for good keeps it below 100 %.
fn curve(row: &Row, longest: f64) -> Vec<(f64, f64)> {
    let count = row.outages.len();
    let step = count.div_ceil(POINTS).max(1);
    let mut points = vec![(0.0, 0.0)];
    let ended = row.outages.partition_point(|o| *o < FOR_GOOD);
    let places = (0..ended).step_by(step).chain(ended.checked_sub(1));
    for place in places {
        let x = seconds(row.outages[place]);
        let before = points.last().map_or(0.0, |(_, y)| *y);
        points.extend([(x, before), (x, (place + 1) as f64 * 100.0 / count as f64)]);
    }
    let reached = points.last().map_or(0.0, |(_, y)| *y);
    points.push((longest, reached));
    points
}

/// What a stall of each length led to.
pub fn stalls(report: &Report) -> anyhow::Result<String> {
    let spans = &report.false_failovers.by_length;
    let longest = spans.last().map_or(1.0, |s| s.to_ms / 1000.0);
    svg(|area| draw_stalls(area, spans, longest))
}

fn draw_stalls(area: &Drawing<'_>, spans: &[ByLength], longest: f64) -> anyhow::Result<()> {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..longest, 0.0..102.0)?;
    chart
        .configure_mesh()
        .x_desc("length of the stall, seconds")
        .y_desc("% of stalls of that length")
        .x_label_formatter(&|x| format!("{x:.1}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let kinds: [(&str, Counts); 2] = [
        ("the primary stalls: the service fails over", |s| (s.failed_over, s.of_primary)),
        ("the standby stalls: it is shot", |s| (s.standby_shot, s.of_standby)),
    ];
    for (place, (title, counts)) in kinds.into_iter().enumerate() {
        let colour = COLOURS[place];
        let bars = spans.iter().map(|span| bar(span, counts, place, colour));
        chart
            .draw_series(bars)?
            .label(title)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    Ok(())
}

/// How many of how many.
type Counts = fn(&ByLength) -> (u64, u64);

/// Two bars side by side share the span of one length.
fn bar(span: &ByLength, counts: Counts, place: usize, colour: RGBColor) -> Rectangle<(f64, f64)> {
    let (count, of) = counts(span);
    let width = (span.to_ms - span.from_ms) / 1000.0;
    let from = span.from_ms / 1000.0 + width * (0.1 + 0.4 * place as f64);
    let share = if of == 0 { 0.0 } else { count as f64 * 100.0 / of as f64 };
    Rectangle::new([(from, 0.0), (from + width * 0.4, share)], colour.filled())
}

fn svg(draw: impl Fn(&Drawing<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    // Inside HTML the name space is known, and nothing in the page shall look like an address.
    Ok(text.replace(" xmlns=\"http://www.w3.org/2000/svg\"", ""))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
