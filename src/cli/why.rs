//! `leasehold why`: the last decisions of this node's daemon, with their reasons.

use std::io::Write;
use std::path::Path;

use super::args::Why;
use super::exit::Exit;
use super::page::{Page, Paint, terminal_width};
use super::socket;
use crate::control::{Answer, Decision, Op, Severity};

pub fn run(socket: &Path, options: &Why, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let decisions = match socket::connect(socket)?.ask(Op::Why { last: Some(options.last) })? {
        Answer::Decisions(decisions) => decisions,
        other => return Err(socket::unexpected(&other).into()),
    };
    if options.json {
        for decision in &decisions {
            writeln!(out, "{}", serde_json::to_string(decision)?)?;
        }
    } else {
        out.write_all(render(&decisions, terminal_width(), true).as_bytes())?;
    }
    Ok(Exit::Fine)
}

/// Oldest first, the newest beside the prompt. Times are UTC, as the journal's can be made to be.
pub fn render(decisions: &[Decision], width: usize, colour: bool) -> String {
    let mut page = Page::new(width, colour);
    let mut day = String::new();
    for decision in decisions {
        let date = decision.at.strftime("%Y-%m-%d UTC").to_string();
        if date != day {
            page.wrapped("", &date, Paint::Dim);
            day = date;
        }
        let (mark, paint) = mark(decision.severity);
        let prefix = format!("{} {mark} {:<11} ", decision.at.strftime("%H:%M:%S%.3f"), decision.role);
        page.wrapped(&prefix, &decision.text, paint);
    }
    if decisions.is_empty() {
        page.wrapped("", "Nothing was decided yet since the daemon started.", Paint::Plain);
    }
    page.into_text()
}

fn mark(severity: Severity) -> (&'static str, Paint) {
    match severity {
        Severity::Info => (" ", Paint::Dim),
        Severity::Notice => (" ", Paint::Plain),
        Severity::Warning => ("!", Paint::Yellow),
        Severity::Alarm => ("X", Paint::Red),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Role;

    fn decision(at: &str, severity: Severity, role: Role, text: &str) -> Decision {
        let at = at.parse().unwrap();
        Decision { number: 1, at, severity, role, kind: "peer-lost".into(), text: text.into() }
    }

    #[test]
    fn decisions_show_when_how_loud_and_why() {
        let decisions = [
            decision(
                "2026-11-30T15:20:11.25Z",
                Severity::Warning,
                Role::Standby,
                "the peer is doubtful: silent for 750ms",
            ),
            decision(
                "2026-11-30T15:20:12Z",
                Severity::Alarm,
                Role::TakingOver,
                "the peer is lost: silent for 1.500s (incident 7)",
            ),
        ];
        assert_eq!(
            render(&decisions, 80, false),
            "2026-11-30 UTC\n\
             15:20:11.250 ! standby     the peer is doubtful: silent for 750ms\n\
             15:20:12.000 X taking over the peer is lost: silent for 1.500s (incident 7)\n"
        );
    }
}
