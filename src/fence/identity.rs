//! Which machine a device controls: its system UUID, compared with the one that the node itself told in its heartbeats.

use std::sync::{Arc, Mutex, PoisonError};

use crate::core::SystemUuid;

/// What a device's UUID says about whom it controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The machine that is meant.
    Proven,
    /// Another machine: nothing must be sent.
    Foreign,
    /// The device names none, or the node has never told its own.
    Unknown,
}

impl Identity {
    /// Its name in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            Identity::Proven => "proven",
            Identity::Foreign => "foreign",
            Identity::Unknown => "unknown",
        }
    }

    /// Compares in both byte orders: the first three fields of a UUID are little-endian in SMBIOS (SMBIOS 3.x, 7.2.1),
    /// and firmware does not agree on which form it shows.
    pub fn compare(expected: Option<SystemUuid>, seen: Option<SystemUuid>) -> Identity {
        match (expected.filter(is_known), seen.filter(is_known)) {
            (Some(expected), Some(seen)) if seen == expected || swapped(seen) == expected => Identity::Proven,
            (Some(_), Some(_)) => Identity::Foreign,
            _ => Identity::Unknown,
        }
    }
}

/// All zero means "not set", all one "not there" (SMBIOS 3.x, 7.2.1).
pub(super) fn is_known(uuid: &SystemUuid) -> bool {
    uuid.0 != [0; 16] && uuid.0 != [0xff; 16]
}

/// The same UUID with its first three fields in the other order of bytes.
pub(super) fn swapped(SystemUuid(mut bytes): SystemUuid) -> SystemUuid {
    bytes[0..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    SystemUuid(bytes)
}

/// The UUIDs of the two nodes, by their place in the configuration, as far as they are known. Shared with whoever
/// hears the peer.
#[derive(Debug, Clone, Default)]
pub struct Identities(Arc<Mutex<[Option<SystemUuid>; 2]>>);

impl Identities {
    pub fn learn(&self, node: usize, uuid: SystemUuid) {
        if is_known(&uuid) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)[node] = Some(uuid);
        }
    }

    /// Whether this tells something about the node that was not known.
    pub fn is_news(&self, node: usize, uuid: SystemUuid) -> bool {
        is_known(&uuid) && self.of(node) != Some(uuid)
    }

    pub fn of(&self, node: usize) -> Option<SystemUuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: SystemUuid = SystemUuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

    #[test]
    fn both_byte_orders_are_the_same_machine() {
        assert_eq!(Identity::compare(Some(PEER), Some(PEER)), Identity::Proven);
        assert_eq!(Identity::compare(Some(PEER), Some(swapped(PEER))), Identity::Proven);
    }

    #[test]
    fn another_uuid_is_another_machine() {
        let other = SystemUuid([9; 16]);
        assert_eq!(Identity::compare(Some(PEER), Some(other)), Identity::Foreign);
    }

    #[test]
    fn a_uuid_that_firmware_never_set_proves_nothing_and_denies_nothing() {
        for unset in [[0; 16], [0xff; 16]] {
            assert_eq!(Identity::compare(Some(PEER), Some(SystemUuid(unset))), Identity::Unknown);
            assert_eq!(Identity::compare(Some(SystemUuid(unset)), Some(PEER)), Identity::Unknown);
        }
        assert_eq!(Identity::compare(None, Some(PEER)), Identity::Unknown);
    }

    #[test]
    fn what_was_never_heard_is_not_forgotten_for_zeros() {
        let known = Identities::default();
        known.learn(1, PEER);
        known.learn(1, SystemUuid([0; 16]));
        assert_eq!((known.of(0), known.of(1)), (None, Some(PEER)));
    }
}
