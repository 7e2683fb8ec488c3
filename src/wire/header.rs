//! The clear header: whose datagram this is, and whether this version can read it, before any key is tried.

use super::Rejection;
use super::keyring::KeyId;
use crate::core::NodeId;

/// The wire version that this release writes.
pub const VERSION: u8 = 1;

/// The oldest version that can still read what this release writes, and the oldest that this release reads.
///
/// Raised when a field is added that a receiver must not ignore; new fields that may be skipped raise only [`VERSION`].
pub const MIN_VERSION: u8 = 1;

/// Longest datagram accepted, in bytes: fits one packet on any path with an MTU of 1280 (RFC 8200 section 5).
pub const MAX_DATAGRAM: usize = 1200;

/// Length of the nonce of XChaCha20, in bytes.
pub(super) const NONCE: usize = 24;

/// Length of the tag of Poly1305, in bytes.
pub(super) const TAG: usize = 16;

/// Length of the clear header, in bytes.
pub(super) const HEADER: usize = 16;

const MAGIC: [u8; 4] = *b"LSHD";

/// Magic and version pair: the part that no version may ever move.
const FOREVER: usize = 6;

/// The clear header of one datagram. `sender` is the place of the sending node in the configuration, unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub version: u8,
    pub min: u8,
    pub sender: u8,
    pub link: u8,
    pub key: KeyId,
}

/// A datagram taken apart, with nothing of it authenticated yet.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub header: Header,
    /// The bytes of the header: the associated data of the seal.
    pub clear: &'a [u8; HEADER],
    pub nonce: &'a [u8; NONCE],
    pub sealed: &'a [u8],
    pub tag: &'a [u8; TAG],
}

impl Header {
    pub fn ours(sender: NodeId, link: u8, key: KeyId) -> Header {
        Header { version: VERSION, min: MIN_VERSION, sender: place(sender), link, key }
    }

    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[self.version, self.min, self.sender, self.link]);
        bytes[8..].copy_from_slice(&self.key.0);
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER]) -> Header {
        let [_, _, _, _, version, min, sender, link, key @ ..] = *bytes;
        Header { version, min, sender, link, key: KeyId(key) }
    }
}

impl<'a> Parts<'a> {
    /// Takes a datagram apart, as far as this version knows how it is built.
    pub fn split(bytes: &'a [u8]) -> Result<Parts<'a>, Rejection> {
        told_apart(bytes)?;
        if bytes.len() > MAX_DATAGRAM {
            return Err(Rejection::Malformed);
        }
        Parts::cut(bytes).ok_or(Rejection::TooShort)
    }

    fn cut(bytes: &'a [u8]) -> Option<Parts<'a>> {
        let (clear, rest) = bytes.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (sealed, tag) = rest.split_last_chunk()?;
        Some(Parts { header: Header::from_bytes(clear), clear, nonce, sealed, tag })
    }
}

/// Foreign traffic and other versions are refused by the six bytes that every version has.
fn told_apart(bytes: &[u8]) -> Result<(), Rejection> {
    let [magic @ .., version, min] = *bytes.first_chunk::<FOREVER>().ok_or(Rejection::TooShort)?;
    if magic != MAGIC {
        return Err(Rejection::Foreign);
    }
    if version < MIN_VERSION || min > VERSION {
        return Err(Rejection::OtherVersion { version, min });
    }
    Ok(())
}

/// The place of a node in the configuration, as the header writes it.
pub(super) fn place(node: NodeId) -> u8 {
    match node {
        NodeId::First => 0,
        NodeId::Second => 1,
    }
}
