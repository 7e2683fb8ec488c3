//! XChaCha20-Poly1305 over the body, with the clear header as associated data.
//!
//! The nonce is random, 24 bytes for each datagram: a counter would repeat after a restored image or a lost file, and
//! one repeat lets an attacker forge. The extended nonce makes random ones safe for any life of a key.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Tag, XNonce};
use minicbor::{Decoder, Encoder};

use super::header::{HEADER, Header, NONCE, Parts, TAG, VERSION, place};
use super::keyring::{Key, Keyring};
use super::{Rejection, codec};
use crate::core::{Datagram, Incarnation, NodeId};

/// More than any datagram of this version takes, so that sealing allocates once.
const ROOM: usize = 512;
const LAST_WORDS: &str = "leasehold last words 1";

/// The bytes of `datagram` for this link, sealed with the first key. `datagram.sender` is the node that seals.
pub fn seal(keyring: &Keyring, link: u8, datagram: &Datagram) -> Vec<u8> {
    let key = keyring.sending();
    let header = Header::ours(datagram.sender, link, key.id);
    seal_with(key, header, &random_nonce(), |body| codec::encode_into(body, datagram))
}

/// As [`seal`], by a program one version ahead: its datagrams have one more field, which this version skips. For
/// whoever tries how neighbouring versions work together before there is a second one.
pub fn seal_by_successor(keyring: &Keyring, link: u8, datagram: &Datagram) -> Vec<u8> {
    let key = keyring.sending();
    let header = Header { version: VERSION + 1, min: VERSION, ..Header::ours(datagram.sender, link, key.id) };
    let newer = with_entry(&codec::encode(datagram), |entry| {
        entry.u8(99).and_then(|e| e.str("of a later version")).expect("writing to memory does not fail");
    });
    seal_with(key, header, &random_nonce(), |body| body.extend_from_slice(&newer))
}

/// The map with one more entry, whose key and value `write` gives.
pub(super) fn with_entry(body: &[u8], write: impl FnOnce(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let mut decoder = Decoder::new(body);
    let entries = decoder.map().ok().flatten().expect("our own bodies are maps of definite length");
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes).map(entries + 1).expect("writing to memory does not fail");
    bytes.extend_from_slice(&body[decoder.position()..]);
    write(&mut Encoder::new(&mut bytes));
    bytes
}

/// The last words of a node that its guard resets, sealed ahead of need. Its body is an array, where that of a datagram is
/// a map: neither is ever taken for the other, and a peer that does not know them counts them as malformed.
pub fn seal_last_words(keyring: &Keyring, link: u8, sender: NodeId, incarnation: Incarnation) -> Vec<u8> {
    let key = keyring.sending();
    seal_with(key, Header::ours(sender, link, key.id), &random_nonce(), |body| {
        let mut encoder = Encoder::new(body);
        let written = encoder.array(2).and_then(|e| e.str(LAST_WORDS)).and_then(|e| e.u64(incarnation.0));
        written.map(drop).expect("writing to memory does not fail");
    })
}

/// Whose last words these are; `None`: they are none, or not the peer's over this link. For people: they may be late or
/// sent again, and are no sign of life.
pub fn open_last_words(keyring: &Keyring, me: NodeId, link: u8, bytes: &[u8]) -> Option<Incarnation> {
    let parts = Parts::split(bytes).ok()?;
    let body = unseal(keyring.find(parts.header.key)?, &parts).ok()?;
    let from_peer = (parts.header.sender, parts.header.link) == (place(me.peer()), link);
    let mut decoder = Decoder::new(&body);
    let ours = decoder.array().ok()? == Some(2) && decoder.str().ok()? == LAST_WORDS;
    decoder.u64().ok().map(Incarnation).filter(|_| from_peer && ours)
}

fn random_nonce() -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).expect("the kernel's random source does not fail once it has been seeded");
    nonce
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
