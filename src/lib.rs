//! leasehold: a two-node primary/standby failover daemon with leases, fencing tokens and STONITH.
//!
//! | room | what it does |
//! | --- | --- |
//! | [`core`] | pure: decides everything (protocol sections 1 to 8) |
//! | [`wire`] | bytes to messages and back, sealed with the cluster key |
//! | [`config`] | one TOML file, checked: all errors at once, with their arithmetic |
//! | [`fence`] | fence agents and the plan that runs them |
//! | [`resource`] | what fails over, as an ordered group |
//! | [`process`] | child processes with deadlines, for `fence` and `resource` |
//! | [`gate`] | the storage server as the arbiter of a pair |
//! | [`guard`] | the independent enforcer of the lease |
//! | [`os`] | clock, links, durable record, run-time record, service manager |
//! | [`daemon`] | puts the core's outputs into effect, in order |
//! | [`control`] | the unix socket: requests, answers, the public JSON |
//! | [`cli`] | one file a subcommand |
//! | [`sim`] | two nodes in a made-up world, and judges that look from outside |
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod cli;
pub mod config;
pub mod control;
pub mod core;
pub mod daemon;
pub mod fence;
pub mod gate;
pub mod guard;
pub mod os;
pub mod process;
pub mod resource;
pub mod sim;
pub mod wire;
