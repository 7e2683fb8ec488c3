//! What every fence attempt sent and read, kept for the day on which somebody asks.
//!
//! ```text
//!   FencePlan ── Case ──▶ Journal (handle) ──▶ thread ──▶ JournalFile: append, sync, compact, set aside
//!                                                            ▲ chain: each line names the SHA-256 of the one before
//!   leasehold fence --history ── read ───────────────────────┘
//! ```
//!
//! One JSON object a line, in `fence-journal` in the state directory. The first line is the anchor: how many entries
//! were dropped to stay within the bound, and the hash of the last of them, so that the chain is never begun anew in
//! silence. The chain shows damage and careless edits; it is no signature. The hash of the newest entry goes into the
//! system journal too, where a tail that was cut off whole is missed.
//!
//! Nothing here is in the way of fencing: an attempt hands its case over and goes on, whatever the disk does.

mod chain;
mod file;
mod keeper;

use serde::{Deserialize, Serialize};

use super::{Attempt, Evidence};

pub use chain::{Anchor, History, Trouble, read};
pub use file::{FILE, JournalError, JournalFile, LIMIT, history};
pub use keeper::{Journal, News};

/// Exchanges kept of one case, the first and the newest: enough to see what was sent, and how it ended.
pub const FIRST_KEPT: usize = 10;
const NEWEST_KEPT: usize = 30;

/// What was done to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The fence plan against the peer.
    Off,
    /// The same, as a drill.
    Drill,
    /// A reading that found the peer off, and so proved it.
    Probe,
    /// The compare-and-swap at the storage.
    Take,
    /// The fenced peer was switched on again.
    On,
    /// This node let itself in again.
    Access,
    /// The journal itself was found damaged; the text says where the damaged file is.
    Damage,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Read back as wanted.
    Confirmed,
    Refused,
    Unknown,
    /// No longer wanted: the peer was heard, or the daemon ended. What was sent may have landed.
    CutOff,
}

/// One attempt, as the plan saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Wall time of beginning and end, RFC 3339.
    pub at: String,
    pub until: String,
    pub action: Action,
    /// The node that it was aimed at.
    pub target: String,
    pub token: Option<u64>,
    pub verdict: Verdict,
    /// The result in words.
    pub result: String,
    /// The plan's own deadline ended it.
    pub over_limit: bool,
    pub agents: Vec<Part>,
    pub evidence: Vec<Exchange>,
    /// Exchanges between the first and the newest that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// One agent's part in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub agent: String,
    /// The UUID of the machine that was meant, as far as it was known.
    pub expected: Option<String>,
    /// What the device said about which machine it controls: `proven`, `foreign`, `unknown`.
    pub identity: String,
    /// Which one that is by the device's own word, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The agent's own limit ended it.
    pub over_limit: bool,
}

/// One exchange with a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    pub agent: String,
    pub at: String,
    pub sent: String,
    pub read: String,
    pub times: u32,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts from one over the life of the journal.
    pub number: u64,
    /// SHA-256 of the line before, or what the anchor names, in hex.
    pub previous: String,
    /// Attempts before this one that could not be written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// The evidence is that of this entry, word for word, and is not written again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<u64>,
    #[serde(flatten)]
    pub case: Case,
}

impl Part {
    pub fn of(attempt: &Attempt) -> Part {
        Part {
            agent: attempt.agent().to_owned(),
            expected: attempt.expected().map(|uuid| uuid.to_string()),
            identity: attempt.identity().word().to_owned(),
            named: attempt.named(),
            over_limit: attempt.is_over_limit(),
        }
    }
}

impl Case {
    /// Takes the evidence over, bounded.
    pub fn with_evidence(self, evidence: &[Evidence]) -> Case {
        let gap = FIRST_KEPT..evidence.len().saturating_sub(NEWEST_KEPT).max(FIRST_KEPT);
        let kept = evidence.iter().enumerate().filter(|(place, _)| !gap.contains(place));
        Case { evidence: kept.map(|(_, e)| Exchange::of(e)).collect(), left_out: gap.len() as u64, ..self }
    }

    /// Whether this is the same story again, times aside.
    pub fn tells_the_same(&self, other: &Case) -> bool {
        let story = |case: &Case| {
            let exchanges: Vec<_> =
                case.evidence.iter().map(|e| (e.agent.clone(), e.sent.clone(), e.read.clone())).collect();
            (case.action, case.target.clone(), case.result.clone(), case.agents.clone(), exchanges)
        };
        !self.evidence.is_empty() && story(self) == story(other)
    }
}

impl Exchange {
    fn of(e: &Evidence) -> Exchange {
        let Evidence { agent, at, sent, read, times } = e.clone();
        Exchange { agent, at, sent, read, times }
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
