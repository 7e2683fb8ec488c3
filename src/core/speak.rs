//! What this node says: one datagram of durable facts, and the grant that it may carry.

use super::ids::{Seq, Token};
use super::io::Output;
use super::message::{Activity, Datagram, Grant, Notices, Role, Standing};
use super::mutant::{self, Mutant};
use super::node::{Node, Resources, RoleState};
use super::time::Instant;

impl Node {
    pub(super) fn send(&mut self, now: Instant) {
        if self.taking_back || self.finished {
            return;
        }
        let seq = self.peer.sending(now, self.settings.dead_after);
        let datagram = self.datagram(seq);
        self.note_sent(&datagram);
        self.outputs.push_back(Output::Send(datagram));
    }

    /// What this node shows: durable facts, and decisions that need none.
    fn datagram(&self, seq: Seq) -> Datagram {
        let written = self.record.written();
        Datagram {
            sender: self.settings.me,
            incarnation: self.identity.incarnation,
            boot: self.identity.boot,
            seq,
            role: self.role(),
            claim: self.shown_claim(),
            highest_token: written.highest_token,
            held_token: written.held_token,
            holding: self.holding(),
            resources_up: self.resources != Resources::Stopped,
            standing: written.standing,
            admitted: self.admitted(),
            wish: self.wishes_admission(),
            ready: self.shows_ready(),
            activity: self.shown_activity(),
            echo: self.peer.echo(),
            grant: self.grant(),
            release: self.release.map(|r| r.token),
            notices: self.notices(),
            digest: self.settings.digest,
            uuid: self.identity.uuid,
        }
    }

    fn notices(&self) -> Notices {
        let is_out = self.record.written().standing == Standing::Out;
        Notices {
            leave: self.leaving() && is_out,
            freeze: self.record.written().frozen || self.freeze_asked,
            cannot: self.cannot,
            rolled_back: self.peer_record_is_old,
            cannot_fence: self.cannot_fence,
        }
    }

    /// What depends on having been shown begins with the datagram that shows it.
    fn note_sent(&mut self, sent: &Datagram) {
        let since = |slot: Option<Seq>, shown: bool| if shown { slot.or(Some(sent.seq)) } else { None };
        self.wish_since = since(self.wish_since, sent.wish);
        self.leave_since = since(self.leave_since, sent.notices.leave);
        let idle = !sent.holding && !sent.resources_up && sent.activity == Activity::Idle;
        self.idle_since = since(self.idle_since, idle);
        self.acting_since = since(self.acting_since, sent.holding && sent.role == Role::Primary);
        if let Some(claim) = &mut self.claim {
            claim.since = since(claim.since, sent.claim.is_some());
        }
    }

    pub(super) fn shown_activity(&self) -> Activity {
        match &self.role {
            RoleState::TakingOver(t) if t.has_proof() => Activity::Proof,
            RoleState::Joining(_)
            | RoleState::Standby(_)
            | RoleState::TakingOver(_)
            | RoleState::Primary(_)
            | RoleState::Demoting(_) => self.fencing.activity(),
        }
    }

    /// The grant that this datagram carries: for the newest renewal or claim, if this node may grant at all.
    fn grant(&self) -> Option<Grant> {
        let accepted = self.peer.accepted()?;
        let said = &accepted.datagram;
        let token = self.grantable(said)?;
        let written = self.record.written();
        let durable = written.granted_token == token
            && written.highest_token >= token
            && written.granted_boot == Some(said.boot)
            && written.longest_term >= self.settings.term
            && written.standing != Standing::Sole;
        let holder = said.incarnation;
        let leaves = durable || mutant::on(Mutant::GrantNotDurable);
        leaves.then_some(Grant { holder, token, seq: said.seq, term: self.settings.term })
    }

    /// The token that this node would grant to the sender, were it durable.
    pub(super) fn grantable(&self, said: &Datagram) -> Option<Token> {
        let idle = matches!(self.role, RoleState::Joining(_) | RoleState::Standby(_))
            && self.shown_activity() == Activity::Idle;
        if !idle || self.claim.is_some() && !mutant::on(Mutant::GrantsWhileClaiming) {
            return None;
        }
        if said.holding && matches!(said.role, Role::Primary | Role::TakingOver) {
            // A sole primary needs no grant, and in an exclusive pair its newer token is what protects it (K16).
            if said.standing == Standing::Sole {
                return None;
            }
            let known = self.record.wanted().held_token.max(self.record.wanted().granted_token);
            return (said.held_token >= known).then_some(said.held_token);
        }
        let yields = !self.should_claim() || mutant::on(Mutant::GrantsWhileClaiming);
        said.claim.filter(|_| self.resources == Resources::Stopped && yields)
    }
}
