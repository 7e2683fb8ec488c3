//! Who, which life, which promotion: newtypes, so that a sequence is never taken for a token.

use std::fmt;

/// One of the two nodes, by its place in the configuration (protocol section 3: the first mints even tokens).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeId {
    First,
    Second,
}

impl NodeId {
    /// The node that this one is paired with.
    pub const fn peer(self) -> NodeId {
        match self {
            NodeId::First => NodeId::Second,
            NodeId::Second => NodeId::First,
        }
    }

    /// 0 for the first node of the configuration, 1 for the second.
    pub const fn index(self) -> usize {
        match self {
            NodeId::First => 0,
            NodeId::Second => 1,
        }
    }
}

/// A fencing token. Zero means "none yet"; a minted token is at least 2 (protocol section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token(pub u64);

impl Token {
    pub const NONE: Token = Token(0);

    /// The lowest token of `minter` above everything in `seen`, or `None` when the numbers are used up.
    ///
    /// The first node mints even tokens, the second odd ones: no two promotions share a token.
    pub fn mint_above(minter: NodeId, seen: Token) -> Option<Token> {
        let next = seen.0.max(1).checked_add(1)?;
        let parity = minter.index() as u64;
        if next % 2 == parity { Some(Token(next)) } else { next.checked_add(1).map(Token) }
    }

    /// The node that minted this token; `None` for [`Token::NONE`].
    pub fn minter(self) -> Option<NodeId> {
        match (self, self.0 % 2) {
            (Token::NONE, _) => None,
            (_, 0) => Some(NodeId::First),
            (_, _) => Some(NodeId::Second),
        }
    }
}

/// One life of a daemon: random at each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// One life of a machine: the kernel's `/proc/sys/kernel/random/boot_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(pub [u8; 16]);

/// The machine's SMBIOS system UUID, as `/sys/class/dmi/id/product_uuid` prints it; all zero when unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SystemUuid(pub [u8; 16]);

/// Number of a datagram within one incarnation, rising by one with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Seq(pub u64);

/// Digest of the safety-relevant configuration: equal on both nodes or nobody takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest(pub [u8; 16]);

/// Set of fence agents, one bit each, by their place in the plan's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AgentSet(pub u32);

impl AgentSet {
    pub const EMPTY: AgentSet = AgentSet(0);

    pub fn union(self, other: AgentSet) -> AgentSet {
        AgentSet(self.0 | other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, index: usize) -> bool {
        index < 32 && self.0 & (1 << index) != 0
    }

    /// The set with the agent of this index; indices above 31 are refused by the configuration.
    pub fn with(self, index: usize) -> AgentSet {
        assert!(index < 32, "the configuration allows at most 32 agents");
        AgentSet(self.0 | 1 << index)
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            NodeId::First => "first",
            NodeId::Second => "second",
        })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0[..4])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Display for SystemUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_mints_even_the_second_odd_each_above_all_seen() {
        for seen in 0..50 {
            let even = Token::mint_above(NodeId::First, Token(seen)).unwrap();
            let odd = Token::mint_above(NodeId::Second, Token(seen)).unwrap();
            assert!(even.0 > seen && even.0.is_multiple_of(2) && even.minter() == Some(NodeId::First));
            assert!(odd.0 > seen && odd.0 % 2 == 1 && odd.minter() == Some(NodeId::Second));
        }
    }

    #[test]
    fn used_up_tokens_are_none_not_zero() {
        assert_eq!(Token::mint_above(NodeId::First, Token(u64::MAX)), None);
        assert_eq!(Token::mint_above(NodeId::First, Token(u64::MAX - 1)), None);
    }
}
