//! Grants to the primary, watches it, and takes over: by proof, never by the clock.

use super::detector::Presence;
use super::io::{Event, Hindrance, Output};
use super::lease;
use super::message::{Datagram, Role, Standing};
use super::mutant::{self, Mutant};
use super::node::{Node, RoleState};
use super::proof::Proof;
use super::record::ProofKind;
use super::takeover::TakingOver;
use super::time::{Instant, Timer};

#[derive(Debug, Clone, Hash, Default)]
pub struct Standby {
    /// A frozen primary has been heard since this node froze: from then on, a primary that is not frozen means thaw.
    freeze_shared: bool,
}

impl Node {
    pub(super) fn become_standby(&mut self, now: Instant) {
        self.role = RoleState::Standby(Standby::default());
        self.right_until = None;
        self.told_waiting = None;
        self.withdraw_claim();
        if let Some(since) = &mut self.stopping {
            *since = now;
        }
        self.again = true;
        self.send_now = true;
        self.report(Event::BecameStandby { standing: self.standing() });
    }

    pub(super) fn step_standby(&mut self, now: Instant) {
        self.heed_freeze();
        self.keep_out();
        if self.leaving() {
            return self.step_leaving(now);
        }
        if self.use_proof_in_hand(now) {
            return;
        }
        match self.hears().copied() {
            Some(said) if said.holding => self.stand_by(&said),
            Some(said) => self.meet(&said, now),
            None => {}
        }
        if matches!(self.role, RoleState::Standby(_)) {
            self.watch(now);
        }
    }

    /// A proof that came while this node was a standby, or before (a former primary's late fence).
    fn use_proof_in_hand(&mut self, now: Instant) -> bool {
        let Some(proof) = self.fencing.proof() else { return false };
        if proof.kind() != ProofKind::Confirmed
            && let Some(because) = self.fence_hindrance()
        {
            self.wait_for(because);
            return false;
        }
        self.become_taking_over(TakingOver::attempting(), now);
        true
    }

    /// An unready, frozen or leaving standby writes `Out` before it says so.
    fn keep_out(&mut self) {
        let unfit = !self.is_ready || self.frozen() || self.leaving();
        if unfit && self.record.wanted().standing == Standing::Paired {
            self.want_standing(Standing::Out);
        }
    }

    /// The primary is in contact: freeze and thaw with it, and become `Paired` when it says so.
    fn stand_by(&mut self, said: &Datagram) {
        self.cannot = None;
        let named = said.role == Role::Primary
            && said.standing == Standing::Paired
            && said.admitted == Some(self.identity.incarnation);
        if named && self.wish_is_known() && self.is_ready && !self.frozen() {
            self.want_standing(Standing::Paired);
            self.named = true;
        }
    }

    /// The peer's datagram echoes one in which this node asked.
    fn wish_is_known(&self) -> bool {
        let known = self.peer.accepted().zip(self.wish_since).is_some_and(|(a, since)| a.echo_seq >= since);
        known || mutant::on(Mutant::OldAdmissionCounts)
    }

    fn heed_freeze(&mut self) {
        let Some(said) = self.hears().copied().filter(|d| d.holding && d.role == Role::Primary) else { return };
        let frozen = self.record.wanted().frozen;
        if said.notices.freeze {
            if !frozen {
                self.freeze();
            }
            if let RoleState::Standby(standby) = &mut self.role {
                standby.freeze_shared = true;
            }
            return;
        }
        let answered = self.thaw_asked && self.wish_is_known();
        let RoleState::Standby(standby) = &self.role else { return };
        if frozen && (standby.freeze_shared || answered) && said.standing == Standing::Paired {
            self.thaw();
        }
    }

    /// A standby freezes: `Out` and `frozen` in one write.
    pub(super) fn freeze(&mut self) {
        self.want_standing(Standing::Out);
        self.record.change(|r| r.frozen = true);
        if let RoleState::Standby(standby) = &mut self.role {
            standby.freeze_shared = false;
        }
        self.report(Event::Frozen);
    }

    pub(super) fn thaw(&mut self) {
        self.thaw_asked = false;
        self.record.change(|r| r.frozen = false);
        self.report(Event::Thawed);
    }

    /// The peer is in contact and holds nothing: a release, a reboot, or two that must settle.
    fn meet(&mut self, said: &Datagram, now: Instant) {
        if let Some(proof) = Proof::from_release(said, self.record.written()) {
            return self.use_release(said, proof, now);
        }
        let rebooted = Proof::from_reboot(said, self.record.written());
        match rebooted.filter(|_| self.standing() == Standing::Paired && self.start_hindrance().is_none()) {
            Some(proof) => self.start_beside_living_peer(proof, now),
            None => self.settle(now),
        }
    }

    fn use_release(&mut self, said: &Datagram, proof: Proof, now: Instant) {
        match self.start_hindrance() {
            None => self.start_beside_living_peer(proof, now),
            Some(because) => self.refuse_release(said, because),
        }
    }

    /// This node cannot use the release: it says so, and both settle.
    fn refuse_release(&mut self, said: &Datagram, because: Hindrance) {
        if self.cannot != said.release {
            self.cannot = said.release;
            self.send_now = true;
            if let Some(token) = said.release {
                self.report(Event::CannotPromote { token, because });
            }
        }
    }

    fn start_beside_living_peer(&mut self, proof: Proof, now: Instant) {
        let Some(accepted) = self.peer.accepted() else { return };
        let until = lease::right_by_contact(accepted.echo_sent, &self.settings);
        // After a start that failed by its take or its access, not in the same breath again.
        if let Some(at) = self.fencing.retry_at().filter(|at| now < *at) {
            return self.wake(Timer::Retry, at, now);
        }
        if now < until {
            self.report(Event::ProofObtained { proof: proof.kind() });
            self.right_until = Some(until);
            self.become_proven(proof, now);
        }
    }

    /// Silence: at D/2 ask for status, after D (and the head start) take over.
    fn watch(&mut self, now: Instant) {
        let since = self.detector.silent_since();
        match self.presence {
            Presence::Present => self.timers.set(Timer::Doubt, since.after(self.settings.dead_after.half())),
            Presence::Doubtful => {
                self.wake(Timer::Lost, since.after(self.settings.dead_after), now);
                self.probe_if_useful();
            }
            Presence::Lost => self.step_lost(now),
        }
    }

    fn probe_if_useful(&mut self) {
        if self.fence_hindrance().is_none() {
            self.probe(false);
        }
    }

    fn step_lost(&mut self, now: Instant) {
        let due = self.turn_to_shoot();
        if now < due {
            self.probe_if_useful();
            return self.wake(Timer::Lost, due, now);
        }
        match self.shoot_hindrance() {
            Some(because) => self.wait_for(because),
            // One that started alone, by a peer that read off, and failed: it still may not shoot.
            None if self.may_only_look() => self.wait_for_power_off(now),
            None => self.become_taking_over(TakingOver::attempting(), now),
        }
    }

    /// Clean stop of a standby: `Out`, then leave until the primary knows, but not for ever.
    fn step_leaving(&mut self, now: Instant) {
        let Some(since) = self.stopping else { return };
        let acknowledged = self.hears().is_some_and(|d| d.holding && d.standing == Standing::Sole)
            && self.peer.accepted().zip(self.leave_since).is_some_and(|(a, s)| a.echo_seq >= s);
        let deadline = since.after(self.settings.leave_timeout);
        let alone =
            !self.in_contact() && (self.leave_since.is_some() || self.record.written().standing != Standing::Paired);
        if acknowledged {
            self.report(Event::LeaveAcknowledged);
            self.finish();
        } else if now >= deadline || alone {
            self.report(Event::LeaveUnacknowledged);
            self.finish();
        } else {
            self.wake(Timer::LeaveTimeout, deadline, now);
            self.wake(Timer::Lost, self.detector.silent_since().after(self.settings.dead_after), now);
        }
    }

    pub(super) fn finish(&mut self) {
        if !self.finished {
            self.finished = true;
            self.out(Output::Finished);
        }
    }

    /// A standby that could serve asks its primary to be admitted, until it is.
    pub(super) fn wishes_admission(&self) -> bool {
        let is_standby = matches!(self.role, RoleState::Standby(_));
        // Until `Paired` is durable, `Out` without the wish would say that this node stands aside: the primary would
        // write `Sole` beside a standby that is about to be `Paired`.
        let on_the_way =
            self.record.wanted().standing == Standing::Paired && self.record.written().standing != Standing::Paired;
        let fit = self.is_ready && !self.leaving() && (!self.frozen() || self.thaw_asked);
        let Some(said) = self.hears().filter(|d| d.holding && d.role == Role::Primary) else {
            return is_standby && fit && on_the_way;
        };
        let admitted = said.admitted == Some(self.identity.incarnation)
            && self.record.written().standing == Standing::Paired
            && self.named;
        is_standby && fit && !admitted
    }

    /// Readiness is shown false only when `Out` is written; or never can be.
    pub(super) fn shows_ready(&self) -> bool {
        let paired = self.record.written().standing == Standing::Paired;
        let shown = self.is_ready || paired && matches!(self.role, RoleState::Standby(_));
        shown && !self.record.failed()
    }
}
