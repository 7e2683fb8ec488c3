//! Everything that touches the machine: clock, links, durable record, run-time record, secrets, service manager, log.
//!
//! | file | what | may it block the caller? |
//! | --- | --- | --- |
//! | [`clock`] | CLOCK_BOOTTIME and an alarm on it; wall time for the journal only | no |
//! | [`links`], [`counters`] | one UDP socket a link, and what is told about it | no |
//! | [`stall`] | how late the loop was woken | no |
//! | [`runtime`] | run-time lease record and the lock of one daemon a node | no: tmpfs, never synced |
//! | [`record`], [`slot`], [`disk`] | the durable record in two slots | **yes**: call it off the loop |
//! | [`secret`], [`keyfile`] | keys and passwords from files that only their owner can read | yes: at start only |
//! | [`peer_uuid`] | the peer's machine as it last told it | **yes**: off the loop |
//! | [`generation`] | whether this virtual machine was restored, copied or moved | no |
//! | [`machine`] | boot id, system UUID, randomness | at start only |
//! | [`net`] | addresses, their announcements, clients cut by netlink | no, but off the loop: another user of nftables may hold its lock |
//! | [`shared`], [`bell`] | the page that daemon and guard share, and the bell between them | no |
//! | [`sleeper`] | for the guard: waiting without memory of its own | no |
//! | [`watchdog`], [`reset`] | for the guard: the hardware watchdog, and the end | the reset may |
//! | [`notify`] | service manager, from its own thread | no |
//! | [`log`] | journal lines, from their own thread, lossy | no |
//!
//! The loop that sends heartbeats and keeps the lease calls only what does not block (libraries rule 1).

pub mod bell;
pub mod clock;
pub mod counters;
pub mod disk;
pub mod generation;
pub mod keep;
pub mod keyfile;
pub mod links;
pub mod log;
pub mod machine;
pub mod manager;
pub mod net;
pub mod notify;
pub mod peer_uuid;
pub mod record;
pub mod reset;
pub mod runtime;
pub mod secret;
pub mod shared;
pub mod sleeper;
pub mod slot;
pub mod stall;
mod sys;
pub mod watchdog;

#[cfg(test)]
mod apart;
#[cfg(test)]
mod fake_disk;
#[cfg(test)]
mod record_faults;
