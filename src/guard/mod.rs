//! The guard: a lease that holds even when the daemon is dead, stopped, starved or being replaced (protocol section 7).
//!
//! ```text
//!   daemon ── shared page: deadline, token, standing ──▶ watch ──▶ hand: cut, kill, remove, look
//!          ── plan: marks, cgroups, addresses, cuts ──▶    │
//!          ── bell: "look now" ───────────────────────▶    ├──▶ watchdog: fed while the deadline is ahead or nothing runs
//!          ◀─ shared page: alive, how late, fired ─────    └──▶ reset: reboot, magic key, no more feeding
//! ```
//!
//! It is a process of its own that reads no configuration, answers nobody and, once it holds a plan, takes no memory.
//! Two threads: one watches the clock and calls nothing that may block, the other acts and may hang.

mod cgroup;
pub mod farewell;
mod hand;
mod judge;
mod line;
mod manager;
pub mod plan;
mod run;
mod scan;

use std::path::PathBuf;

pub use run::run;

/// What the command line tells the guard.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// The run-time directory of the daemon.
    pub runtime: PathBuf,
    /// The id of this boot; `None`: the kernel's.
    pub boot_id: Option<String>,
    /// For tests: the reason of a reset goes into this file, and nothing is reset.
    pub on_reset: Option<PathBuf>,
}

/// Why the guard does not run.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("cannot make the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("another guard runs with {}: stop it first, or give this one another run-time directory", path.display())]
    Another { path: PathBuf },
    #[error("cannot {step}: {source}")]
    Start { step: &'static str, source: std::io::Error },
    #[error(transparent)]
    Machine(#[from] crate::os::machine::MachineError),
}
