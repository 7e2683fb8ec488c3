//! What the daemon says: replies, event lines, errors with a remedy.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::status::{Role, Severity, Status};
use crate::core::{self, Refusal};

/// One line from the daemon: the reply to a request, or an event of a `watch`.
///
/// Exactly one of `ok`, `error` and `event` is there. `id` is null when the line that it answers had none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub v: u32,
    pub id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
}

/// The answer to a request that was carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Status(Box<Status>),
    Decisions(Vec<Decision>),
    Version(Version),
    /// Event lines follow.
    Watching,
    /// The command was accepted; what becomes of it, `status` and `watch` tell.
    Accepted,
}

/// One line of a `watch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    Decision(Decision),
    /// The reader was too slow and this many decisions were dropped; `why` still has the newest.
    Missed(u64),
}

/// A decision or an observation of the daemon, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Counts from 1 in each life of the daemon; set by the journal.
    pub number: u64,
    /// Wall clock, for people. The daemon itself decides by the boot clock.
    pub at: Timestamp,
    pub severity: Severity,
    /// The role of this node after the decision.
    pub role: Role,
    /// Stable name of the kind, such as `peer-lost`.
    pub kind: String,
    /// One sentence, with the remedy where an operator must act.
    pub text: String,
}

/// Which program answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Version of the package, `0.1.0`.
    pub program: String,
    /// Version of the public JSON.
    pub control: u32,
    /// Version of the datagrams between the nodes.
    pub wire: u32,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: ErrorCode,
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// What kind of failure it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The line is no request.
    BadRequest,
    /// The line is longer than the cap; the connection is closed.
    TooLong,
    /// Another version of the JSON.
    Version,
    UnknownOp,
    /// The peer's credentials do not allow it.
    Denied,
    /// The daemon decided against it; the message says why.
    Refused,
    /// Too many connections or requests.
    Busy,
    /// The daemon is ending, or did not answer in time.
    Unavailable,
}

impl Decision {
    /// An event of the core, at this wall-clock time, of a node that is in `role` after it.
    pub fn new(event: &core::Event, role: core::Role, at: Timestamp) -> Decision {
        Decision {
            number: 0,
            at,
            severity: event.severity().into(),
            role: role.into(),
            kind: event.kind(),
            text: event.to_string(),
        }
    }
}

impl Failure {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), remedy: None }
    }

    pub fn remedy(self, remedy: &str) -> Failure {
        Failure { remedy: Some(remedy.into()), ..self }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure { code: ErrorCode::Refused, message: refusal.cause(), remedy: refusal.remedy().map(str::to_owned) }
    }
}

impl Reply {
    pub(super) fn ok(id: u64, answer: Answer) -> Reply {
        Reply { ok: Some(answer), ..Reply::empty(Some(id)) }
    }

    pub(super) fn error(id: Option<u64>, failure: Failure) -> Reply {
        Reply { error: Some(failure), ..Reply::empty(id) }
    }

    pub(super) fn event(id: u64, event: Event) -> Reply {
        Reply { event: Some(event), ..Reply::empty(Some(id)) }
    }

    fn empty(id: Option<u64>) -> Reply {
        Reply { v: super::VERSION, id, ok: None, error: None, event: None }
    }

    /// The line with its newline.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a reply has only string keys and finite numbers");
        line.push(b'\n');
        line
    }
}
