//! A reservation key that says whose it is, and under which token it was made.
//!
//! ```text
//!   63        52 51        40 39                                    0
//!  ┌────────────┬────────────┬───────────────────────────────────────┐
//!  │ 0x1ea      │ node       │ token                                 │
//!  └────────────┴────────────┴───────────────────────────────────────┘
//! ```
//!
//! In hexadecimal, as `sg_persist` prints it, these are three digits, three digits and ten digits. `node` is the
//! beginning of the SHA-256 of the node's name, so that two pairs that reach the same disk by mistake see strangers in
//! each other's keys. The token is that of protocol section 3; its lowest bit says the node once more.

use sha2::{Digest, Sha256};

use crate::core::Token;

/// Tells a key of ours from that of another program. Zero is no key at all (SPC-4, 5.12.7), so this is not zero.
const MAGIC: u64 = 0x1ea;
const NODE_BITS: u32 = 12;
/// 2^40 tokens: at one promotion a second, 34,000 years. A larger one is refused, never cut.
const TOKEN_BITS: u32 = 40;

/// A node as its keys name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTag(u16);

impl NodeTag {
    pub fn of(name: &str) -> NodeTag {
        let hash = Sha256::digest(name.as_bytes());
        NodeTag((u16::from(hash[0]) << 8 | u16::from(hash[1])) >> (16 - NODE_BITS))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub node: NodeTag,
    pub token: Token,
}

impl Key {
    /// `None` for a token that does not fit, and for none at all.
    pub fn new(node: NodeTag, token: Token) -> Option<Key> {
        (token != Token::NONE && token.0 >> TOKEN_BITS == 0).then_some(Key { node, token })
    }

    /// `None` for the key of another program.
    pub fn read(raw: u64) -> Option<Key> {
        let node = NodeTag((raw >> TOKEN_BITS & ((1 << NODE_BITS) - 1)) as u16);
        let token = Token(raw & ((1 << TOKEN_BITS) - 1));
        (raw >> (TOKEN_BITS + NODE_BITS) == MAGIC).then_some(Key { node, token })
    }

    pub fn raw(self) -> u64 {
        MAGIC << (TOKEN_BITS + NODE_BITS) | u64::from(self.node.0) << TOKEN_BITS | self.token.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_made() {
        let heron = NodeTag::of("heron");
        for token in [1, 7, (1 << TOKEN_BITS) - 1] {
            let key = Key::new(heron, Token(token)).unwrap();
            assert_eq!(Key::read(key.raw()), Some(key));
            assert!(format!("{:x}", key.raw()).starts_with("1ea"), "{key:?}");
        }
        assert_ne!(heron, NodeTag::of("plover"));
    }

    #[test]
    fn a_token_that_does_not_fit_makes_no_key() {
        for token in [0, 1 << TOKEN_BITS, u64::MAX] {
            assert_eq!(Key::new(NodeTag::of("heron"), Token(token)), None);
        }
    }

    #[test]
    fn keys_of_other_programs_are_strangers() {
        for raw in [0, 0xa1, 0x1234_0000_0000_0001, u64::MAX] {
            assert_eq!(Key::read(raw), None, "{raw:x}");
        }
    }
}
