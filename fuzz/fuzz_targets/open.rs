//! Whatever arrives on a socket is refused without a panic: nobody but the peer has the key.
#![no_main]

use std::sync::LazyLock;

use leasehold::core::NodeId;
use leasehold::wire::{Keyring, open};
use libfuzzer_sys::fuzz_target;

static KEYRING: LazyLock<Keyring> =
    LazyLock::new(|| Keyring::parse(include_str!("../../tests/wire/keys.txt")).expect("the committed keys parse"));

/// The golden vectors are a good first corpus; they are authentic, so only the length of what opens is judged.
fn check(bytes: &[u8]) {
    for me in [NodeId::First, NodeId::Second] {
        if open(&KEYRING, me, 0, bytes).is_ok() {
            assert!(bytes.len() <= leasehold::wire::MAX_DATAGRAM);
        }
    }
}

fuzz_target!(|bytes: &[u8]| check(bytes));
