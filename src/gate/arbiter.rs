//! The rule: who may take, what is stored when, and what must be read before anything is called taken.

use std::time::Duration;

use super::config::{Gate, Gates};
use super::protocol::{Answer, NodeAccess, Op, Request, Verdict};
use super::store::{Lock, Phase, Record, Store, StoreError};
use super::{Access, Backend};
use crate::core::{NodeId, Seen, Take, Token};

/// How long a call waits for another one's lock, where the one who asks does not say how long it will wait itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Answers one question about one of `gates`; `backend` makes the gate's server.
pub async fn answer(gates: &Gates, request: &Request, backend: impl Fn(&Gate) -> Box<dyn Backend>) -> Answer {
    let Some(gate) = gates.gate(&request.gate) else {
        let known = gates.gates.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(", ");
        return Answer::to(request, Verdict::Error, format!("no gate {:?} here; there are: {known}", request.gate));
    };
    let backend = backend(gate);
    let call = Call { gate, request, backend: backend.as_ref() };
    let done = match request.op {
        Op::Take => call.take(&gates.state).await,
        Op::Release => call.release(&gates.state).await,
        Op::Status | Op::Highest => call.look(&gates.state).await,
    };
    done.unwrap_or_else(|error| Answer::to(request, Verdict::Error, error.to_string()))
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{op:?} needs `{key}`")]
    Lacks { op: Op, key: &'static str },
    #[error("no node {name:?} in gate {gate:?}, which is for {nodes}; names are those of leasehold.toml")]
    Stranger { name: String, gate: String, nodes: String },
    #[error(
        "token {token} is not one that {node} mints (the first node even ones, the second odd ones): write the nodes \
         in gate.toml in the order of leasehold.toml"
    )]
    NotMinted { token: Token, node: String },
}

/// What the stored token says to a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ruling {
    /// New: it is stored first of all.
    Granted,
    /// This very take, made before: whatever it left undone is done.
    Repeated,
    Refused,
}

/// Protocol section 1: succeeds if and only if `new` is above the stored token, and that is at most `seen` or was
/// minted by the caller's node.
fn rule(record: Record, caller: NodeId, take: Take) -> Ruling {
    let stored = record.highest;
    if take.new == stored && record.owner == Some(caller) {
        return Ruling::Repeated;
    }
    let known = match take.seen {
        Seen::AtMost(seen) => stored <= seen,
        Seen::Whatever => true,
    };
    let own = stored.minter() == Some(caller);
    if take.new > stored && (known || own) { Ruling::Granted } else { Ruling::Refused }
}

#[derive(Debug)]
struct Call<'a> {
    gate: &'a Gate,
    request: &'a Request,
    backend: &'a dyn Backend,
}

impl Call<'_> {
    async fn take(&self, state: &std::path::Path) -> Result<Answer, CallError> {
        let (caller, new) = self.caller()?;
        let seen = self.request.seen.map_or(Seen::Whatever, |seen| Seen::AtMost(Token(seen)));
        let mut store = Store::open(state, self.gate, Lock::Exclusive, self.patience()).await?;
        match rule(store.record(), caller, Take { new, seen }) {
            Ruling::Granted => store.write(Record { highest: new, owner: Some(caller), phase: Phase::Taking })?,
            Ruling::Repeated => {}
            Ruling::Refused => return Ok(self.refuse(&mut store, new).await),
        }
        Ok(self.finish(&mut store, caller).await)
    }

    /// Says no, after doing what the owner's take left undone: a gate that died in the middle leaves nobody between.
    async fn refuse(&self, store: &mut Store, new: Token) -> Answer {
        if let (Phase::Taking, Some(owner)) = (store.record().phase, store.record().owner) {
            self.finish(store, owner).await;
        }
        let highest = store.record().highest;
        let text = format!("refused: token {new} does not follow the stored token {highest}");
        self.recorded(store, Answer::to(self.request, Verdict::Refused, text))
    }

    /// Locks the peer out, lets the owner in, reads both back, and only then says so.
    async fn finish(&self, store: &mut Store, owner: NodeId) -> Answer {
        let (me, peer) = (self.gate.node(owner), self.gate.node(owner.peer()));
        let mut troubles = Vec::new();
        troubles.extend(self.backend.revoke(peer).await.err().map(|e| format!("revoking {}: {e}", peer.name)));
        let mut seen_peer = self.backend.access(peer).await;
        let mut seen_me = Access::Unknown("not tried: first the peer must be out".to_owned());
        // A revocation that failed may not outlive the next boot, whatever is read now.
        if seen_peer == Access::Excluded && troubles.is_empty() {
            troubles.extend(self.backend.restore(me).await.err().map(|e| format!("restoring {}: {e}", me.name)));
            // Read again: what lets one node in may have let in the other as well.
            seen_peer = self.backend.access(peer).await;
            seen_me = self.backend.access(me).await;
        }
        let proven = seen_peer == Access::Excluded && seen_me == Access::Admitted;
        let settled = if proven { self.settle(store, Phase::Held) } else { Ok(()) };
        let (verdict, text) = match (proven, settled) {
            (true, Ok(())) => {
                (Verdict::Taken, format!("taken: {} is in, {} is out, both read back", me.name, peer.name))
            }
            (_, Err(error)) => (Verdict::Unverified, error.to_string()),
            (false, Ok(())) => {
                let doubts = self.doubts(&seen_peer, &seen_me, owner, &troubles);
                (Verdict::Unverified, format!("stored, but not proven: {doubts}"))
            }
        };
        let mut answer = self.recorded(store, Answer::to(self.request, verdict, text));
        answer.access = vec![NodeAccess::new(&me.name, seen_me), NodeAccess::new(&peer.name, seen_peer)];
        answer
    }

    fn settle(&self, store: &mut Store, phase: Phase) -> Result<(), StoreError> {
        let record = store.record();
        if record.phase == phase { Ok(()) } else { store.write(Record { phase, ..record }) }
    }

    fn doubts(&self, peer: &Access, me: &Access, owner: NodeId, troubles: &[String]) -> String {
        let told = |node: NodeId, access: &Access| {
            let name = &self.gate.node(node).name;
            match access {
                Access::Admitted => format!("{name} is in"),
                Access::Excluded => format!("{name} is out"),
                Access::Unknown(why) => format!("{name}: {why}"),
            }
        };
        let both = [told(owner.peer(), peer), told(owner, me)];
        both.into_iter().chain(troubles.iter().cloned()).collect::<Vec<_>>().join("; ")
    }

    /// The owner lets its peer in as well. Only its own stored token shows that it is the owner, still.
    async fn release(&self, state: &std::path::Path) -> Result<Answer, CallError> {
        let (caller, token) = self.caller()?;
        let mut store = Store::open(state, self.gate, Lock::Exclusive, self.patience()).await?;
        let record = store.record();
        if record.owner != Some(caller) || record.highest != token {
            return Ok(self.refuse(&mut store, token).await);
        }
        // Durable first: after a crash the record must not say of a peer that it is out when it may be in.
        self.settle(&mut store, Phase::Shared)?;
        let peer = self.gate.node(caller.peer());
        let trouble = self.backend.restore(peer).await.err().map(|e| format!("restoring {}: {e}; ", peer.name));
        let access = self.backend.access(peer).await;
        let verdict = if access == Access::Admitted { Verdict::Released } else { Verdict::Unverified };
        let text = format!("{}{} was let in, by its peer", trouble.unwrap_or_default(), peer.name);
        let mut answer = self.recorded(&store, Answer::to(self.request, verdict, text));
        answer.access = vec![NodeAccess::new(&peer.name, access)];
        Ok(answer)
    }

    async fn look(&self, state: &std::path::Path) -> Result<Answer, CallError> {
        let store = Store::open(state, self.gate, Lock::Shared, self.patience()).await?;
        let mut answer = self.recorded(&store, Answer::to(self.request, Verdict::Status, ""));
        if self.request.op == Op::Status {
            for node in &self.gate.nodes {
                answer.access.push(NodeAccess::new(&node.name, self.backend.access(node).await));
            }
        }
        Ok(answer)
    }

    fn recorded(&self, store: &Store, answer: Answer) -> Answer {
        let record = store.record();
        Answer {
            highest: Some(record.highest.0),
            owner: record.owner.map(|node| self.gate.node(node).name.clone()),
            phase: Some(record.phase.word().to_owned()),
            ..answer
        }
    }

    /// The node that asks, and a token that it can have minted.
    fn caller(&self) -> Result<(NodeId, Token), CallError> {
        let lacks = |key| CallError::Lacks { op: self.request.op, key };
        let name = self.request.node.as_ref().ok_or_else(|| lacks("node"))?;
        let token = Token(self.request.token.ok_or_else(|| lacks("token"))?);
        let node = self.gate.node_id(name).ok_or_else(|| CallError::Stranger {
            name: name.clone(),
            gate: self.gate.name.clone(),
            nodes: self.gate.node_names().join(" and "),
        })?;
        match self.gate.mints(node, token) {
            true => Ok((node, token)),
            false => Err(CallError::NotMinted { token, node: name.clone() }),
        }
    }

    fn patience(&self) -> Duration {
        self.request.limit_ms.map_or(PATIENCE, |ms| Duration::from_millis(ms).min(PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruling(highest: u64, owner: Option<NodeId>, caller: NodeId, new: u64, seen: Seen) -> Ruling {
        let record = Record { highest: Token(highest), owner, phase: Phase::Held };
        rule(record, caller, Take { new: Token(new), seen })
    }

    #[test]
    fn the_rule_of_protocol_section_1() {
        use NodeId::{First, Second};
        let at_most = |n| Seen::AtMost(Token(n));
        for (highest, owner, caller, new, seen, expected) in [
            (0, None, First, 2, at_most(0), Ruling::Granted),
            (8, Some(First), Second, 9, at_most(8), Ruling::Granted),
            (8, Some(First), Second, 9, at_most(7), Ruling::Refused),
            (8, Some(First), First, 10, at_most(0), Ruling::Granted),
            (9, Some(Second), First, 8, at_most(9), Ruling::Refused),
            (9, Some(Second), First, 8, Seen::Whatever, Ruling::Refused),
            (9, Some(Second), First, 12, Seen::Whatever, Ruling::Granted),
            (8, Some(First), First, 8, at_most(0), Ruling::Repeated),
            (9, Some(Second), First, 10, at_most(8), Ruling::Refused),
            // A record set by hand is nobody's: the same number is no repeat.
            (8, None, First, 8, Seen::Whatever, Ruling::Refused),
        ] {
            let got = ruling(highest, owner, caller, new, seen);
            assert_eq!(got, expected, "stored {highest}, {caller} takes {new} having seen {seen:?}");
        }
    }
}
