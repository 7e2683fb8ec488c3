//! Two shipped nodes and their world, in every order of events within bounds.

// Two tests share these files, and each uses its own part of them.
#![allow(dead_code)]

pub mod agents;
pub mod catalogue;
pub mod choices;
pub mod driver;
pub mod judge;
pub mod machine;
pub mod search;
pub mod setup;
pub mod states;
pub mod world;

/// A number from the environment, if there is one.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}
