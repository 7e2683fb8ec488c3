//! What the threads beside the loop tell it. The loop alone talks to the core.

use crate::control;
use crate::core::{Input, Span};
use crate::fence::Evidence;

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
    /// Only of a daemon that was started with test hooks.
    Fault(Fault),
    /// A write of the record took this long.
    Written { took: Span, error: Option<String> },
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
