//! Looks from outside: at what acts, under which tokens, and by which reported proofs (protocol section 8).

use leasehold::core::{Datagram, Event, NodeId, ProofKind, Record, Standing, Token};

/// What was broken, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

/// What the judge has to remember; it belongs to the state.
#[derive(Debug, Clone, Hash, Default)]
pub struct Judge {
    /// The last token under which each node started or went on.
    used: [Token; 2],
    /// The newest promotion that each node reported and has not yet carried out.
    reported: [Option<(Token, ProofKind)>; 2],
    /// The highest token in use that each node was told of.
    told: [Token; 2],
    /// S1 is void: a device lied.
    pub void: bool,
}

impl Judge {
    pub fn report(&mut self, node: NodeId, event: &Event) {
        if let Event::Promoted { proof, token } = *event {
            self.reported[node.index()] = Some((token, proof));
        }
    }

    /// S3 and S4, when the service starts from nothing.
    pub fn start(
        &mut self,
        node: NodeId,
        token: Token,
        proof: ProofKind,
        disk: Option<&Record>,
    ) -> Result<(), Violation> {
        if self.reported[node.index()].take() != Some((token, proof)) {
            return Err(Violation(format!("S4: {node} starts under {token} by {proof:?} and reported no such proof")));
        }
        let durable = disk.is_some_and(|r| r.held_token == token && r.held_proof == Some(proof));
        if !durable {
            return Err(Violation(format!("S4: {node} starts under {token} by {proof:?} without that on its disk")));
        }
        self.use_token(node, token)
    }

    /// S3: a token comes into use.
    pub fn use_token(&mut self, node: NodeId, token: Token) -> Result<(), Violation> {
        let (mine, peers) = (self.used[node.index()], self.used[node.peer().index()]);
        let told = self.told[node.index()];
        if token <= mine || token == peers || token <= told {
            return Err(Violation(format!(
                "S3: {node} uses {token}, it used {mine}, its peer {peers}, and it was told of {told}"
            )));
        }
        self.used[node.index()] = token;
        Ok(())
    }

    /// A node learned that its peer holds this token.
    pub fn tell(&mut self, node: NodeId, said: &Datagram) {
        let told = &mut self.told[node.index()];
        *told = (*told).max(if said.holding { said.held_token } else { Token::NONE });
    }

    /// The node lost what was not on its disk.
    pub fn forget(&mut self, node: NodeId, disk: Option<&Record>) {
        let known = disk.map_or(Token::NONE, |r| r.highest_token);
        self.told[node.index()] = self.told[node.index()].min(known);
    }

    /// Nothing is shown before it is durable.
    pub fn sent(&self, said: &Datagram, disk: Option<&Record>) -> Result<(), Violation> {
        let missing = Record::missing();
        let disk = disk.unwrap_or(&missing);
        let grants = said.grant.is_some_and(|g| g.token != disk.granted_token || disk.standing == Standing::Sole);
        // What a later write has already made worse for the sender may still be shown as it was.
        if said.highest_token > disk.highest_token || said.held_token > disk.held_token || grants {
            return Err(Violation(format!("S5: {} shows what is not durable: {said:?} {disk:?}", said.sender)));
        }
        Ok(())
    }

    /// S1; after a lie only S2, which holds of those starts that waited for a lease: the others are excused.
    pub fn both_act(&self, excused: bool) -> Result<(), Violation> {
        if excused { Ok(()) } else { Err(Violation(String::from("S1: the service acts on both nodes"))) }
    }
}
