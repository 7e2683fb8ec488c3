//! The control socket: JSON lines on a unix socket, one request a line, one reply a line.
//!
//! ```text
//!  leasehold status ──┐                        ┌── Call{Ask::Status}  ──> mpsc ──> daemon ──> oneshot ──┐
//!  any other program ─┴─> socket ─> Server ────┼── Call{Ask::Command} ──> mpsc ──> daemon ──> oneshot ──┤
//!                         who? may they?       └── watch, why, version <── Journal (ring and broadcast) ─┘
//! ```
//!
//! The daemon sees none of the socket: it answers [`Call`]s and publishes decisions into a [`Journal`]. The JSON is
//! public, versioned and described in `docs/CONTROL.md`; a test holds the two together.

mod client;
mod connection;
mod error;
mod figures;
mod groups;
mod journal;
mod line;
mod reply;
mod request;
mod server;
mod status;

pub use client::{Client, ClientError, Watch};
pub use error::ControlError;
pub use figures::*;
pub use groups::{Access, Rights};
pub use journal::Journal;
pub use reply::{Answer, Decision, ErrorCode, Event, Failure, Reply, Version};
pub use request::{BadRequest, OPS, Op, Request};
pub use server::{Ask, Call, Caller, Outcome, Server, ServerOptions};
pub use status::*;

/// Version of the public JSON. A new field is no new version; a field that goes or changes its meaning is.
pub const VERSION: u32 = 1;

/// Longest request line, newline included. Far above any request; far below what could press memory.
pub const MAX_LINE: usize = 64 * 1024;
