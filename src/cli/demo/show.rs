//! What the demo shows, as text. Pure: news in, lines out.

use super::checker::Check;
use super::pair::{News, What};
use super::world::{BOTH, name};
use crate::cli::page::{Page, Paint};
use crate::control::{Decision, Role, Severity};
use crate::core::{Instant, NodeId, Span};

/// The service writes every ten milliseconds.
const SILENT: Span = Span::from_ms(200);

/// One machine as the news tell of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeView {
    pub on: bool,
    pub daemon: bool,
    pub role: Option<Role>,
}

/// The newest write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastWrite {
    pub node: NodeId,
    pub token: u64,
    pub pid: u32,
    pub at: Instant,
}

/// The state of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    pub nodes: [NodeView; 2],
    pub cut: bool,
    pub writes: u64,
    pub last: Option<LastWrite>,
}

impl View {
    /// Takes the news in.
    pub fn heed(&mut self, news: &News) {
        let node = &mut self.nodes[news.node.index()];
        match &news.what {
            What::Ready => *node = NodeView { on: true, daemon: true, role: Some(Role::Joining) },
            What::Decided(decision) => node.role = Some(decision.role),
            What::Gone => (node.daemon, node.role) = (false, None),
            What::Off => *node = NodeView::default(),
            What::Wrote(line) => {
                self.writes += 1;
                self.last = Some(LastWrite { node: news.node, token: line.token, pid: line.pid, at: news.at });
            }
        }
    }
}

/// What becomes of a piece of news on the timeline; `None` where it only moves the panel. `before` is the view without it.
pub fn told(news: &News, before: &View) -> Option<(String, Paint)> {
    match &news.what {
        What::Ready => Some(("daemon runs, heartbeats go out".to_owned(), Paint::Plain)),
        What::Gone => None,
        What::Off => Some(("POWER OFF: no process of this machine is left".to_owned(), Paint::Bold)),
        What::Decided(decision) => decided(decision),
        What::Wrote(line) => {
            let new = before.last.is_none_or(|last| (last.token, last.pid) != (line.token, line.pid));
            new.then(|| (format!("SERVICE WRITES under token {}", line.token), Paint::Green))
        }
    }
}

/// Small observations are left to `leasehold why`, but for the look at the peer's power.
fn decided(decision: &Decision) -> Option<(String, Paint)> {
    let paint = match decision.severity {
        Severity::Info if decision.kind == "probe-started" => Paint::Dim,
        Severity::Info => return None,
        Severity::Notice => Paint::Plain,
        Severity::Warning => Paint::Yellow,
        Severity::Alarm => Paint::Red,
    };
    Some((decision.text.clone(), paint))
}

/// Title of an act and what is to be seen in it.
pub fn act(number: usize, title: &str, text: &str, width: usize, colour: bool) -> String {
    let mut page = Page::new(width, colour);
    page.blank();
    page.wrapped("", &format!("{number}. {title}"), Paint::Bold);
    page.wrapped("   ", text, Paint::Dim);
    page.into_text()
}

/// One line of the timeline, its time counted from `zero`.
pub fn line(at: Instant, zero: Instant, who: &str, text: &str, paint: Paint, width: usize, colour: bool) -> String {
    let ms = i128::from(at.0) - i128::from(zero.0);
    let mut page = Page::new(width, colour);
    page.wrapped(&format!("{:>7} ms  {who:<7} ", ms / 1_000_000), text, paint);
    page.into_text()
}

/// The moving part: two machines, and the service.
pub fn panel(view: &View, now: Instant, width: usize, colour: bool) -> String {
    let mut page = Page::new(width, colour);
    let node = |id: NodeId| format!("{} {}", name(id), state(view.nodes[id.index()]));
    let between = if view.cut { "──╳──" } else { "─────" };
    let text = format!("{}  {between}  {}", node(NodeId::First), node(NodeId::Second));
    page.blank();
    page.both_ends(&format!(" {text}"), Paint::Bold, "");
    let service = match view.last {
        None => "service: no write yet".to_owned(),
        Some(last) => format!(
            "service: {} writes, the last by {} under token {}, {} ms ago",
            view.writes,
            name(last.node),
            last.token,
            now.since(last.at).as_ms()
        ),
    };
    let silent = view.last.is_some_and(|last| now.since(last.at) > SILENT);
    page.both_ends(&format!(" {service}"), if silent { Paint::Red } else { Paint::Plain }, "");
    page.into_text()
}

fn state(node: NodeView) -> String {
    match node {
        NodeView { on: false, .. } => "[off]".to_owned(),
        NodeView { daemon: false, .. } => "[no daemon]".to_owned(),
        NodeView { role: Some(role), .. } => format!("[{role}]"),
        NodeView { role: None, .. } => "[starting]".to_owned(),
    }
}

/// Checks first, then figures.
pub fn summary(checks: &[Check], figures: &[(String, String)], width: usize, colour: bool) -> String {
    let mut page = Page::new(width, colour);
    page.blank();
    page.wrapped("", "Checks", Paint::Bold);
    for check in checks {
        let (mark, paint) = if check.holds() { ("  holds   ", Paint::Green) } else { ("  BROKEN  ", Paint::Red) };
        page.wrapped(mark, check.question, paint);
        // The first few say what is wrong; a broken protection breaks many times.
        check.findings.iter().take(3).for_each(|finding| page.wrapped("          ", finding, Paint::Red));
        if check.findings.len() > 3 {
            page.wrapped("          ", &format!("and {} more", check.findings.len() - 3), Paint::Red);
        }
    }
    page.blank();
    page.wrapped("", "Figures", Paint::Bold);
    let rows: Vec<Vec<String>> = figures.iter().map(|(name, value)| vec![format!("  {name}"), value.clone()]).collect();
    page.list(&rows);
    page.into_text()
}

/// The very end.
pub fn verdict(checks: &[Check], width: usize, colour: bool) -> String {
    let mut page = Page::new(width, colour);
    let broken = checks.iter().filter(|check| !check.holds()).count();
    page.blank();
    match broken {
        0 => page.wrapped("", &format!("All {} checks hold.", checks.len()), Paint::Green),
        _ => page.wrapped("", &format!("{broken} of {} checks are broken.", checks.len()), Paint::Red),
    }
    page.into_text()
}

/// Where to go from here.
pub const READ_NEXT: &str = "
Read next
  README.md              what it promises and what not; a pair of your own in ten minutes
  config/leasehold.toml  a commented sample; `leasehold check FILE` prints every time with its arithmetic
  docs/PROTOCOL.md       the proofs, and the counterexamples that shaped them
";

/// Both names, for tables.
pub fn names() -> [&'static str; 2] {
    BOTH.map(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::history::Line;

    fn wrote(node: NodeId, token: u64, ms: u64) -> News {
        let line = Line { token, node: name(node).into(), pid: 9, counter: 1, boottime_ns: ms * 1_000_000 };
        News { at: Instant(line.boottime_ns), node, what: What::Wrote(line) }
    }

    fn decision(severity: Severity, kind: &str) -> News {
        let decision = Decision {
            number: 1,
            at: jiff::Timestamp::UNIX_EPOCH,
            severity,
            role: Role::TakingOver,
            kind: kind.into(),
            text: "fence attempt 1 started, for token 4".into(),
        };
        News { at: Instant(0), node: NodeId::Second, what: What::Decided(decision) }
    }

    #[test]
    fn only_the_first_write_of_a_term_is_told() {
        let mut view = View::default();
        let first = wrote(NodeId::First, 4, 10);
        assert_eq!(told(&first, &view).unwrap().0, "SERVICE WRITES under token 4");
        view.heed(&first);
        assert_eq!(told(&wrote(NodeId::First, 4, 20), &view), None);
        assert!(told(&wrote(NodeId::Second, 5, 30), &view).is_some());
    }

    #[test]
    fn decisions_are_told_by_their_loudness() {
        let view = View::default();
        assert_eq!(told(&decision(Severity::Info, "standing-changed"), &view), None);
        assert_eq!(told(&decision(Severity::Info, "probe-started"), &view).unwrap().1, Paint::Dim);
        assert_eq!(told(&decision(Severity::Alarm, "peer-lost"), &view).unwrap().1, Paint::Red);
    }

    #[test]
    fn times_count_from_the_kill_and_long_texts_are_indented() {
        let text =
            line(Instant(1_512_000_000), Instant(12_000_000), "plover", &"word ".repeat(20), Paint::Plain, 60, false);
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("   1500 ms  plover  word word"));
        assert!(lines.next().unwrap().starts_with("                    word"));
    }

    #[test]
    fn the_panel_keeps_its_height_and_shows_both_machines() {
        let mut view = View::default();
        let empty = panel(&view, Instant(0), 80, false);
        view.heed(&News { at: Instant(0), node: NodeId::First, what: What::Ready });
        view.heed(&decision(Severity::Notice, "attempt-started"));
        view.nodes[1].on = true;
        view.nodes[1].daemon = true;
        view.heed(&wrote(NodeId::First, 4, 10));
        let full = panel(&view, Instant(25_000_000), 80, false);
        assert_eq!(empty.lines().count(), full.lines().count());
        assert!(
            full.contains("heron [joining]  ─────  plover [taking-over]") || full.contains("taking over"),
            "{full}"
        );
        assert!(full.contains("1 writes, the last by heron under token 4, 15 ms ago"), "{full}");
        assert!(full.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn a_broken_check_says_what_was_found_but_not_a_thousand_times() {
        let check = |findings: usize| Check {
            question: "no two writers at once",
            findings: (0..findings).map(|n| format!("finding {n}")).collect(),
        };
        let text = summary(&[check(0), check(5)], &[("gap".into(), "9 ms".into())], 80, false);
        assert!(text.contains("  holds   no two writers at once\n"));
        assert!(text.contains("  BROKEN  no two writers at once\n          finding 0\n"));
        assert!(text.contains("and 2 more") && !text.contains("finding 3"));
        assert!(verdict(&[check(0), check(1)], 80, false).contains("1 of 2 checks are broken."));
    }
}
