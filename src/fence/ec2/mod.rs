//! EC2: stop an instance (`ec2-power`), take a volume from it (`ec2-volume`).
//!
//! ```text
//!   power ─┬─ describe ─ api ─┬─ credentials (file, environment file) ─ imds (role of this instance, version 2 only)
//!   volume ┴─ prove           └─ xml, words (what an error of EC2 means)
//! ```
//!
//! What EC2 answers to a command is no proof: it accepts a stop that hangs and a detach that the guest holds up for
//! ever (casebook C13). Only a describe counts, and only its exact words. "Not found" proves nothing either: the wrong
//! region or account finds nothing (C14).

mod api;
mod credentials;
mod describe;
mod imds;
mod power;
mod prove;
mod volume;
mod words;
mod xml;

pub use power::Ec2Power;
pub use volume::Ec2Volume;
