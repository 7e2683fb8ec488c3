//! What a datagram does: first whether it counts, then what contact voids, teaches and grants.

use super::detector::Presence;
use super::io::{Event, Output, StopReason};
use super::lease;
use super::message::{Datagram, Grant, Role, Standing};
use super::mutant::{self, Mutant};
use super::node::{Node, RoleState};
use super::peer::Verdict;
use super::proof::Proof;
use super::time::{Instant, Timer};

impl Node {
    pub(super) fn note_datagram(&mut self, datagram: &Datagram, now: Instant) {
        let before = self.peer.said().copied();
        match self.peer.receive(datagram, now, self.settings.dead_after) {
            Verdict::Reflected | Verdict::Replay => {}
            Verdict::Hello => {
                if !mutant::on(Mutant::HelloDoesNotProlong) {
                    self.promise.prolong(now);
                }
                self.answer_hello(now);
            }
            Verdict::Counts { echo_sent } => {
                self.promise.prolong(now);
                // The peer may have thought this node lost, whose own silence was shorter by what was under way (K20).
                if self.detector.presence(now, &self.settings) != Presence::Present {
                    self.doubt_own_access(now);
                }
                self.detector.echoed(if mutant::on(Mutant::SilenceByReceipt) { now } else { echo_sent });
                self.note_contact(datagram, before.as_ref(), now);
            }
        }
    }

    /// A hello is answered at once, so that the next datagram of the peer can count, but not to a flood.
    fn answer_hello(&mut self, now: Instant) {
        let pause = self.settings.interval.minus(self.settings.interval.half().half());
        self.send_now |= self.timers.get(Timer::Heartbeat).is_none_or(|due| due <= now.after(pause));
    }

    fn note_contact(&mut self, said: &Datagram, before: Option<&Datagram>, now: Instant) {
        self.greet(said, before, now);
        self.hear_notices(said, before);
        self.void_by_contact(now);
        self.learn(said, before);
        self.heed_holder(said, now);
        if let Some(grant) = said.grant.filter(|g| g.holder == self.identity.incarnation) {
            self.note_grant(said, &grant, now);
        }
        self.renew_by_state(said);
        self.prepare_grant(said);
    }

    fn greet(&mut self, said: &Datagram, before: Option<&Datagram>, now: Instant) {
        self.recordless = false;
        if !self.had_contact_this_boot {
            self.had_contact_this_boot = true;
            self.out(Output::NoteContact);
        }
        match before {
            None => self.report(Event::ContactMade { peer: said.incarnation, boot: said.boot }),
            Some(old) if old.incarnation != said.incarnation => {
                self.send_now = true;
                self.report(Event::PeerRestarted { peer: said.incarnation, rebooted: old.boot != said.boot });
            }
            Some(_) if self.presence == Presence::Lost => {
                // The peer, which may still be about to shoot, learns it at once.
                self.send_now = true;
                self.report(Event::ContactRegained);
            }
            Some(_) => {}
        }
        self.watch_presence(now);
    }

    /// Tells once what the peer announces.
    fn hear_notices(&mut self, said: &Datagram, before: Option<&Datagram>) {
        let old = before.map(|b| b.notices).unwrap_or_default();
        if said.notices.leave && !old.leave {
            self.report(Event::PeerLeaving);
        }
        if let Some(token) = said.notices.cannot.filter(|_| said.notices.cannot != old.cannot) {
            self.report(Event::HandoverRefusedByPeer { token });
        }
    }

    /// Compares the silence with D/2 and D, and tells each change once.
    pub(super) fn watch_presence(&mut self, now: Instant) {
        let presence = self.detector.presence(now, &self.settings);
        if presence == self.presence {
            return;
        }
        let silence = self.detector.silence(now);
        match presence {
            Presence::Present => self.told_waiting = None,
            Presence::Doubtful if self.presence == Presence::Present => self.report(Event::PeerDoubtful { silence }),
            Presence::Doubtful => {}
            Presence::Lost => {
                self.incident += 1;
                self.report(Event::PeerLost { silence, incident: self.incident });
                self.withdraw_claim();
            }
        }
        self.presence = presence;
    }

    /// Tokens, record age, configuration, alarms.
    fn learn(&mut self, said: &Datagram, before: Option<&Datagram>) {
        self.see_token(said.highest_token.max(said.held_token));
        let once = self.record.wanted().peer_highest;
        let holds_mine = said.holding && said.held_token.minter() == Some(self.settings.me);
        let same_life = before.is_some_and(|b| b.incarnation == said.incarnation);
        let announced = if same_life { said.highest_token } else { self.peer.first_announced() };
        let is_old = announced < once || holds_mine || same_life && self.peer_record_is_old;
        if is_old && !self.peer_record_is_old {
            self.report(Event::PeerRolledBack { announced, once });
        }
        self.peer_record_is_old = is_old;
        self.record.change(|r| r.peer_highest = r.peer_highest.max(said.highest_token));
        let was_told = same_life && before.is_some_and(|b| b.notices.rolled_back);
        if said.notices.rolled_back && !was_told && !self.record.wanted().rolled_back {
            self.record.change(|r| r.rolled_back = true);
            self.report(Event::RolledBack);
        }
        let differs = said.digest != self.settings.digest;
        if differs != self.digest_differs {
            self.digest_differs = differs;
            self.report(if differs { Event::DigestDiffers } else { Event::DigestAgrees });
        }
    }

    /// A peer that holds, or claims: what it means for this node's token, standing and trust in its agents.
    fn heed_holder(&mut self, said: &Datagram, now: Instant) {
        let mine = self.record.written().held_token;
        let both_hold = said.holding && self.holding();
        let goes_on = mutant::on(Mutant::StalePrimaryGoesOn);
        if both_hold && said.held_token >= mine && !goes_on {
            self.become_stale(said, now);
        }
        if both_hold && said.held_token < mine && self.told_stale != Some(said.held_token) {
            self.told_stale = Some(said.held_token);
            self.report(Event::StalePeer { held: said.held_token });
        }
        let is_primary = said.role == Role::Primary && said.holding;
        if said.holding {
            self.withdraw_claim();
        }
        self.heed_lie(said);
        let acting = matches!(self.role, RoleState::Primary(_) | RoleState::TakingOver(_));
        let is_sole_primary = is_primary && said.standing == Standing::Sole;
        let i_am_sole = self.record.wanted().standing == Standing::Sole;
        if !acting
            && !mutant::on(Mutant::PairedBesideSole)
            && (is_sole_primary || i_am_sole && (is_primary || said.claim.is_some()))
        {
            self.want_standing(Standing::Out);
        }
    }

    fn become_stale(&mut self, said: &Datagram, now: Instant) {
        let peer_holds = said.held_token;
        match self.role {
            RoleState::Primary(_) => {
                self.right_until = Some(now);
                self.become_demoting(StopReason::StaleToken { peer_holds }, now);
            }
            RoleState::TakingOver(_) => self.void_proof(now),
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::Demoting(_) => {}
        }
    }

    /// A peer that is heard from the very boot that a verified fence of node scope named: the device lied, whatever
    /// role the peer has by now.
    fn heed_lie(&mut self, said: &Datagram) {
        let record = *self.record.wanted();
        // Of what was sent before the fence, and came late, it says nothing.
        let echo_sent = self.peer.accepted().map(|a| a.echo_sent);
        let is_after = self.fenced_at.is_none_or(|at| echo_sent.is_some_and(|sent| sent >= at));
        if is_after && record.fenced_boot == Some(said.boot) && !record.fenced_by.is_empty() {
            self.report(Event::DeviceLied { boot: said.boot, agents: record.fenced_by });
            self.record.change(|r| {
                r.distrusted = r.distrusted.union(r.fenced_by);
                r.fenced_boot = None;
            });
        }
    }

    /// A grant extends the right of the token that it names, or makes a claim a proof.
    fn note_grant(&mut self, said: &Datagram, grant: &Grant, now: Instant) {
        let Some(sent) = self.peer.sent_at(grant.seq) else { return };
        let sent = if mutant::on(Mutant::RightFromReceipt) { now } else { sent };
        let until = lease::right_by_grant(sent, grant, &self.settings);
        if self.holding() && grant.token == self.record.written().held_token {
            self.extend_right(until);
        } else if let Some(claim) = self.claim.filter(|c| c.since.is_some_and(|s| s <= grant.seq))
            && let Some(proof) = Proof::from_grant(said, grant, claim.token)
            && until > now
        {
            self.right_until = Some(until);
            self.become_proven(proof, now);
        }
    }

    /// A release that is still shown, or a rebooted peer that still holds nothing, renews the start's lease.
    fn renew_by_state(&mut self, said: &Datagram) {
        let RoleState::TakingOver(taking_over) = &self.role else { return };
        let Some(accepted) = self.peer.accepted() else { return };
        let until = lease::right_by_contact(accepted.echo_sent, &self.settings);
        if taking_over.is_renewed_by(said, &taking_over.former_record(self.record.written())) {
            self.extend_right(until);
        }
    }

    /// Duplicate, old or reordered grants extend nothing.
    fn extend_right(&mut self, until: Instant) {
        if self.acts_sole() || self.right_until.is_some_and(|r| until <= r) {
            return;
        }
        self.right_until = Some(until);
        if let RoleState::Primary(_) = self.role {
            let token = self.record.written().held_token;
            self.out(Output::ArmLease { deadline: until, token, sole: false });
        }
    }

    /// What a grant to the sender relies on becomes durable; the answer leaves at once.
    pub(super) fn prepare_grant(&mut self, said: &Datagram) {
        let Some(token) = self.grantable(said) else { return };
        if !mutant::on(Mutant::ReleaseStays) {
            self.withdraw_release();
        }
        let boot = Some(said.boot);
        let record = self.record.wanted();
        if record.granted_token != token || record.granted_boot != boot {
            self.report(Event::GrantedFirst { token });
            self.record.change(|r| {
                r.highest_token = r.highest_token.max(token);
                r.granted_token = token;
                r.granted_boot = boot;
            });
        }
        self.send_now = true;
    }
}
