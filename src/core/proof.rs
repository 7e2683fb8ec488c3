//! The five proofs (protocol section 1). Nothing else promotes, and there is no other way to make one:
//! promotion takes a [`Proof`] by value.

use super::ids::{AgentSet, Token};
use super::io::{FenceResult, PowerReading, Scope, Seen};
use super::message::{Activity, Datagram, Grant};
use super::mutant::{self, Mutant};
use super::record::{ProofKind, Record};
use super::settings::{Plan, PromoteAfter, Settings};

/// That the peer cannot act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Proof {
    inner: Inner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Inner {
    Fenced { scope: Scope, by: AgentSet },
    Released,
    Rebooted,
    Confirmed,
    Agreed { token: Token },
}

impl Proof {
    /// `Fenced`, by a plan that succeeded and was verified. A plan with agents of node scope proves by node scope only.
    pub fn from_fence(plan: Plan, result: FenceResult) -> Option<Proof> {
        let (scope, verified_by) = match result {
            FenceResult::Confirmed { scope, verified_by } => (scope, verified_by),
            FenceResult::Unknown if mutant::on(Mutant::UnknownPromotes) => (Scope::Node, AgentSet::EMPTY),
            FenceResult::Unknown | FenceResult::Refused { .. } => return None,
        };
        let enough = match plan {
            Plan::Node { .. } => scope == Scope::Node || mutant::on(Mutant::ResourceScopeIsEnough),
            Plan::Exclusive | Plan::Yielding => true,
            Plan::ConfirmOnly => false,
        };
        enough.then_some(Proof { inner: Inner::Fenced { scope, by: verified_by } })
    }

    /// `Fenced`, by a status that reads off on every outlet and supply.
    pub fn from_probe(plan: Plan, reading: PowerReading) -> Option<Proof> {
        let PowerReading::Off { verified_by } = reading else { return None };
        plan.reads_power().then_some(Proof { inner: Inner::Fenced { scope: Scope::Node, by: verified_by } })
    }

    /// `Released`: of the token of my last grant, nothing up, no claim.
    pub fn from_release(said: &Datagram, mine: &Record) -> Option<Proof> {
        let token = said.release?;
        let of_my_grant = token == mine.granted_token || mutant::on(Mutant::AnyReleaseCounts);
        let counts = of_my_grant && token != Token::NONE && holds_nothing(said);
        counts.then_some(Proof { inner: Inner::Released })
    }

    /// `Rebooted`: a boot other than that of my last grant, which holds, claims and attempts nothing.
    pub fn from_reboot(said: &Datagram, mine: &Record) -> Option<Proof> {
        let granted = mine.granted_boot.filter(|_| mine.granted_token > mine.held_token)?;
        let counts = said.boot != granted && holds_nothing(said);
        counts.then_some(Proof { inner: Inner::Rebooted })
    }

    /// `Confirmed`: the caller has checked the incident.
    pub fn from_operator() -> Proof {
        Proof { inner: Inner::Confirmed }
    }

    /// `Agreed`: the peer, holding nothing, granted this claim.
    pub fn from_grant(said: &Datagram, grant: &Grant, claim: Token) -> Option<Proof> {
        let nothing = !said.holding && !said.resources_up && said.activity == Activity::Idle;
        (grant.token == claim && nothing).then_some(Proof { inner: Inner::Agreed { token: claim } })
    }

    pub fn kind(&self) -> ProofKind {
        match self.inner {
            Inner::Fenced { .. } => ProofKind::Fenced,
            Inner::Released => ProofKind::Released,
            Inner::Rebooted => ProofKind::Rebooted,
            Inner::Confirmed => ProofKind::Confirmed,
            Inner::Agreed { .. } => ProofKind::Agreed,
        }
    }

    /// The token that the peer granted already.
    pub fn granted(&self) -> Option<Token> {
        match self.inner {
            Inner::Agreed { token } => Some(token),
            Inner::Fenced { .. } | Inner::Released | Inner::Rebooted | Inner::Confirmed => None,
        }
    }

    /// Contact voids what was proven of a peer that was out of sight.
    pub fn is_voided_by_contact(&self) -> bool {
        self.is_of_silent_peer()
    }

    /// The peer is not there to grant: the start leads to `Sole`.
    pub fn is_of_silent_peer(&self) -> bool {
        matches!(self.inner, Inner::Fenced { .. } | Inner::Confirmed)
    }

    /// The start has to wait until the peer's lease has ended.
    pub fn waits_for_lease(&self, settings: &Settings) -> bool {
        if mutant::on(Mutant::NoWaitForLease) {
            return false;
        }
        match self.inner {
            Inner::Fenced { scope: Scope::Node, .. } => settings.promote_after == PromoteAfter::FenceAndLease,
            Inner::Fenced { scope: Scope::Resource, .. } | Inner::Confirmed => true,
            Inner::Released | Inner::Rebooted | Inner::Agreed { .. } => false,
        }
    }

    /// The agents that verified a fence.
    pub fn verified_by(&self) -> AgentSet {
        match self.inner {
            Inner::Fenced { scope: Scope::Node, by } => by,
            // After a fence of resource scope the peer still runs, and may truly say that it is primary.
            Inner::Fenced { scope: Scope::Resource, .. } => AgentSet::EMPTY,
            Inner::Released | Inner::Rebooted | Inner::Confirmed | Inner::Agreed { .. } => AgentSet::EMPTY,
        }
    }

    /// The `seen` of the take of a start by this proof (protocol section 1, exclusive).
    pub fn seen(&self, said: Option<&Datagram>, mine: &Record) -> Seen {
        match self.inner {
            Inner::Released | Inner::Rebooted | Inner::Agreed { .. } => {
                Seen::AtMost(said.map_or(Token::NONE, |d| d.highest_token))
            }
            Inner::Confirmed | Inner::Fenced { scope: Scope::Node, .. } => Seen::Whatever,
            Inner::Fenced { scope: Scope::Resource, .. } => seen_by_record(mine),
        }
    }
}

/// The `seen` of an attempt: a standby's last grant, or a (former) primary's last accepted token.
pub fn seen_by_record(mine: &Record) -> Seen {
    Seen::AtMost(if mine.was_primary() { mine.held_token } else { mine.granted_token })
}

/// The peer holds nothing, claims nothing and has no attempt or proof.
fn holds_nothing(said: &Datagram) -> bool {
    !said.holding && !said.resources_up && said.claim.is_none() && said.activity == Activity::Idle
}
