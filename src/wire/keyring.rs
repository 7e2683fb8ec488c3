//! The cluster keys, and the text file that holds them.
//!
//! ```text
//! # The first key seals; every key opens. To rotate: append the new line on both nodes, then move it to the top
//! # on both, then remove the old one from both.
//! v1 5c1e09ab <base64 of 32 bytes>
//! ```
//!
//! No error and no `Debug` prints any part of a line but a valid key id: a line with its fields in the wrong order
//! would otherwise put the key into the journal.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use chacha20poly1305::aead::KeyInit;
use chacha20poly1305::{Key as CipherKey, XChaCha20Poly1305};
use zeroize::Zeroizing;

/// Length of a key, in bytes.
const KEY: usize = 32;

/// The first word of a key line, and the only format so far.
const FORMAT: &str = "v1";

/// Room for the text of [`Keyring::generate`], so that no outgrown copy of the key stays behind in memory.
const TEXT_ROOM: usize = 512;

const PREAMBLE: &str = "\
# Cluster key of leasehold: the same file on both nodes, mode 0600. Whoever reads it can speak as either node.
# One line a key: v1 <key-id> <base64 of 32 bytes>. The first key seals, every key opens.
";

/// The name of a key: one to eight of the characters `a-z A-Z 0-9 . _ -`. Travels in clear.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub(super) [u8; 8]);

/// All keys that this node accepts. Never empty.
#[derive(Debug)]
pub struct Keyring {
    first: Key,
    others: Vec<Key>,
}

/// One key with its name. The secret is wiped when dropped and never shown.
pub(super) struct Key {
    pub id: KeyId,
    secret: Zeroizing<[u8; KEY]>,
}

/// What is wrong with a key file, on which line (from 1), and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key file holds no key; make one with `leasehold keygen` and copy it to both nodes")]
    Empty,
    #[error(
        "line {line}: a key line has three fields, `v1 <key-id> <base64 of 32 bytes>`, and this one has {found}; \
         copy the line whole from the other node, or make a new key with `leasehold keygen`"
    )]
    Fields { line: usize, found: usize },
    #[error(
        "line {line}: does not start with `v1`, the only key format that this release reads; \
         a key line is `v1 <key-id> <base64 of 32 bytes>`"
    )]
    Format { line: usize },
    #[error("line {line}: the key id, the second field, must be one to eight letters, digits, `.`, `_` or `-`")]
    Id { line: usize },
    #[error(
        "line {line}: key `{id}` is not base64 with its padding; \
         copy the line whole from the other node, or make a new key with `leasehold keygen`"
    )]
    Base64 { line: usize, id: KeyId },
    #[error(
        "line {line}: key `{id}` has {found} bytes where {KEY} are needed; \
         copy the line whole from the other node, or make a new key with `leasehold keygen`"
    )]
    Length { line: usize, id: KeyId, found: usize },
    #[error("line {line}: key `{id}` is one byte repeated, which is no secret; make a new one with `leasehold keygen`")]
    Weak { line: usize, id: KeyId },
    #[error("line {line}: key id `{id}` is already that of line {first}; give every key an id of its own")]
    Duplicate { line: usize, first: usize, id: KeyId },
    #[error("the kernel gave no random bytes for a new key: {0}")]
    Random(getrandom::Error),
}

impl Keyring {
    /// Reads the text of a key file. Blank lines, and everything from a `#` on, are ignored.
    pub fn parse(text: &str) -> Result<Keyring, KeyError> {
        let mut keys: Vec<(usize, Key)> = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            let Some(key) = Key::parse(line, content)? else { continue };
            if let Some((first, twin)) = keys.iter().find(|(_, other)| other.id == key.id) {
                return Err(KeyError::Duplicate { line, first: *first, id: twin.id });
            }
            keys.push((line, key));
        }
        let mut keys = keys.into_iter().map(|(_, key)| key);
        let first = keys.next().ok_or(KeyError::Empty)?;
        Ok(Keyring { first, others: keys.collect() })
    }

    /// The text of a new key file with one random key under a random id, wiped from memory when dropped.
    pub fn generate() -> Result<Zeroizing<String>, KeyError> {
        let mut id = [0; 4];
        let mut secret = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut id).and_then(|()| getrandom::fill(secret.as_mut())).map_err(KeyError::Random)?;
        let encoded = Zeroizing::new(BASE64.encode(secret.as_ref()));
        let mut text = Zeroizing::new(String::with_capacity(TEXT_ROOM));
        text.push_str(PREAMBLE);
        text.push_str(&format!("{FORMAT} {:08x} ", u32::from_be_bytes(id)));
        text.push_str(&encoded);
        text.push('\n');
        Ok(text)
    }

    /// The names of the keys, the sending one first.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        std::iter::once(&self.first).chain(&self.others).map(|key| key.id)
    }

    pub(super) fn sending(&self) -> &Key {
        &self.first
    }

    pub(super) fn find(&self, id: KeyId) -> Option<&Key> {
        std::iter::once(&self.first).chain(&self.others).find(|key| key.id == id)
    }
}

impl Key {
    /// The key on this line, `None` on one without content.
    fn parse(line: usize, content: &str) -> Result<Option<Key>, KeyError> {
        let content = content.split('#').next().unwrap_or_default();
        let fields: Vec<&str> = content.split_whitespace().collect();
        match fields[..] {
            [] => Ok(None),
            [FORMAT, id, secret] => Key::from_fields(line, id, secret).map(Some),
            [_, _, _] => Err(KeyError::Format { line }),
            _ => Err(KeyError::Fields { line, found: fields.len() }),
        }
    }

    fn from_fields(line: usize, id: &str, encoded: &str) -> Result<Key, KeyError> {
        let id = KeyId::parse(id).ok_or(KeyError::Id { line })?;
        let decoded = BASE64.decode(encoded).map_err(|_| KeyError::Base64 { line, id })?;
        let decoded = Zeroizing::new(decoded);
        let secret: &[u8; KEY] =
            decoded.as_slice().try_into().map_err(|_| KeyError::Length { line, id, found: decoded.len() })?;
        if secret.iter().all(|byte| *byte == secret[0]) {
            return Err(KeyError::Weak { line, id });
        }
        Ok(Key { id, secret: Zeroizing::new(*secret) })
    }

    pub fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(<&CipherKey>::from(&*self.secret))
    }
}

impl KeyId {
    fn parse(text: &str) -> Option<KeyId> {
        let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        let mut id = [0; 8];
        id.get_mut(..text.len()).filter(|_| fits && !text.is_empty())?.copy_from_slice(text.as_bytes());
        Some(KeyId(id))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = self.0.iter().filter(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
        f.pad(&name.escape_default().to_string())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, secret redacted)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "v1 main AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn refusal(text: &str) -> String {
        Keyring::parse(text).expect_err("refused").to_string()
    }

    #[test]
    fn a_generated_key_file_parses_and_no_two_are_alike() {
        let (one, other) = (Keyring::generate().unwrap(), Keyring::generate().unwrap());
        assert_ne!(*one, *other);
        assert_eq!(Keyring::parse(&one).unwrap().ids().count(), 1);
        assert!(one.capacity() == TEXT_ROOM, "the text outgrew its room and left a copy behind");
    }

    #[test]
    fn the_first_key_seals_and_every_key_is_found() {
        let second = GOOD.replace("main", "next").replace("AAEC", "AAED");
        let keyring = Keyring::parse(&format!("# ours\r\n\r\n{GOOD} # since March\r\n{second}\r\n")).unwrap();
        assert_eq!(keyring.ids().map(|id| id.to_string()).collect::<Vec<_>>(), ["main", "next"]);
        assert_eq!(keyring.sending().id, KeyId::parse("main").unwrap());
        assert_ne!(keyring.find(KeyId::parse("next").unwrap()).unwrap().secret, keyring.first.secret);
        assert!(keyring.find(KeyId::parse("nex").unwrap()).is_none());
    }

    #[test]
    fn a_key_cut_in_half_is_told_with_its_line_and_the_way_out() {
        assert_eq!(
            refusal("# key\nv1 main AAECAwQFBgcICQoLDA0ODw==\n"),
            "line 2: key `main` has 16 bytes where 32 are needed; copy the line whole from the other node, or make a \
             new key with `leasehold keygen`"
        );
        let cut = &GOOD[..GOOD.len() - 3];
        assert!(refusal(cut).starts_with("line 1: key `main` is not base64 with its padding"), "{}", refusal(cut));
    }

    #[test]
    fn every_other_fault_names_its_line() {
        assert_eq!(Keyring::parse("# only words\n\n").unwrap_err(), KeyError::Empty);
        assert_eq!(Keyring::parse("v1 main").unwrap_err(), KeyError::Fields { line: 1, found: 2 });
        assert_eq!(Keyring::parse(&GOOD.replace("v1", "v2")).unwrap_err(), KeyError::Format { line: 1 });
        assert_eq!(Keyring::parse(&GOOD.replace("main", "much-too-long")).unwrap_err(), KeyError::Id { line: 1 });
        assert_eq!(Keyring::parse(&GOOD.replace("main", "schlüss")).unwrap_err(), KeyError::Id { line: 1 });
        let zeros = format!("v1 main {}", BASE64.encode([0; KEY]));
        assert!(matches!(Keyring::parse(&zeros).unwrap_err(), KeyError::Weak { line: 1, .. }));
        let twice = Keyring::parse(&format!("{GOOD}\n\n{GOOD}")).unwrap_err();
        assert!(matches!(twice, KeyError::Duplicate { line: 3, first: 1, .. }));
        let second_line = Keyring::parse(&format!("{GOOD}\nv1 next !!!!")).unwrap_err();
        assert!(matches!(second_line, KeyError::Base64 { line: 2, .. }));
    }

    #[test]
    fn no_error_and_no_debug_text_shows_a_secret() {
        let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let misplaced = [
            format!("v1 {secret} main"),
            format!("{secret} v1 main"),
            secret.to_owned(),
            format!("v1 main {secret}{secret}"),
            format!("v1 main x{secret}"),
        ];
        for text in misplaced {
            let error = Keyring::parse(&text).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("AAEC") && !shown.contains("Hh8"), "{shown}");
        }
        let keyring = Keyring::parse(GOOD).unwrap();
        let key = "Key(main, secret redacted)";
        assert_eq!(format!("{keyring:?}"), format!("Keyring {{ first: {key}, others: [] }}"));
    }
}
