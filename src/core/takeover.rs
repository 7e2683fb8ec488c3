//! The way from a proof to the start of the first resource. Contact on the way voids what was proven of a silent peer.
//!
//! ```text
//! Attempting ─▶ Waiting ─▶ (PreTaking) ─▶ (Asking) ─▶ Writing ─▶ (Access) ─▶ (Taking) ─▶ Primary
//!              end of the   Confirmed on   highest     held,      own         exclusive
//!              peer's lease exclusive      token       standing   access      plans
//! ```

use super::ids::Token;
use super::io::{Event, Hindrance, Job, Output, Seen, Take, TakeResult};
use super::message::{Datagram, Standing};
use super::mutant::{self, Mutant};
use super::node::{Node, RoleState};
use super::proof::Proof;
use super::record::{ProofKind, Record};
use super::time::{Instant, Span, Timer};

#[derive(Debug, Clone, Hash)]
pub struct TakingOver {
    stage: Stage,
    /// What a voided proof takes back; set before the first write.
    former: Option<Former>,
}

/// The part of the record that a proof changes.
#[derive(Debug, Clone, Copy, Hash)]
pub struct Former {
    pub held_token: Token,
    pub held_proof: Option<ProofKind>,
    pub frozen: bool,
}

impl Former {
    pub fn of(record: &Record) -> Former {
        Former { held_token: record.held_token, held_proof: record.held_proof, frozen: record.frozen }
    }
}

#[derive(Debug, Clone, Hash)]
enum Stage {
    /// No proof yet: attempts, until proof, contact, or an operator's word.
    Attempting,
    /// Proven; the peer's lease may still run.
    Waiting(Proof),
    /// No node writes `Sole` before it has taken a token newer than its peer's last grant (K16).
    PreTaking(Proof, Token, Option<Job>),
    /// What is the highest token that any store has seen?
    Asking(Proof, Job),
    /// Token and standing are on their way to the disk.
    Writing(Proof, Token),
    /// This node makes sure of its own access.
    Access(Proof, Token, Option<Job>),
    /// The take immediately before the first resource starts (K19).
    Taking(Proof, Token, Option<Job>),
}

impl TakingOver {
    pub fn attempting() -> TakingOver {
        TakingOver { stage: Stage::Attempting, former: None }
    }

    fn proof(&self) -> Option<&Proof> {
        match &self.stage {
            Stage::Attempting => None,
            Stage::Waiting(p) | Stage::PreTaking(p, ..) | Stage::Asking(p, _) => Some(p),
            Stage::Writing(p, _) | Stage::Access(p, ..) | Stage::Taking(p, ..) => Some(p),
        }
    }

    pub fn has_proof(&self) -> bool {
        self.proof().is_some()
    }

    pub fn proof_kind(&self) -> Option<ProofKind> {
        self.proof().map(Proof::kind)
    }

    /// `held_token` is written with the proof: this node holds.
    pub fn has_written(&self) -> bool {
        matches!(self.stage, Stage::Access(..) | Stage::Taking(..))
    }

    pub fn is_voided_by_contact(&self) -> bool {
        self.proof().is_none_or(Proof::is_voided_by_contact)
    }

    /// The record as it was before this proof changed it: what a repeated release or reboot is judged by.
    pub fn former_record(&self, written: &Record) -> Record {
        self.former.map_or(*written, |f| Record { held_token: f.held_token, held_proof: f.held_proof, ..*written })
    }

    /// Whether the datagram still gives the proof by which this start goes on.
    pub fn is_renewed_by(&self, said: &Datagram, former: &Record) -> bool {
        match self.proof_kind() {
            Some(ProofKind::Released) => Proof::from_release(said, former).is_some(),
            Some(ProofKind::Rebooted) => Proof::from_reboot(said, former).is_some(),
            Some(ProofKind::Fenced | ProofKind::Confirmed | ProofKind::Agreed) | None => false,
        }
    }
}

impl Node {
    pub(super) fn become_taking_over(&mut self, taking_over: TakingOver, now: Instant) {
        self.withdraw_claim();
        self.role = RoleState::TakingOver(taking_over);
        self.told_waiting = None;
        self.again = true;
        self.send_now = true;
        self.use_found_proof(now);
    }

    /// A proof of a peer that lives, with the lease that goes with it in `right_until`.
    pub(super) fn become_proven(&mut self, proof: Proof, now: Instant) {
        self.become_taking_over(TakingOver { stage: Stage::Waiting(proof), former: None }, now);
    }

    fn stage(&mut self, stage: Stage) {
        if let RoleState::TakingOver(taking_over) = &mut self.role {
            taking_over.stage = stage;
            self.again = true;
        }
    }

    fn use_found_proof(&mut self, now: Instant) {
        let RoleState::TakingOver(TakingOver { stage: Stage::Attempting, .. }) = &self.role else { return };
        let Some(proof) = self.fencing.take_proof() else { return };
        self.withdraw_release();
        if proof.waits_for_lease(&self.settings) && now < self.promise_end() {
            self.report(Event::ProofWaits { proof: proof.kind(), wait: self.promise_end().since(now) });
        }
        self.stage(Stage::Waiting(proof));
    }

    pub(super) fn step_taking_over(&mut self, now: Instant) {
        self.use_found_proof(now);
        let RoleState::TakingOver(taking_over) = self.role.clone() else { return };
        // Nothing is started yet, whatever was written.
        if self.leaving() {
            return self.void_proof(now);
        }
        if taking_over.proof().is_some_and(|p| !p.is_of_silent_peer()) && !self.has_start_lease(now) {
            return;
        }
        match taking_over.stage {
            Stage::Attempting => self.step_attempting(now),
            Stage::Waiting(proof) => self.step_waiting(proof, now),
            Stage::PreTaking(proof, token, job) => self.step_pre_taking(proof, token, job),
            Stage::Asking(..) => {}
            Stage::Writing(proof, token) => self.step_writing(proof, token),
            Stage::Access(proof, token, job) => self.step_access(proof, token, job),
            Stage::Taking(proof, token, job) => self.step_taking(proof, token, job, now),
        }
    }

    fn step_attempting(&mut self, now: Instant) {
        if self.in_contact() && self.detector.ever() {
            return self.become_standby(now);
        }
        if let Some(because) = self.shoot_hindrance() {
            self.become_standby(now);
            return self.wait_for(because);
        }
        self.attempt(now, now.after(self.settings.fence_bound));
        if let Some(at) = self.fencing.retry_at() {
            self.wake(Timer::Retry, at, now);
        }
    }

    /// A start beside a living peer needs its lease at every step; past that it waits for a fresh grant while contact lasts.
    fn has_start_lease(&mut self, now: Instant) -> bool {
        if !self.right_has_ended(now) {
            if let Some(until) = self.right_until {
                self.wake(Timer::LeaseEnd, until, now);
            }
            return true;
        }
        if !self.in_contact() {
            self.void_proof(now);
        } else {
            self.wake(Timer::Lost, self.detector.silent_since().after(self.settings.dead_after), now);
        }
        false
    }

    /// The end of the peer's lease, where the proof rests on it.
    fn step_waiting(&mut self, proof: Proof, now: Instant) {
        let end = self.promise_end();
        if proof.waits_for_lease(&self.settings) && now < end {
            return self.wake(Timer::PromiseEnd, end, now);
        }
        let pre_take = self.is_exclusive() && proof.kind() == ProofKind::Confirmed;
        match pre_take.then(|| self.mint()) {
            Some(Some(token)) => self.stage(Stage::PreTaking(proof, token, None)),
            Some(None) => self.give_up_tokens(now),
            None => self.ask_highest(proof, now),
        }
    }

    fn step_pre_taking(&mut self, proof: Proof, token: Token, job: Option<Job>) {
        if job.is_none() && self.is_minted(token) {
            let job = self.take(token, Seen::Whatever);
            self.stage(Stage::PreTaking(proof, token, Some(job)));
        }
    }

    fn ask_highest(&mut self, proof: Proof, now: Instant) {
        // Beside a primary that has just acted the tokens are known; two that start cold may both have lost them.
        let known = matches!(proof.kind(), ProofKind::Released | ProofKind::Rebooted);
        if !self.settings.stores_tokens || known {
            return self.write(proof, now);
        }
        let job = self.new_job();
        self.out(Output::ReadHighest { job });
        self.stage(Stage::Asking(proof, job));
    }

    /// Mints, and writes token and standing: from then on this node shows that it holds.
    fn write(&mut self, proof: Proof, now: Instant) {
        let record = *self.record.wanted();
        // The token of a granted claim, unless a higher one was seen since.
        let granted = proof.granted().filter(|t| *t == record.highest_token);
        let Some(token) = granted.or_else(|| self.mint()) else { return self.give_up_tokens(now) };
        let silent = proof.is_of_silent_peer();
        self.report(Event::Promoting { proof: proof.kind(), token });
        self.want_standing(if silent { Standing::Sole } else { Standing::Paired });
        self.record.change(|r| {
            r.held_token = token;
            r.held_proof = Some(proof.kind());
            // An operator's word ends a freeze.
            r.frozen &= proof.kind() != ProofKind::Confirmed;
        });
        if let RoleState::TakingOver(taking_over) = &mut self.role {
            let former = Former::of(&record);
            taking_over.former.get_or_insert(former);
        }
        self.stage(Stage::Writing(proof, token));
    }

    fn step_writing(&mut self, proof: Proof, token: Token) {
        if self.record.written().held_token == token || mutant::on(Mutant::StartBeforeDurable) {
            self.stage(Stage::Access(proof, token, None));
            self.send_now = true;
        }
    }

    fn step_access(&mut self, proof: Proof, token: Token, job: Option<Job>) {
        if !self.settings.plan.needs_access() {
            self.stage(Stage::Taking(proof, token, None));
        } else if job.is_none() {
            let job = self.new_job();
            self.out(Output::EnsureAccess { job, token });
            self.stage(Stage::Access(proof, token, Some(job)));
        }
    }

    fn step_taking(&mut self, proof: Proof, token: Token, job: Option<Job>, now: Instant) {
        if !self.is_exclusive() || mutant::on(Mutant::NoTakeAtStart) {
            self.promote_in_time(proof, token, now);
        } else if job.is_none() {
            let RoleState::TakingOver(taking_over) = &self.role else { return };
            let seen = proof.seen(self.peer.said(), &taking_over.former_record(self.record.written()));
            let job = self.take(token, seen);
            self.stage(Stage::Taking(proof, token, Some(job)));
        }
    }

    pub(super) fn take(&mut self, new: Token, seen: Seen) -> Job {
        let job = self.new_job();
        self.out(Output::Take { job, take: Take { new, seen } });
        job
    }

    pub(super) fn note_highest(&mut self, job: Job, highest: Option<Token>, now: Instant) {
        let RoleState::TakingOver(TakingOver { stage: Stage::Asking(proof, asked), .. }) = &self.role else { return };
        if *asked == job {
            let proof = *proof;
            self.see_token(highest.unwrap_or(Token::NONE));
            self.write(proof, now);
        }
    }

    pub(super) fn note_access(&mut self, job: Job, assured: bool, now: Instant) {
        match &self.role {
            RoleState::TakingOver(TakingOver { stage: Stage::Access(proof, token, Some(asked)), .. })
                if *asked == job =>
            {
                let (proof, token) = (*proof, *token);
                if assured {
                    self.stage(Stage::Taking(proof, token, None));
                } else {
                    self.report(Event::AccessFailed);
                    self.void_proof(now);
                }
            }
            RoleState::Primary(_) => self.note_own_access(job, assured),
            RoleState::TakingOver(_) | RoleState::Joining(_) | RoleState::Standby(_) | RoleState::Demoting(_) => {}
        }
    }

    pub(super) fn note_take(&mut self, job: Job, result: TakeResult, now: Instant) {
        match &self.role {
            RoleState::TakingOver(t) => match &t.stage {
                Stage::PreTaking(proof, _, Some(asked)) if *asked == job => {
                    let proof = *proof;
                    self.take_done(result, now, |node| node.ask_highest(proof, now));
                }
                Stage::Taking(proof, token, Some(asked)) if *asked == job => {
                    let (proof, token) = (*proof, *token);
                    self.take_done(result, now, |node| node.promote_in_time(proof, token, now));
                }
                Stage::Attempting | Stage::Waiting(_) | Stage::Asking(..) | Stage::Writing(..) => {}
                Stage::PreTaking(..) | Stage::Access(..) | Stage::Taking(..) => {}
            },
            RoleState::Primary(_) => self.note_remint_take(job, result, now),
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::Demoting(_) => {}
        }
    }

    /// A refusal voids the proof, and teaches the token to mint above.
    fn take_done(&mut self, result: TakeResult, now: Instant, go_on: impl FnOnce(&mut Node)) {
        match result {
            TakeResult::Taken => go_on(self),
            TakeResult::Refused { highest } => {
                self.see_token(highest);
                self.report(Event::TakeFailed { result });
                self.void_proof(now);
            }
            TakeResult::Unknown => {
                self.report(Event::TakeFailed { result });
                self.void_proof(now);
            }
        }
    }

    /// The steps before this one blocked: lease and token are looked at again.
    fn promote_in_time(&mut self, proof: Proof, token: Token, now: Instant) {
        if !proof.is_of_silent_peer() && self.right_has_ended(now) {
            self.void_proof(now);
        } else if self.record.wanted().highest_token > token {
            self.write(proof, now);
        } else {
            self.promote(proof, token, now);
        }
    }

    /// The one door to the start of resources. It takes a proof, and there is no other way to have one.
    fn promote(&mut self, proof: Proof, token: Token, now: Instant) {
        let kind = proof.kind();
        let sole = proof.is_of_silent_peer();
        self.report(Event::Promoted { proof: kind, token });
        self.power_on_due = kind == ProofKind::Fenced;
        let epoch = self.new_epoch();
        self.start_resources(epoch, token, kind, now, sole);
        self.become_primary(kind, sole);
    }

    fn give_up_tokens(&mut self, now: Instant) {
        self.wait_for(Hindrance::TokensUsedUp);
        self.void_proof(now);
    }

    /// Takes back what the proof wrote, before the next datagram leaves, and returns to `Standby`.
    pub(super) fn void_proof(&mut self, now: Instant) {
        let RoleState::TakingOver(taking_over) = self.role.clone() else { return };
        if let Some(proof) = taking_over.proof_kind() {
            self.report(Event::ProofVoided { proof });
        }
        if let Some(former) = taking_over.former.filter(|_| !mutant::on(Mutant::WritesNotTakenBack)) {
            self.take_back(former, Standing::Out);
        }
        let pause = self.settings.interval.plus(self.random_up_to(self.settings.head_start));
        self.retry_after(now, pause);
        self.become_standby(now);
    }

    /// The record returns to its former `held_token`; nothing leaves before that is durable.
    pub(super) fn take_back(&mut self, former: Former, standing: Standing) {
        self.want_standing(standing);
        self.record.change(|r| {
            r.held_token = former.held_token;
            r.held_proof = former.held_proof;
            r.frozen = former.frozen;
        });
        self.taking_back = true;
    }
}

/// The lease of a node that acts `Sole`: the guard's deadline, moved by the daemon itself.
pub(super) fn sole_right(now: Instant, term: Span, margin: Span) -> Instant {
    now.after(term.minus(margin))
}
