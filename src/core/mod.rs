//! The pure protocol machine: decides everything, touches nothing.

pub mod ids;
pub mod io;
pub mod message;
pub mod node;
pub mod record;
pub mod settings;
pub mod time;

pub use ids::*;
pub use io::*;
pub use message::*;
pub use node::{Node, RunTime, RunTimeLease, Status};
pub use record::{ProofKind, Record};
pub use settings::*;
pub use time::{Instant, Span};
