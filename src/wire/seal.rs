//! XChaCha20-Poly1305 over the body, with the clear header as associated data.
//!
//! The nonce is random, 24 bytes for each datagram: a counter would repeat after a restored image or a lost file, and
//! one repeat lets an attacker forge. The extended nonce makes random ones safe for any life of a key.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Tag, XNonce};

use super::header::{HEADER, Header, NONCE, Parts, TAG, place};
use super::keyring::{Key, Keyring};
use super::{Rejection, codec};
use crate::core::{Datagram, NodeId};

/// More than any datagram of this version takes, so that sealing allocates once.
const ROOM: usize = 512;

/// The bytes of `datagram` for this link, sealed with the first key. `datagram.sender` is the node that seals.
pub fn seal(keyring: &Keyring, link: u8, datagram: &Datagram) -> Vec<u8> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).expect("the kernel's random source does not fail once it has been seeded");
    let key = keyring.sending();
    let header = Header::ours(datagram.sender, link, key.id);
    seal_with(key, header, &nonce, |body| codec::encode_into(body, datagram))
}

/// What the peer of `me` sent over this link, or why these bytes are not that.
pub fn open(keyring: &Keyring, me: NodeId, link: u8, bytes: &[u8]) -> Result<Datagram, Rejection> {
    let parts = Parts::split(bytes)?;
    let key = keyring.find(parts.header.key).ok_or(Rejection::UnknownKey)?;
    let body = unseal(key, &parts)?;
    let sender = me.peer();
    if (parts.header.sender, parts.header.link) != (place(sender), link) {
        return Err(Rejection::NotFromPeer);
    }
    codec::decode(sender, &body)
}

/// Seals whatever body `write` appends, under any header and nonce: only tests may choose them.
pub(super) fn seal_with(key: &Key, header: Header, nonce: &[u8; NONCE], write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let clear = header.to_bytes();
    let mut bytes = Vec::with_capacity(ROOM);
    bytes.extend_from_slice(&clear);
    bytes.extend_from_slice(nonce);
    write(&mut bytes);
    let body = (&mut bytes[HEADER + NONCE..]).into();
    let tag = key.cipher().encrypt_inout_detached(&XNonce::from(*nonce), &clear, body);
    bytes.extend_from_slice(&tag.expect("a body is far shorter than the 256 GiB that one nonce may seal"));
    bytes
}

/// The body, if this key sealed it under this very header.
fn unseal(key: &Key, parts: &Parts<'_>) -> Result<Vec<u8>, Rejection> {
    let mut body = parts.sealed.to_vec();
    let (nonce, tag): (XNonce, Tag) = ((*parts.nonce).into(), <[u8; TAG]>::into(*parts.tag));
    let opened = key.cipher().decrypt_inout_detached(&nonce, parts.clear, body.as_mut_slice().into(), &tag);
    opened.map(|()| body).map_err(|_| Rejection::WrongKey)
}
