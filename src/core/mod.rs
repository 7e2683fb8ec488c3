//! The pure protocol machine: decides everything, touches nothing.

mod commands;
mod contact;
mod demoting;
mod detector;
mod drill;
mod durable;
mod fencing;
mod fingerprint;
pub mod ids;
pub mod invariants;
pub mod io;
mod joining;
pub mod lease;
pub mod message;
pub mod mutant;
mod node;
mod peer;
mod primary;
mod proof;
pub mod record;
mod remint;
pub mod settings;
mod settle;
mod speak;
mod standby;
mod status;
mod takeover;
mod text;
pub mod time;

pub use detector::Presence;
pub use fingerprint::Lens;
pub use ids::*;
pub use io::*;
pub use message::*;
pub use node::{Node, RunTime, RunTimeLease};
pub use record::{ProofKind, Record};
pub use settings::*;
pub use status::{PeerStatus, ResourceState, Status};
pub use time::{Instant, Span};

#[cfg(test)]
mod pair;
