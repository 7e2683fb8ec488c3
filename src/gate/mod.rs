//! The storage server as the arbiter of a pair (protocol section 1, "exclusive"): `leasehold gate`.
//!
//! ```text
//!   node ── ssh, one JSON line ──▶ leasehold gate serve            (protocol.rs)
//!                                     │ lock of the gate            (store.rs: held until the last child has ended)
//!                                     │ compare and swap, durable   (arbiter.rs)
//!                                     ▼
//!                       Backend: revoke the peer, read it back, restore the caller, read both back
//!                         knfsd, ganesha, tgt, lio
//! ```
//!
//! The answer `taken` is a proof that promotes a node, so it is given for nothing less than this: the token is on the
//! disk, the server's own view shows no way in for the peer, and one for the caller. Whatever is not understood is
//! [`Access::Unknown`], and no proof (casebook C20, C22).

pub mod arbiter;
mod clients;
mod commands;
pub mod config;
mod files;
pub mod ganesha;
mod initiators;
pub mod knfsd;
pub mod lio;
pub mod protocol;
pub mod store;
pub mod tgt;

use std::fmt;
use std::pin::Pin;

use config::{Gate, Kind, Node};

/// An answer that comes later.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the server's own view says about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every resource of the gate lets it in, by every address that it has.
    Admitted,
    /// The whole view was read and understood; nothing in it lets the node in, and nothing of it is open.
    Excluded,
    /// Neither, with the reason in a sentence.
    Unknown(String),
}

/// Why a step at the server failed, for the operator. No proof is lost by it: only a reading is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub String);

/// One kind of server with what it guards.
///
/// All three work while the gate's lock is held, and end by themselves: each command that they run has a limit.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Takes the node's access away, for good (it survives a restart of the server) and at once (open sessions end).
    /// Must be harmless where nothing is left to take.
    fn revoke<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>>;

    /// Lets the node in, for good and at once. Harmless where it is in already.
    fn restore<'a>(&'a self, node: &'a Node) -> Pending<'a, Result<(), BackendError>>;

    /// Reads the server's whole view of the node, changing nothing.
    fn access<'a>(&'a self, node: &'a Node) -> Pending<'a, Access>;
}

/// The server of this gate.
pub fn backend(gate: &Gate) -> Box<dyn Backend> {
    match &gate.kind {
        Kind::Knfsd(keys) => Box::new(knfsd::KnfsdBackend::new(&gate.name, &gate.nodes, keys)),
        Kind::Ganesha(keys) => Box::new(ganesha::GaneshaBackend::new(&gate.name, &gate.nodes, keys)),
        Kind::Tgt(keys) => Box::new(tgt::TgtBackend::new(&gate.name, &gate.nodes, keys)),
        Kind::Lio(keys) => Box::new(lio::LioBackend::new(keys)),
    }
}
