//! A secret in every usual spelling.

use std::collections::BTreeSet;

use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// A secret by name, to be found nowhere.
pub struct Marker {
    pub what: &'static str,
    pub bytes: Vec<u8>,
}

impl Marker {
    pub fn new(what: &'static str, value: &str) -> Marker {
        Marker { what, bytes: value.as_bytes().to_vec() }
    }

    /// Plain, URL-encoded, hexadecimal, and base64 wherever in a longer text it begins (`user:password`).
    pub fn spellings(&self) -> BTreeSet<Vec<u8>> {
        let hex: String = self.bytes.iter().map(|b| format!("{b:02x}")).collect();
        let spaced: String = self.bytes.iter().map(|b| format!("{b:02x} ")).collect();
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-._~".contains(b);
        let url: String =
            self.bytes.iter().map(|b| if plain(b) { char::from(*b).into() } else { format!("%{b:02X}") }).collect();
        let mut all = BTreeSet::from([self.bytes.clone(), hex.to_uppercase().into(), hex.into(), spaced.trim().into()]);
        all.extend([url.clone().into_bytes(), url.replace("%2F", "%2f").into_bytes()]);
        for engine in [&STANDARD, &URL_SAFE] {
            all.extend((0..3).map(|before| base64_inside(engine, before, &self.bytes)));
        }
        all
    }

    pub fn is_in(&self, text: &[u8]) -> bool {
        self.spellings().iter().any(|spelling| text.windows(spelling.len()).any(|window| window == spelling))
    }
}

/// The characters that depend on the secret alone when `before` bytes stand before it and others may follow.
fn base64_inside(engine: &impl base64::Engine, before: usize, secret: &[u8]) -> Vec<u8> {
    let text = engine.encode([&vec![0; before][..], secret].concat());
    let (from, to) = ((before * 8).div_ceil(6), (before + secret.len()) * 8 / 6);
    text.as_bytes()[from..to].to_vec()
}

/// The places in which a marker was found.
pub fn found(markers: &[Marker], place: &str, text: &[u8]) -> Vec<String> {
    let found = markers.iter().filter(|marker| marker.is_in(text));
    found.map(|marker| format!("{} in {place}", marker.what)).collect()
}
