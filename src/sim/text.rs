//! How scripts write nodes, times, ranges and shares, and back.

use crate::core::NodeId;

pub const NAMES: [&str; 2] = ["heron", "plover"];
pub const NODES: [NodeId; 2] = [NodeId::First, NodeId::Second];
const MS: u64 = 1_000_000;

/// A span of true time drawn anew each time, both ends included, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range(pub u64, pub u64);

pub fn name(node: NodeId) -> &'static str {
    NAMES[node.index()]
}

pub fn node(text: &str) -> Result<NodeId, String> {
    NODES.into_iter().find(|n| name(*n) == text).ok_or_else(|| format!("`{text}` is no node: say heron or plover"))
}

/// One node, or both.
pub fn nodes(text: &str) -> Result<Vec<NodeId>, String> {
    if text == "both" { Ok(NODES.to_vec()) } else { node(text).map(|n| vec![n]) }
}

/// `20s`, `300ms`, `1.5s`, `2m`, `0s`, `40us`: nanoseconds.
pub fn time(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return Err(format!("`{text}` is no time: write 300ms, 1.5s or 2m")),
    };
    let value: f64 = number.parse().map_err(|_| format!("`{text}` is no time: write 300ms, 1.5s or 2m"))?;
    if value < 0.0 { Err(format!("`{text}` lies before the beginning")) } else { Ok((value * scale).round() as u64) }
}

/// `300ms..2s`, or one time for both ends.
pub fn range(text: &str) -> Result<Range, String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let range = Range(time(low)?, time(high)?);
    if range.0 <= range.1 { Ok(range) } else { Err(format!("`{text}` ends before it begins")) }
}

/// `30%`, `0.5%`: parts of a million.
pub fn share(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no share: write 30% or 0.5%");
    let percent: f64 = text.strip_suffix('%').ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    if (0.0..=100.0).contains(&percent) { Ok((percent * 10_000.0).round() as u32) } else { Err(wrong()) }
}

/// `200ppm`, `-50ppm`.
pub fn ppm(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is no drift: write 200ppm or -50ppm");
    text.strip_suffix("ppm").ok_or_else(wrong)?.parse().map_err(|_| wrong())
}

pub fn yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{text}`: say yes or no")),
    }
}

pub fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

pub fn show_time(ns: u64) -> String {
    match ns {
        _ if ns.is_multiple_of(1000 * MS) => format!("{}s", ns / (1000 * MS)),
        _ if ns.is_multiple_of(MS) => format!("{}ms", ns / MS),
        _ => format!("{}us", ns.div_ceil(1000)),
    }
}

pub fn show_range(range: Range) -> String {
    if range.0 == range.1 {
        return show_time(range.0);
    }
    format!("{}..{}", show_time(range.0), show_time(range.1))
}

pub fn show_share(parts: u32) -> String {
    format!("{}%", f64::from(parts) / 10_000.0)
}

pub fn show_yes(yes: bool) -> String {
    String::from(if yes { "yes" } else { "no" })
}

/// Seconds with milliseconds, as traces print true time.
pub fn stamp(ns: u64) -> String {
    format!("{:>4}.{:03}", ns / (1000 * MS), ns / MS % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for ns in [0, 40_000, 300 * MS, 1500 * MS, 7_200_000 * MS] {
            assert_eq!(time(&show_time(ns)), Ok(ns));
        }
        assert_eq!(share(&show_share(305_000)), Ok(305_000));
        assert_eq!(range("300ms..2s"), Ok(Range(300 * MS, 2000 * MS)));
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in ["", "5", "five", "-1s", "3 s"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(range("2s..1s").is_err() && share("130%").is_err() && ppm("200").is_err());
    }
}
