//! What a script expects, judged by what was seen from outside.
//!
//! | line | means |
//! | --- | --- |
//! | `primary N by T` | N serves clients at some moment up to T |
//! | `primary N at T` | N serves clients at T |
//! | `primary N from T to U` | N serves clients without a break |
//! | `idle N at T`, `idle N from T to U` | nothing of the service acts on N |
//! | `standby N at end` | N is the admitted, ready standby of a serving primary when the run ends |
//! | `whole at end` | one of the nodes is that, the other that primary |
//! | `no-promotion N [from T] [to U]` | N does not start the service in that time |
//! | `promotion N by PROOF [from T] [to U]` | N starts the service by that proof in that time |
//! | `event N [from T] [to U]: TEXT`, `no-event …` | a line of the trace of N (or `any`) contains TEXT |
//! | `power N on\|off at end` | how the machine is left |
//! | `shots N COUNT` | how many off commands N's power controller got |
//! | `never-both-active` | S1, even where an assumption was broken on purpose |
//! | `violation S2` | the judges find this; without the line any violation fails the scenario |
//! | `void S1` | the judges know that this guarantee is void |
//! | `broken-rules` | the setup breaks the timing rules on purpose |

use std::fmt;

use crate::core::{NodeId, ProofKind};

use super::judges::Guarantee;
use super::text::{self, name, show_time};
use super::world::World;

/// From when to when, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(u64, u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    PrimaryBy(NodeId, u64),
    Primary(NodeId, Window),
    Idle(NodeId, Window),
    StandbyAtEnd(NodeId),
    Whole,
    NoPromotion(NodeId, Window),
    Promotion(NodeId, ProofKind, Window),
    Event { node: Option<NodeId>, window: Window, text: String, wanted: bool },
    Power(NodeId, bool),
    Shots(NodeId, u32),
    NeverBothActive,
    Violation(Guarantee),
    Void(Guarantee),
    BrokenRules,
}

const PROOFS: [(&str, ProofKind); 5] = [
    ("Fenced", ProofKind::Fenced),
    ("Released", ProofKind::Released),
    ("Rebooted", ProofKind::Rebooted),
    ("Confirmed", ProofKind::Confirmed),
    ("Agreed", ProofKind::Agreed),
];

const GUARANTEES: [(&str, Guarantee); 9] = [
    ("S1", Guarantee::S1),
    ("S2", Guarantee::S2),
    ("S3", Guarantee::S3),
    ("S4", Guarantee::S4),
    ("S5", Guarantee::S5),
    ("L1", Guarantee::L1),
    ("L2", Guarantee::L2),
    ("Wire", Guarantee::Wire),
    ("Panic", Guarantee::Panic),
];

fn of<T: Copy>(table: &[(&str, T)], word: &str) -> Result<T, String> {
    table.iter().find(|(n, _)| *n == word).map(|(_, v)| *v).ok_or_else(|| format!("`{word}` is not known here"))
}

/// `by T`, `at T`, `from T`, `to T`, `from T to U`, or nothing.
fn window(words: &[&str]) -> Result<Window, String> {
    match words {
        [] => Ok(Window(0, u64::MAX)),
        ["at", t] => text::time(t).map(|t| Window(t, t)),
        ["by" | "to", t] => text::time(t).map(|t| Window(0, t)),
        ["from", t] => text::time(t).map(|t| Window(t, u64::MAX)),
        ["from", t, "to", u] => Ok(Window(text::time(t)?, text::time(u)?)),
        other => Err(format!("`{}` is no time: write by T, at T, or from T to U", other.join(" "))),
    }
}

impl Expectation {
    pub fn parse(line: &str) -> Result<Expectation, String> {
        if let Some((head, text)) = line.split_once(": ") {
            return Expectation::parse_event(head, text);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["never-both-active"] => Ok(Expectation::NeverBothActive),
            ["whole", "at", "end"] => Ok(Expectation::Whole),
            ["broken-rules"] => Ok(Expectation::BrokenRules),
            ["violation", which] => of(&GUARANTEES, which).map(Expectation::Violation),
            ["void", which] => of(&GUARANTEES, which).map(Expectation::Void),
            ["primary", n, "by", t] => Ok(Expectation::PrimaryBy(text::node(n)?, text::time(t)?)),
            ["primary", n, ref time @ ..] => Ok(Expectation::Primary(text::node(n)?, window(time)?)),
            ["idle", n, ref time @ ..] => Ok(Expectation::Idle(text::node(n)?, window(time)?)),
            ["standby", n, "at", "end"] => text::node(n).map(Expectation::StandbyAtEnd),
            ["no-promotion", n, ref time @ ..] => Ok(Expectation::NoPromotion(text::node(n)?, window(time)?)),
            ["promotion", n, "by", proof, ref time @ ..] => {
                Ok(Expectation::Promotion(text::node(n)?, of(&PROOFS, proof)?, window(time)?))
            }
            ["power", n, state @ ("on" | "off"), "at", "end"] => Ok(Expectation::Power(text::node(n)?, state == "on")),
            ["shots", n, count] => Ok(Expectation::Shots(text::node(n)?, text::number(count)? as u32)),
            _ => Err(format!("`{line}` is no expectation")),
        }
    }

    fn parse_event(head: &str, text: &str) -> Result<Expectation, String> {
        let words: Vec<&str> = head.split_whitespace().collect();
        let [verb @ ("event" | "no-event"), who, ref time @ ..] = words[..] else {
            return Err(format!("`{head}:` is no expectation"));
        };
        let node = if who == "any" { None } else { Some(text::node(who)?) };
        Ok(Expectation::Event { node, window: window(time)?, text: text.trim().into(), wanted: verb == "event" })
    }

    /// Whether a violation of this guarantee is what the script wants to show.
    pub fn allows(&self, guarantee: Guarantee) -> bool {
        *self == Expectation::Violation(guarantee)
    }

    /// Whether it came so; the error says what was seen instead.
    pub fn judge(&self, world: &World) -> Result<(), String> {
        let judges = &world.judges;
        match self {
            Expectation::PrimaryBy(node, t) => {
                let first = judges.served[node.index()].first().map(|(from, _)| *from);
                ensure(first.is_some_and(|f| f <= *t), || shown_intervals(&judges.served[node.index()]))
            }
            Expectation::Primary(node, w) => {
                let served = &judges.served[node.index()];
                ensure(served.iter().any(|(from, to)| *from <= w.0 && w.1 <= *to), || shown_intervals(served))
            }
            Expectation::Idle(node, w) => {
                let acted = &judges.acted[node.index()];
                ensure(acted.iter().all(|(from, to)| *to <= w.0 || w.1 < *from), || shown_intervals(acted))
            }
            Expectation::StandbyAtEnd(node) => match world.whole() {
                Ok(primary) => ensure(primary == node.peer(), || format!("{} is primary", name(primary))),
                Err(why) => Err(why),
            },
            Expectation::Whole => world.whole().map(drop),
            Expectation::NoPromotion(node, w) => {
                let found = judges.promotions.iter().find(|p| p.node == *node && w.holds(p.at));
                found.map_or(Ok(()), |p| Err(format!("promoted at {} by {:?}", text::stamp(p.at), p.proof)))
            }
            Expectation::Promotion(node, proof, w) => {
                let found = judges.promotions.iter().any(|p| p.node == *node && p.proof == *proof && w.holds(p.at));
                ensure(found, || format!("promotions were {:?}", judges.promotions))
            }
            Expectation::Event { node, window, text, wanted } => {
                let found = world.trace.lines.iter().find(|l| {
                    window.holds(l.at) && (node.is_none() || l.node == *node) && l.text.contains(text.as_str())
                });
                ensure(found.is_some() == *wanted, || found.map_or(String::from("never seen"), ToString::to_string))
            }
            Expectation::Power(node, on) => {
                ensure(world.machines[node.index()].powered == *on, || String::from("it is not"))
            }
            Expectation::Shots(node, count) => {
                let shots = world.bmcs[node.index()].shots;
                ensure(shots == *count, || format!("there were {shots}"))
            }
            Expectation::NeverBothActive => ensure(judges.both_active == 0, || String::from("both acted")),
            Expectation::Violation(g) => {
                ensure(judges.violations.iter().any(|v| v.guarantee == *g), || String::from("the judges found none"))
            }
            Expectation::Void(g) => ensure(judges.is_void(*g), || String::from("it still holds")),
            Expectation::BrokenRules => Ok(()),
        }
    }
}

fn ensure(right: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(seen()) }
}

fn shown_intervals(intervals: &[(u64, u64)]) -> String {
    let shown: Vec<String> = intervals
        .iter()
        .map(|(from, to)| {
            let end = if *to == u64::MAX { String::from("the end") } else { text::stamp(*to) };
            format!("{} to {}", text::stamp(*from).trim(), end.trim())
        })
        .collect();
    if shown.is_empty() { String::from("it never did") } else { format!("it did from {}", shown.join(", ")) }
}

impl Window {
    fn holds(self, at: u64) -> bool {
        (self.0..=self.1).contains(&at)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (0, u64::MAX) => Ok(()),
            (at, to) if at == to => write!(f, " at {}", show_time(at)),
            (from, u64::MAX) => write!(f, " from {}", show_time(from)),
            (from, to) => write!(f, " from {} to {}", show_time(from), show_time(to)),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expectation::PrimaryBy(n, t) => write!(f, "primary {} by {}", name(*n), show_time(*t)),
            Expectation::Primary(n, w) => write!(f, "primary {}{w}", name(*n)),
            Expectation::Idle(n, w) => write!(f, "idle {}{w}", name(*n)),
            Expectation::StandbyAtEnd(n) => write!(f, "standby {} at end", name(*n)),
            Expectation::Whole => f.write_str("whole at end"),
            Expectation::NoPromotion(n, w) => write!(f, "no-promotion {}{w}", name(*n)),
            Expectation::Promotion(n, p, w) => write!(f, "promotion {} by {p:?}{w}", name(*n)),
            Expectation::Event { node, window, text, wanted } => {
                let verb = if *wanted { "event" } else { "no-event" };
                write!(f, "{verb} {}{window}: {text}", node.map_or("any", name))
            }
            Expectation::Power(n, on) => write!(f, "power {} {} at end", name(*n), if *on { "on" } else { "off" }),
            Expectation::Shots(n, count) => write!(f, "shots {} {count}", name(*n)),
            Expectation::NeverBothActive => f.write_str("never-both-active"),
            Expectation::Violation(g) => write!(f, "violation {g:?}"),
            Expectation::Void(g) => write!(f, "void {g:?}"),
            Expectation::BrokenRules => f.write_str("broken-rules"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expectation_is_read_as_it_is_shown() {
        let lines = "primary plover by 15s|primary heron at 3s|idle heron from 3s to 9s|standby plover at end|\
            no-promotion plover|no-promotion plover from 4s|promotion plover by Fenced from 0s to 20s|shots heron 2|\
            event heron: PeerLost|no-event any from 3s to 4s: AttemptStarted { token|power heron off at end|\
            never-both-active|violation S2|void S1|broken-rules|whole at end";
        for line in lines.split('|') {
            let read = Expectation::parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(read.to_string(), line);
        }
        assert!(Expectation::parse("peace").is_err());
    }
}
