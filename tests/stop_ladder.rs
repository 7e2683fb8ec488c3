//! Stopping what does not want to stop: verified, or said to be stuck, within the budget; of each kind with real parts.
//!
//! A service that ignores SIGTERM, one that forks away, one that hangs on a dead file system, a service manager that is
//! gone in the middle of the stop (casebook C32 D), a file system that does not answer.

#[path = "common/hang.rs"]
mod hang;
#[path = "stop_ladder/lab.rs"]
mod lab;
#[path = "stop_ladder/mounts.rs"]
mod mounts;
#[path = "common/need.rs"]
mod need;
#[path = "stop_ladder/programs.rs"]
mod programs;
#[path = "common/systemd.rs"]
mod systemd;
#[path = "stop_ladder/units.rs"]
mod units;
