//! The network of this machine: addresses on interfaces, and what is told about them on the segment.

pub mod address;
pub mod announce;
pub mod remove;
mod sys;
