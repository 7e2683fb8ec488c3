//! Probes and fence attempts: launched at a silent peer, voided by contact, answered with a proof or not.

use super::ids::Token;
use super::io::{Event, FenceResult, Hindrance, Job, Output, PowerReading, StopReason, Take};
use super::message::{Activity, Standing};
use super::mutant::{self, Mutant};
use super::node::{Node, RoleState};
use super::proof::{self, Proof};
use super::settings::{DataModel, FirstShooter, Plan};
use super::time::{Instant, Span};

/// One fence attempt under way.
#[derive(Debug, Clone, Copy, Hash)]
pub struct Attempt {
    job: Job,
    started: Instant,
    by_operator: bool,
    /// There was contact since it was launched: it proves nothing any more.
    voided: bool,
}

/// Everything launched at the peer, and what came of it.
#[derive(Debug, Clone, Hash, Default)]
pub struct Fencing {
    probe: Option<Job>,
    /// The beginning of the silence in which the last probe was launched: one probe a silence.
    probed: Option<Instant>,
    reading: Option<PowerReading>,
    attempt: Option<Attempt>,
    /// An operator's order waits for its token to be durable.
    ordered: bool,
    /// The token minted for the attempts of this silence (exclusive plans): retries reuse it.
    minted: Option<Token>,
    proof: Option<Proof>,
    retry_at: Option<Instant>,
    tries: u32,
    last: Option<FenceResult>,
    told_too_late: bool,
}

impl Fencing {
    pub fn activity(&self) -> Activity {
        match (&self.proof, &self.attempt) {
            (Some(_), _) => Activity::Proof,
            (None, Some(_)) => Activity::Attempt,
            (None, None) => Activity::Idle,
        }
    }

    pub fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    pub fn is_attempting(&self) -> bool {
        self.attempt.is_some()
    }

    /// An attempt is under way, or ordered.
    pub fn is_busy(&self) -> bool {
        self.attempt.is_some() || self.ordered
    }

    pub fn reading(&self) -> Option<PowerReading> {
        self.reading
    }

    pub fn last_result(&self) -> Option<FenceResult> {
        self.last
    }

    pub fn tries(&self) -> u32 {
        self.tries
    }

    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub fn is_by_operator(&self, job: Job) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.job == job && attempt.by_operator)
    }

    /// An attempt of this silence came to nothing, and none has succeeded since.
    pub fn has_failed(&self) -> bool {
        self.tries > 1 || self.tries == 1 && self.retry_at.is_some()
    }

    /// The token that the attempt behind the proof took at the store.
    pub fn taken(&self) -> Option<Token> {
        self.minted
    }

    pub fn take_proof(&mut self) -> Option<Proof> {
        self.proof.take()
    }

    fn forget_silence(&mut self) {
        let Fencing { probed, attempt, ordered, last, .. } = *self;
        let minted = self.minted.filter(|_| ordered);
        *self = Fencing { probed, attempt, ordered, minted, last, ..Fencing::default() };
    }
}

impl Node {
    /// Contact voids every attempt, probe, and every proof of a silent peer (protocol section 6).
    pub(super) fn void_by_contact(&mut self, now: Instant) {
        if mutant::on(Mutant::ContactLeavesProof) {
            return;
        }
        let probe = self.fencing.probe.filter(|_| mutant::on(Mutant::ContactLeavesProbe));
        if let Some(job) = self.fencing.probe.take() {
            self.out(Output::CancelJob(job));
        }
        self.void_attempt(now);
        if let Some(proof) = self.fencing.take_proof() {
            self.report(Event::ProofVoided { proof: proof.kind() });
        }
        self.fencing.forget_silence();
        self.fencing.probe = probe;
        match &self.role {
            RoleState::TakingOver(t) if t.is_voided_by_contact() => self.void_proof(now),
            RoleState::Primary(p) if p.is_going_sole_by_proof() => self.take_back_sole(),
            RoleState::Joining(_)
            | RoleState::Standby(_)
            | RoleState::TakingOver(_)
            | RoleState::Primary(_)
            | RoleState::Demoting(_) => {}
        }
    }

    pub(super) fn void_attempt(&mut self, now: Instant) {
        if self.end_attempt(now) {
            self.report(Event::AttemptVoided);
        } else if let Some(attempt) = &mut self.fencing.attempt {
            attempt.voided = true;
        }
    }

    /// An operator's word stands in for the attempt under way: gone on, it would shoot a peer that was just repaired.
    pub(super) fn confirm_by_operator(&mut self, now: Instant) {
        self.fencing.proof = Some(Proof::from_operator());
        self.call_off_attempt(now);
    }

    pub(super) fn call_off_attempt(&mut self, now: Instant) {
        if self.end_attempt(now) {
            self.report(Event::AttemptCalledOff);
        }
    }

    /// Calls off the attempt under way, unless an operator ordered it and waits for its result.
    fn end_attempt(&mut self, now: Instant) -> bool {
        let Some(attempt) = self.fencing.attempt.take_if(|attempt| !attempt.by_operator) else { return false };
        self.unsettle(now);
        self.out(Output::CancelJob(attempt.job));
        true
    }

    /// An `off` may still land for a while.
    pub(super) fn unsettle(&mut self, now: Instant) {
        self.settle_until = self.settle_until.max(Some(now.after(self.settings.settle)));
    }

    /// Asks for the peer's power, once a silence or again when `again` is due. Never delays an attempt.
    pub(super) fn probe(&mut self, again: bool) {
        let silence = Some(self.detector.silent_since());
        let first = self.fencing.probed != silence;
        let idle = self.fencing.probe.is_none() && !self.fencing.is_attempting() && self.fencing.proof.is_none();
        if !self.settings.plan.reads_power() || !(first || again) || !idle {
            return;
        }
        let job = self.new_job();
        self.fencing.probe = Some(job);
        self.fencing.probed = silence;
        let excluded = self.record.wanted().distrusted;
        // Said once a silence: one that waits for days must not push everything else out of `why`.
        if first {
            self.report(Event::ProbeStarted);
        }
        self.out(Output::StartProbe { job, excluded });
    }

    pub(super) fn note_probe(&mut self, job: Job, reading: PowerReading, now: Instant) {
        if self.fencing.probe != Some(job) {
            return;
        }
        self.fencing.probe = None;
        self.fencing.reading = Some(reading);
        if let Some(proof) = Proof::from_probe(self.settings.plan, reading) {
            self.obtain(proof, now);
        }
    }

    /// The boot that the fence names is kept even if contact voids the proof: then the device may have lied.
    fn obtain(&mut self, proof: Proof, now: Instant) {
        self.fencing.proof = Some(proof);
        self.fenced_at = Some(now);
        let boot = self.peer.said().map(|d| d.boot);
        self.record.change(|r| {
            r.fenced_boot = boot;
            r.fenced_by = proof.verified_by();
        });
        self.fencing.retry_at = None;
        self.report(Event::ProofObtained { proof: proof.kind() });
    }

    /// Launches the next attempt if none is under way and it is due; `deadline` bounds it.
    pub(super) fn attempt(&mut self, now: Instant, deadline: Instant) {
        let waits = self.fencing.retry_at.is_some_and(|at| now < at);
        if self.fencing.is_attempting() || self.fencing.proof.is_some() || waits {
            return;
        }
        let Some((token, take)) = self.attempt_token() else { return };
        self.launch(token, take, deadline, now);
    }

    /// The token that goes with the attempt: for an exclusive plan a minted, durable one; else the highest known.
    fn attempt_token(&mut self) -> Option<(Token, Option<Take>)> {
        if !self.is_exclusive() {
            return Some((self.record.written().highest_token, None));
        }
        let highest = self.record.wanted().highest_token;
        let reusable = self.fencing.minted.filter(|t| *t == highest);
        let token = match reusable {
            Some(token) => token,
            None => self.mint()?,
        };
        self.fencing.minted = Some(token);
        let take = Take { new: token, seen: proof::seen_by_record(self.record.written()) };
        self.is_minted(token).then_some((token, Some(take)))
    }

    fn launch(&mut self, token: Token, take: Option<Take>, deadline: Instant, now: Instant) {
        let by_operator = std::mem::take(&mut self.fencing.ordered);
        let job = self.new_job();
        self.withdraw_release();
        self.withdraw_claim();
        self.fencing.attempt = Some(Attempt { job, started: now, by_operator, voided: false });
        self.fencing.tries += 1;
        self.fencing.retry_at = None;
        if let Some(probe) = self.fencing.probe.take() {
            self.out(Output::CancelJob(probe));
        }
        self.report(Event::AttemptStarted { token, number: self.fencing.tries });
        let excluded = self.record.wanted().distrusted;
        self.out(Output::StartFence { job, token, take, excluded, deadline });
        self.send_now = true;
    }

    pub(super) fn note_fence(&mut self, job: Job, result: FenceResult, now: Instant) {
        let Some(attempt) = self.fencing.attempt.take_if(|a| a.job == job) else { return };
        self.unsettle(now);
        self.fencing.last = Some(result);
        if attempt.by_operator {
            self.report(Event::OperatorFenceDone { result });
            self.note_drill_fence(result, now);
        }
        let proof = Proof::from_fence(self.settings.plan, result).filter(|_| !attempt.voided);
        match proof {
            Some(proof) => self.obtain(proof, now),
            None if attempt.voided => {}
            None => self.note_attempt_failed(attempt, result, now),
        }
    }

    fn note_attempt_failed(&mut self, attempt: Attempt, result: FenceResult, now: Instant) {
        let spread = self.random_up_to(self.settings.head_start);
        let due = attempt.started.after(self.settings.fence_bound).after(spread);
        let retry_at = due.max(now.after(self.settings.interval));
        self.fencing.retry_at = Some(retry_at);
        self.report(Event::AttemptFailed { result, retry_in: retry_at.since(now) });
        if let FenceResult::Refused { highest: Some(highest) } = result {
            self.see_token(highest);
            // A store that has this very token (the answer of an earlier try was lost) wants a higher one.
            self.fencing.minted = self.fencing.minted.filter(|minted| *minted > highest);
            // The store has a newer owner: a primary whose take is refused demotes.
            if self.is_exclusive() && matches!(self.role, RoleState::Primary(_)) {
                self.become_demoting(StopReason::TakeRefused { highest }, now);
            }
        }
    }

    pub(super) fn retry_due(&self, now: Instant) -> bool {
        self.fencing.retry_at.is_none_or(|at| now >= at)
    }

    pub(super) fn retry_after(&mut self, now: Instant, pause: Span) {
        self.fencing.retry_at = Some(now.after(pause));
    }

    /// Says once a silence that a primary's attempt could not end before its lease does.
    pub(super) fn tell_too_late(&mut self, needs: Span, left: Span) {
        if !self.fencing.told_too_late {
            self.fencing.told_too_late = true;
            self.report(Event::AttemptTooLate { needs, left });
        }
    }

    /// An operator's shot: its result is told in any case, and proves something only without contact since.
    pub(super) fn operator_fence(&mut self) -> bool {
        if self.fencing.is_attempting() || self.fencing.ordered {
            return false;
        }
        self.report(Event::OperatorFence);
        self.fencing.ordered = true;
        true
    }

    /// Launches what an operator ordered, as soon as the token that goes with it is durable. A newer token that is already
    /// on its way comes first: the one of the order lies above it.
    pub(super) fn step_order(&mut self, now: Instant) {
        let reminting = matches!(&self.role, RoleState::Primary(p) if p.remint.is_some());
        if self.fencing.ordered
            && !self.fencing.is_attempting()
            && !reminting
            && let Some((token, take)) = self.attempt_token()
        {
            self.launch(token, take, now.after(self.settings.fence_bound), now);
        }
    }

    /// When this node may shoot: after D and the head start. A node whose own loop stood still has not listened
    /// meanwhile: it first gives the peer the time to be heard again.
    pub(super) fn turn_to_shoot(&self) -> Instant {
        let lost = self.detector.silent_since().after(self.settings.dead_after);
        let heard = self.attentive_since.after(self.settings.interval.times(2));
        lost.max(heard).after(self.head_start())
    }

    /// How much longer than D this node waits before it shoots (protocol section 2, L).
    pub(super) fn head_start(&self) -> Span {
        let peer_acts = self.peer.said().is_some_and(|d| d.holding);
        let i_act = matches!(self.role, RoleState::Primary(_));
        let second = match (i_act, peer_acts) {
            (true, _) => self.settings.first_shooter == FirstShooter::Standby,
            (false, true) => self.settings.first_shooter == FirstShooter::Primary,
            // Neither acts: the first in the configuration shoots first.
            (false, false) => self.settings.me.index() == 1,
        };
        if second && !mutant::on(Mutant::NoHeadStart) { self.settings.head_start } else { Span::ZERO }
    }

    /// Why this node must not start at all, if it must not.
    pub(super) fn start_hindrance(&self) -> Option<Hindrance> {
        [
            (self.record.failed(), Hindrance::RecordNotWritable),
            (self.recordless, Hindrance::NoRecordNoContact),
            (self.leaving(), Hindrance::Leaving),
            (self.frozen() && !mutant::on(Mutant::FrozenShoots), Hindrance::Frozen),
            (self.digest_differs, Hindrance::DigestDiffers),
            (!self.is_ready, if self.backoff_until.is_some() { Hindrance::StartFailed } else { Hindrance::NotReady }),
        ]
        .into_iter()
        .find_map(|(hinders, because)| hinders.then_some(because))
    }

    /// Why this node must not start by a fence, if it must not.
    pub(super) fn fence_hindrance(&self) -> Option<Hindrance> {
        let rolled_back = self.record.wanted().rolled_back.then_some(Hindrance::RolledBack);
        self.start_hindrance().or(rolled_back)
    }

    /// Why this node must not shoot, if it must not.
    pub(super) fn shoot_hindrance(&self) -> Option<Hindrance> {
        self.fence_hindrance().or(match self.settings.plan {
            Plan::Node { .. } | Plan::Exclusive => None,
            Plan::ConfirmOnly => Some(Hindrance::NoAgent),
            Plan::Yielding if self.standing() == Standing::Out => Some(Hindrance::OutWithoutNodeFence),
            Plan::Yielding if !self.named && !mutant::on(Mutant::FormerPrimaryShoots) => Some(Hindrance::NeverAdmitted),
            Plan::Yielding => None,
        })
    }

    /// Whether a node that starts alone may use what it finds: with replicated data only the one that was `Sole`.
    pub(super) fn alone_hindrance(&self) -> Option<Hindrance> {
        let may = self.settings.data == DataModel::Shared || self.standing() == Standing::Sole;
        if may { None } else { Some(Hindrance::ReplicatedAlone) }
    }
}
