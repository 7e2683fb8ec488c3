//! One TOML file, the same on both nodes: raw, then checked, with all errors at once.

pub mod checked;

pub use checked::*;
