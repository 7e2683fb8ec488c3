//! What a node knows for good (protocol section 4), and which part of it is on the disk yet.

use super::ids::{AgentSet, BootId, Token};
use super::message::Standing;
use super::time::Span;

/// The kind of proof by which a token was held: written with it, reported with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProofKind {
    Fenced,
    Released,
    Rebooted,
    Confirmed,
    Agreed,
}

/// The durable record of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// The highest token seen, minted ones included.
    pub highest_token: Token,
    /// The token of the last grant given; written before the first grant for it.
    pub granted_token: Token,
    /// The boot of the peer to which `granted_token` was granted.
    pub granted_boot: Option<BootId>,
    /// The token last held here.
    pub held_token: Token,
    /// The proof by which `held_token` was held.
    pub held_proof: Option<ProofKind>,
    /// The highest token that the peer ever announced.
    pub peer_highest: Token,
    /// The longest T ever promised.
    pub longest_term: Span,
    pub standing: Standing,
    /// Shoots and starts nothing until thaw or `Confirmed` (unless it was the primary).
    pub frozen: bool,
    /// This record is older than what its node once announced: no promotion by fence until an operator clears it.
    pub rolled_back: bool,
    /// The boot of the peer that the last verified fence named, and the agents that verified it.
    pub fenced_boot: Option<BootId>,
    pub fenced_by: AgentSet,
    /// Agents caught in a lie: they prove nothing until an operator clears them.
    pub distrusted: AgentSet,
}

impl Record {
    /// The record of a node that never had one: `Out`, and promoting nothing before contact or `init`.
    pub fn missing() -> Record {
        Record {
            highest_token: Token::NONE,
            granted_token: Token::NONE,
            granted_boot: None,
            held_token: Token::NONE,
            held_proof: None,
            peer_highest: Token::NONE,
            longest_term: Span::ZERO,
            standing: Standing::Out,
            frozen: false,
            rolled_back: false,
            fenced_boot: None,
            fenced_by: AgentSet::EMPTY,
            distrusted: AgentSet::EMPTY,
        }
    }

    /// Whether this node acted for the service after it last granted to the other one.
    pub fn was_primary(&self) -> bool {
        self.held_token > self.granted_token
    }
}
