//! The clauses of the contract, and how each of them was kept.

use std::fmt;

/// One promise of the contract, in the order of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clause {
    /// It can be made from its configuration: secrets and programs are there.
    Made,
    Prove,
    /// Two readings in a row say the same, and something.
    Status,
    /// The highest token of the store can be read.
    Highest,
    /// A take with an older token changes nothing, and the refusal names the highest.
    StaleTake,
    Off,
    StaysOff,
    /// A target that is off is confirmed without a command.
    OffAgain,
    On,
    /// Nothing needed longer than the agent's limit.
    Limit,
    /// What it says is short enough to be shown and kept.
    Bounded,
    /// No secret stands in what it says.
    NoSecret,
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clause::Made => "made",
            Clause::Prove => "proof",
            Clause::Status => "status",
            Clause::Highest => "highest",
            Clause::StaleTake => "stale take",
            Clause::Off => "off",
            Clause::StaysOff => "stays off",
            Clause::OffAgain => "off again",
            Clause::On => "on",
            Clause::Limit => "limit",
            Clause::Bounded => "bounded",
            Clause::NoSecret => "no secret",
        })
    }
}

/// How a clause was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Right,
    Wrong,
    /// Not tried, for the reason in the line.
    LeftOut,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub clause: Clause,
    pub kept: Kept,
    /// What was seen, or why it was left out. Without secrets.
    pub why: String,
}

impl Line {
    pub fn new(clause: Clause, kept: Kept, why: impl Into<String>) -> Line {
        Line { clause, kept, why: why.into() }
    }
}
