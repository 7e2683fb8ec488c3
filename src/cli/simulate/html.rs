//! The report as one HTML file: nothing in it is loaded from elsewhere, and no script runs.

use super::measure::{Report, Row, Worst};
use super::plot;
use super::render;

const STYLE: &str = "\
body { font: 16px/1.5 sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse } th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left } svg { max-width: 100%; height: auto }
pre { background: #f4f4f4; padding: .8rem; overflow-x: auto } .bad { color: #b00; font-weight: bold }";

/// The whole page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn page(report: &Report) -> anyhow::Result<String> {
    let [first, second] = &report.nodes;
    let title = escaped(&format!("{}: {first} and {second}", report.cluster));
    let alarm = if report.both_acted > 0 || report.broken.values().any(|n| *n > 0) { " class=\"bad\"" } else { "" };
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{} worlds, {} hours, simulated by leasehold {}.</p>\n\
         <p>Assumed: {}.</p>\n<p{alarm}>{}</p>\n",
        report.worlds,
        report.simulated_hours,
        env!("CARGO_PKG_VERSION"),
        escaped(&render::assumed(&report.assumed)),
        escaped(&render::safety(report))
    );
    let (remarks, plot) = (list(&render::remarks(&report.faults)), plot::outages(report)?);
    html += &format!("<h2>Time without service, from the fault on</h2>\n{}\n{remarks}\n{plot}\n", table(report));
    html +=
        &format!("<h2>False failovers</h2>\n{}\n{}\n", list(&render::false_failovers(report)), plot::stalls(report)?);
    html += &report.worst.as_ref().map(worst).unwrap_or_default();
    html += &format!("<h2>What these figures leave out</h2>\n<p>{}</p>\n</body>\n</html>\n", escaped(render::LIMITS));
    Ok(html)
}

fn table(report: &Report) -> String {
    let heads = ["fault", "median", "90 %", "99 %", "worst", "no outage", "still down", "both shot"];
    let head: String = heads.iter().map(|text| format!("<th>{text}</th>")).collect();
    let rows: String = report.faults.iter().map(row).collect();
    format!("<table>\n<tr>{head}</tr>\n{rows}</table>")
}

fn row(row: &Row) -> String {
    let o = row.outage;
    let times = [o.median_ms, o.p90_ms, o.p99_ms, o.worst_ms].map(render::lasting);
    let shares = [row.without_outage, row.still_down, row.both_shot].map(|count| render::share(count, row));
    let cells: String = times.iter().chain(&shares).map(|text| format!("<td>{}</td>", escaped(text))).collect();
    format!("<tr><td>{}</td>{cells}</tr>\n", escaped(&row.fault))
}

fn list(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    format!("<ul>\n{items}</ul>")
}

fn worst(worst: &Worst) -> String {
    format!(
        "<h2>The worst schedule found</h2>\n<p>{}</p>\n<pre>{}</pre>\n",
        escaped(&render::worst_line(worst)),
        escaped(&worst.script.join("\n"))
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
