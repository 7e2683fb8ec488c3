//! What may happen to a pair that is whole: how it is written, and what it does to a world.

use std::fmt;
use std::str::FromStr;

use crate::core::NodeId;
use crate::sim::text::{self, Range};
use crate::sim::{Action, PathChange, Pause, Rng, Wires};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const PARTITION: u64 = 30 * SECOND;
const PAUSE: u64 = 20 * SECOND;
/// How long links flap before they hold again.
const FLAPPING: u64 = 60 * SECOND;
/// The faults of a mix fall into one such span.
const MIXED_WITHIN: u64 = 30 * SECOND;
const BOTH_WAYS: Wires = Wires { from: [true, true], link: None };

/// One kind of fault. Lengths in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The kernel of the primary's machine dies; its power stays on.
    PrimaryCrash,
    StandbyCrash,
    /// Every link is cut, both ways, for this long.
    Partition(u64),
    /// The primary's machine stands still for this long, and its clocks with it, as under a hypervisor.
    Pause(u64),
    /// Every link is up and down in turn, each for this long; `None`: for lengths around D, drawn anew for each world.
    Flap(Option<u64>),
    /// One machine, either one, stands still for a length drawn from `--stalls`.
    Stall,
    /// Two or three of the others within half a minute.
    Mix,
}

/// What is asked for where nothing is.
pub const USUAL: [Fault; 5] =
    [Fault::PrimaryCrash, Fault::StandbyCrash, Fault::Partition(PARTITION), Fault::Pause(PAUSE), Fault::Flap(None)];

const NAMES: &str = "primary-crash, standby-crash, partition[=30s], pause[=20s], flap[=2s], stall, mix";

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let (name, length) = text.split_once(['=', ' ']).map_or((text, None), |(name, length)| (name, Some(length)));
        let length = length.map(text::time).transpose()?;
        match (name, length) {
            ("partition", length) => Ok(Fault::Partition(length.unwrap_or(PARTITION))),
            ("pause", length) => Ok(Fault::Pause(length.unwrap_or(PAUSE))),
            ("flap", Some(0)) => Err(String::from("links cannot flap in no time: write flap=2s")),
            ("flap", length) => Ok(Fault::Flap(length)),
            ("primary-crash", None) => Ok(Fault::PrimaryCrash),
            ("standby-crash", None) => Ok(Fault::StandbyCrash),
            ("stall", None) => Ok(Fault::Stall),
            ("mix", None) => Ok(Fault::Mix),
            ("primary-crash" | "standby-crash" | "stall" | "mix", Some(_)) => {
                Err(format!("`{name}` takes no length; lengths of a stall are said with --stalls"))
            }
            _ => Err(format!("`{name}` is no fault: say one of {NAMES}")),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::PrimaryCrash => f.pad("primary-crash"),
            Fault::StandbyCrash => f.pad("standby-crash"),
            Fault::Partition(length) => f.pad(&format!("partition={}", text::show_time(*length))),
            Fault::Pause(length) => f.pad(&format!("pause={}", text::show_time(*length))),
            Fault::Flap(None) => f.pad("flap"),
            Fault::Flap(Some(length)) => f.pad(&format!("flap={}", text::show_time(*length))),
            Fault::Stall => f.pad("stall"),
            Fault::Mix => f.pad("mix"),
        }
    }
}

/// One fault in one world: what is done when, and when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    pub actions: Vec<(u64, Action)>,
    pub ends: u64,
    /// Who stalled, and for how long.
    pub stall: Option<(NodeId, u64)>,
}

/// What a fault is drawn for.
#[derive(Debug)]
pub struct Drawing<'a> {
    pub rng: &'a mut Rng,
    pub primary: NodeId,
    pub dead_after: u64,
    pub stalls: Range,
}

impl Drawing<'_> {
    /// The fault that begins at `at`.
    pub fn draw(&mut self, fault: Fault, at: u64) -> Drawn {
        let at_once = |action| Drawn { actions: vec![(at, action)], ends: at, stall: None };
        match fault {
            Fault::PrimaryCrash => at_once(Action::Crash(self.primary)),
            Fault::StandbyCrash => at_once(Action::Crash(self.primary.peer())),
            Fault::Partition(length) => {
                let actions = vec![(at, Action::Cut(BOTH_WAYS)), (at + length, Action::Heal(BOTH_WAYS))];
                Drawn { actions, ends: at + length, stall: None }
            }
            Fault::Pause(length) => Drawn { ends: at + length, ..at_once(still(self.primary, length)) },
            Fault::Flap(length) => self.flap(length, at),
            Fault::Stall => {
                let node = self.rng.pick(&[NodeId::First, NodeId::Second]);
                let length = self.drawn(self.stalls.0, self.stalls.1);
                Drawn { ends: at + length, stall: Some((node, length)), ..at_once(still(node, length)) }
            }
            Fault::Mix => self.mix(at),
        }
    }

    fn flap(&mut self, length: Option<u64>, at: u64) -> Drawn {
        let d = self.dead_after;
        let spans = length.map(|l| (l, l)).unwrap_or_else(|| (self.drawn(d, 4 * d), self.drawn(d / 2, 2 * d)));
        let change = PathChange { flap: Some(spans), ..PathChange::default() };
        let ends = at + FLAPPING;
        Drawn {
            actions: vec![(at, Action::Change { wires: BOTH_WAYS, change }), (ends, Action::HealAll)],
            ends,
            stall: None,
        }
    }

    fn mix(&mut self, at: u64) -> Drawn {
        let mut whole = Drawn { actions: Vec::new(), ends: at, stall: None };
        for number in 0..self.rng.between(2, 3) {
            let fault = self.rng.pick(&USUAL);
            let begins = if number == 0 { at } else { at + self.drawn(0, MIXED_WITHIN) };
            let one = self.draw(fault, begins);
            whole.actions.extend(one.actions);
            whole.ends = whole.ends.max(one.ends);
        }
        whole.actions.sort_by_key(|(at, _)| *at);
        whole
    }

    /// Whole milliseconds: finer ones would only make schedules hard to read.
    fn drawn(&mut self, low: u64, high: u64) -> u64 {
        self.rng.between(low.div_ceil(MS), high / MS) * MS
    }
}

fn still(node: NodeId, length: u64) -> Action {
    Action::Pause { node, what: Pause::Hypervisor, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_is_shown() {
        for text in
            ["primary-crash", "standby-crash", "partition=45s", "pause=1500ms", "flap", "flap=2s", "stall", "mix"]
        {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        assert_eq!("pause 20s".parse(), Ok(Fault::Pause(20 * SECOND)));
    }

    #[test]
    fn an_unknown_fault_is_answered_with_the_known_ones() {
        let error = "fire".parse::<Fault>().unwrap_err();
        assert!(error.starts_with("`fire` is no fault") && error.contains("standby-crash"), "{error}");
        for text in ["pause=soon", "primary-crash=3s", "flap=0s", ""] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
