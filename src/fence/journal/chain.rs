//! The lines and their chain: what is whole, where it breaks, and why. Pure.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Entry;

/// Version of the lines. A newer one is set aside like damage: what cannot be read is not written over.
const VERSION: u32 = 1;

/// What the first entry of a new journal names as its predecessor.
const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The first line: where the chain was cut to stay within its bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    pub leasehold_fence_journal: u32,
    /// Entries dropped so far, which is the number of the last one.
    pub dropped: u64,
    /// SHA-256 of that one, in hex.
    pub hash: String,
}

/// What a journal holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    pub anchor: Anchor,
    /// In order, up to the first that is not whole.
    pub entries: Vec<Entry>,
    pub trouble: Option<Trouble>,
    /// Hash of the newest whole line, which the next one has to name.
    pub head: String,
    /// Each whole entry's line, without its end: compaction moves them as they are.
    pub(super) lines: Vec<Vec<u8>>,
}

/// Why the chain ends before the file does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The last line has no end: a crash, or a full disk, in the middle of a write.
    CutOff { bytes: usize },
    /// A line is not what was written.
    Broken { line: usize, why: String },
}

impl Default for Anchor {
    fn default() -> Anchor {
        Anchor { leasehold_fence_journal: VERSION, dropped: 0, hash: NOTHING.to_owned() }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::CutOff { bytes } => write!(f, "the last entry is cut off after {bytes} bytes"),
            Trouble::Broken { line, why } => write!(f, "line {line} is not what was written: {why}"),
        }
    }
}

impl History {
    pub fn last_number(&self) -> u64 {
        self.entries.last().map_or(self.anchor.dropped, |entry| entry.number)
    }
}

/// Reads and verifies; total over all bytes.
pub fn read(bytes: &[u8]) -> History {
    let mut history = History::default();
    history.head = history.anchor.hash.clone();
    let mut rest = bytes;
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        let Some(end) = rest.iter().position(|b| *b == b'\n') else {
            history.trouble = Some(Trouble::CutOff { bytes: rest.len() });
            return history;
        };
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        if let Err(why) = history.take(number, line) {
            history.trouble = Some(Trouble::Broken { line: number, why });
            return history;
        }
        rest = after;
    }
    if number == 0 {
        history.trouble = Some(Trouble::Broken { line: 1, why: "there is no first line".to_owned() });
    }
    history
}

impl History {
    fn take(&mut self, number: usize, line: &[u8]) -> Result<(), String> {
        check(line)?;
        if number == 1 {
            return self.take_anchor(line);
        }
        let entry: Entry = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        if entry.previous != self.head {
            return Err("it does not name the hash of the line before".to_owned());
        }
        if entry.number != self.last_number() + 1 {
            return Err(format!("it is number {} after number {}", entry.number, self.last_number()));
        }
        self.head = hash(line);
        self.entries.push(entry);
        self.lines.push(line.to_vec());
        Ok(())
    }

    fn take_anchor(&mut self, line: &[u8]) -> Result<(), String> {
        let anchor: Anchor = serde_json::from_slice(line).map_err(|e| format!("no anchor: {e}"))?;
        if anchor.leasehold_fence_journal != VERSION {
            return Err(format!("version {} of the journal, not {VERSION}", anchor.leasehold_fence_journal));
        }
        self.head = anchor.hash.clone();
        self.anchor = anchor;
        Ok(())
    }
}

/// SHA-256 in hex.
pub(super) fn hash(line: &[u8]) -> String {
    Sha256::digest(line).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a String takes everything that is written to it");
        hex
    })
}

/// The line of a value, without its end: the JSON object, closed by a checksum over all that stands before it. The next
/// line names the hash of this one, but nothing names that of the newest.
pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("anchor and entry have only string keys and whole numbers");
    assert_eq!(line.pop(), Some(b'}'), "anchor and entry are objects");
    let seal = seal(&line);
    line.extend(seal.into_bytes());
    line
}

fn seal(before: &[u8]) -> String {
    format!(",\"check\":\"{}\"}}", hash(before))
}

fn check(line: &[u8]) -> Result<(), String> {
    let before = line.len().saturating_sub(seal(b"").len());
    if line[before..] == *seal(&line[..before]).as_bytes() { Ok(()) } else { Err("its checksum is wrong".to_owned()) }
}
