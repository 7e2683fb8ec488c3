//! Bytes to datagrams and back, sealed with the cluster key.
//!
//! ```text
//! | magic 4 | version 1 | min 1 | sender 1 | link 1 | key id 8 | nonce 24 | sealed CBOR body | tag 16 |
//! |<------------ clear header, all of it authenticated ------->|
//! ```
//!
//! Versions are told apart *before* authentication, so that an operator is never sent after a key when the cause is
//! an upgrade. The magic, the version pair and their places never change; all else may, with a version whose `min`
//! excludes those who do not know the change. Within one version pair a newer sender adds fields to the body, which
//! an older receiver skips.
//!
//! The whole clear header is the associated data of the seal: sender (and with it the direction) and link cannot be
//! changed, so a datagram that comes back to its sender, or over another link, is seen to be one.
//!
//! Everything here is total: no input panics, and every refusal has its own [`Rejection`]. Replays are the core's
//! business, which knows incarnations, sequences and echoes.

pub mod codec;
mod describe;
mod header;
mod keyring;
mod seal;
#[cfg(test)]
mod tests;

pub use describe::describe;
pub use header::{MAX_DATAGRAM, MIN_VERSION, VERSION};
pub use keyring::{KeyError, KeyId, Keyring};
pub use seal::{open, open_last_words, seal, seal_by_successor, seal_last_words};

/// Why a datagram was refused. Refused datagrams are counted by kind and are never contact (protocol section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    #[error("too short to be a datagram of leasehold")]
    TooShort,
    #[error("not a datagram of leasehold; another program sends to this port")]
    Foreign,
    /// Told from the clear header, before authentication: anyone may have written it.
    #[error(
        "sent in wire version {version}, readable from version {min} on, while this node reads versions \
         {MIN_VERSION} to {VERSION}; upgrade the older node, one release at a time"
    )]
    OtherVersion { version: u8, min: u8 },
    #[error("sealed under a key id that this node's key file does not have; give both nodes the same key file")]
    UnknownKey,
    #[error("does not open with the key of its key id: the keys differ, or the datagram was damaged or forged")]
    WrongKey,
    #[error("not formed as its version prescribes, or longer than {MAX_DATAGRAM} bytes")]
    Malformed,
    #[error(
        "authentic, but not sent by the peer over this link: it came back to its sender, or the nodes number \
         their links or themselves differently"
    )]
    NotFromPeer,
}

impl Rejection {
    /// The name under which refusals of this kind are counted and shown.
    pub fn kind(self) -> &'static str {
        match self {
            Rejection::TooShort => "too-short",
            Rejection::Foreign => "foreign",
            Rejection::OtherVersion { .. } => "other-version",
            Rejection::UnknownKey => "unknown-key",
            Rejection::WrongKey => "wrong-key",
            Rejection::Malformed => "malformed",
            Rejection::NotFromPeer => "not-from-peer",
        }
    }
}
