//! What a node and the gate say to each other: one JSON object a line, the question on stdin, the answer on stdout.
//!
//! ```json
//! {"version":1,"id":"9f2c","gate":"estuary","op":"take","node":"plover","token":9,"seen":8,"limit_ms":9000}
//! {"version":1,"id":"9f2c","gate":"estuary","result":"taken","highest":9,"owner":"plover","phase":"held",
//!  "text":"…","access":[{"node":"heron","state":"excluded"},{"node":"plover","state":"admitted"}]}
//! ```
//!
//! A question with a field that this version does not know is refused: it might be a condition. In an answer unknown
//! fields are skipped. `id` comes back as it went, so that an answer to another question is never believed.

use serde::{Deserialize, Serialize};

/// Rises with a change that the other side must not overlook.
pub const VERSION: u32 = 1;
/// A question is a few hundred bytes.
pub const LONGEST_REQUEST: usize = 4096;
/// An answer tells of two nodes, each with a sentence; texts are cut to fit.
pub const LONGEST_ANSWER: usize = 16 * 1024;
/// Of one text in an answer, in characters.
const LONGEST_TEXT: usize = 1500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Compare and swap, revoke the peer, restore the caller, verify.
    Take,
    /// The owner lets its peer in as well.
    Release,
    /// Record and both nodes' access; changes nothing.
    Status,
    /// The record alone; changes nothing.
    Highest,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub version: u32,
    /// Chosen by the one who asks; comes back in the answer.
    #[serde(default)]
    pub id: String,
    pub gate: String,
    pub op: Op,
    /// The node that asks; needed for `take` and `release`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `take`: the new token. `release`: the stored one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// `take`: what the stored token may be at most, unless the caller's node minted it; absent: whatever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// How long the one who asks will wait for the lock: a question that has outlived its asker is not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u64>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Stored, peer excluded, caller admitted: all read back.
    Taken,
    /// The peer was let in as well, read back.
    Released,
    /// The rule says no; `highest` says what is stored. Nothing was changed.
    Refused,
    /// The token is stored, but not all could be read back as it must be. The same take again goes on from here.
    Unverified,
    /// What was asked for, read.
    Status,
    /// Nothing was stored; `text` says why.
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Admitted,
    Excluded,
    Unknown,
}

/// One node, as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAccess {
    pub node: String,
    pub state: State,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub version: u32,
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub gate: String,
    pub result: Verdict,
    /// The highest token stored; absent when it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<u64>,
    /// Whose take stored it; absent while nobody ever took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// `idle`, `taking`, `held` or `shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default)]
    pub text: String,
    /// Version of the program that answers.
    #[serde(default)]
    pub program: String,
    #[serde(default)]
    pub access: Vec<NodeAccess>,
}

/// Why a line is no question.
#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("the question is longer than {LONGEST_REQUEST} bytes")]
    TooLong,
    #[error("the question is not one line of JSON as docs/gate.md describes it: {0}")]
    NotUnderstood(#[from] serde_json::Error),
    #[error(
        "the question has version {0}, this gate speaks {VERSION}: install the same version of leasehold on both sides"
    )]
    OtherVersion(u32),
}

impl Request {
    pub fn parse(line: &[u8]) -> Result<Request, BadRequest> {
        if line.len() > LONGEST_REQUEST {
            return Err(BadRequest::TooLong);
        }
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        // The version first: another one may have other fields, and that is the better reason to tell.
        let head: Head = serde_json::from_slice(line)?;
        if head.version != VERSION {
            return Err(BadRequest::OtherVersion(head.version));
        }
        Ok(serde_json::from_slice(line)?)
    }

    pub fn to_line(&self) -> String {
        line_of(self)
    }
}

impl Answer {
    /// An answer to `request` that says nothing of the record yet.
    pub fn to(request: &Request, result: Verdict, text: impl Into<String>) -> Answer {
        Answer { id: request.id.clone(), gate: request.gate.clone(), ..Answer::new(result, text) }
    }

    pub fn new(result: Verdict, text: impl Into<String>) -> Answer {
        Answer {
            version: VERSION,
            id: String::new(),
            gate: String::new(),
            result,
            highest: None,
            owner: None,
            phase: None,
            text: bounded(&text.into()),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            access: Vec::new(),
        }
    }

    pub fn of(&self, node: &str) -> Option<&NodeAccess> {
        self.access.iter().find(|a| a.node == node)
    }

    pub fn to_line(&self) -> String {
        line_of(self)
    }
}

impl NodeAccess {
    pub fn new(node: &str, access: super::Access) -> NodeAccess {
        let (state, why) = match access {
            super::Access::Admitted => (State::Admitted, String::new()),
            super::Access::Excluded => (State::Excluded, String::new()),
            super::Access::Unknown(why) => (State::Unknown, bounded(&why)),
        };
        NodeAccess { node: node.to_owned(), state, why }
    }
}

/// One line, of bounded length.
fn bounded(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn line_of<T: Serialize>(value: &T) -> String {
    let json = serde_json::to_string(value).expect("plain structs of numbers and text always become JSON");
    format!("{json}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_back_as_it_was_written() {
        let request = Request {
            version: VERSION,
            id: "1".into(),
            gate: "estuary".into(),
            op: Op::Take,
            node: Some("heron".into()),
            token: Some(u64::MAX),
            seen: Some(0),
            limit_ms: None,
        };
        assert_eq!(Request::parse(request.to_line().as_bytes()).unwrap(), request);
    }

    #[test]
    fn what_is_not_known_in_a_question_is_refused_and_in_an_answer_skipped() {
        let parse = |line: &str| Request::parse(line.as_bytes());
        let error = parse(r#"{"version":1,"gate":"g","op":"status","unless":"full moon"}"#).unwrap_err();
        assert!(matches!(error, BadRequest::NotUnderstood(_)), "{error}");
        assert!(matches!(parse(r#"{"version":2,"shape":"other"}"#), Err(BadRequest::OtherVersion(2))));
        for wrong in ["", "{}", "[1]", "{\"version\":1}", "take", r#"{"version":1,"gate":"g","op":"steal"}"#] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(parse(&" ".repeat(LONGEST_REQUEST + 1)), Err(BadRequest::TooLong)));
        let answer: Answer = serde_json::from_str(r#"{"version":1,"result":"taken","new":"thing"}"#).unwrap();
        assert_eq!(answer.result, Verdict::Taken);
    }

    #[test]
    fn an_answer_is_one_bounded_line() {
        let mut answer = Answer::new(Verdict::Error, "two\nlines ".repeat(9999));
        let long = super::super::Access::Unknown("y\n".repeat(9999));
        answer.access = vec![NodeAccess::new("heron", long.clone()), NodeAccess::new("plover", long)];
        let line = answer.to_line();
        assert!(line.len() < LONGEST_ANSWER && line.find('\n') == Some(line.len() - 1), "{}", line.len());
    }
}
