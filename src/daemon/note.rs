//! What the threads beside the loop tell it. The loop alone talks to the core.

use crate::control;
use crate::core::{Input, Severity, Span};
use crate::fence::{Evidence, Probed, journal};

/// A message to the loop.
#[derive(Debug)]
pub enum Note {
    /// For the core.
    Input(Input),
    /// What agents sent and read, newest last.
    Evidence(Vec<Evidence>),
    /// What became of one resource.
    Resource { name: String, state: control::ResourceState, detail: Option<String> },
    /// Why this node could not serve; `None`: it could.
    NotReady(Option<String>),
    /// Whether clients get through.
    Clients(control::Clients),
    /// Only of a daemon that was started with test hooks.
    Fault(Fault),
    /// A write of the record took this long.
    Written { took: Span, error: Option<String> },
    /// A look at a fence agent.
    Probed(Probed),
    /// What became of an attempt in the fence journal.
    Journal(journal::News),
    /// Something that an operator should hear.
    Told(Told),
}

/// A decision or observation of the daemon itself, as `why` shows it; the core's own are events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub severity: Severity,
    /// Stable name.
    pub kind: &'static str,
    /// One sentence, with the remedy where an operator must act.
    pub text: String,
}

impl Told {
    pub fn new(severity: Severity, kind: &'static str, text: impl Into<String>) -> Told {
        Told { severity, kind, text: text.into() }
    }
}

/// What a test has the loop do, to see who notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Panic,
    /// Never comes back, as in a deadlock.
    Hang,
}

/// The loop's inbox. Unbounded: what is sent answers an output of the core, and there are few of those.
pub type Inbox = tokio::sync::mpsc::UnboundedSender<Note>;
