//! Acts: under a lease (`Paired`), or alone (`Sole`) where the peer was proven harmless or said that it stands aside.

use super::detector::Presence;
use super::ids::{Incarnation, Token};
use super::io::{Event, Job, Output};
use super::lease;
use super::message::{Activity, Datagram, Role, Standing};
use super::mutant::{self, Mutant};
use super::node::{Node, Resources, RoleState};
use super::record::ProofKind;
use super::remint::Remint;
use super::settings::{Plan, PowerOn};
use super::takeover::{self, Former};
use super::time::{Instant, Timer};

#[derive(Debug, Clone, Hash)]
pub struct Primary {
    proof: ProofKind,
    /// Acts without a lease; changes only when the record says so.
    sole: bool,
    admitted: Option<Incarnation>,
    pub(super) remint: Option<Remint>,
    /// What is being written because of a proof of a silent peer: contact takes it back.
    going_sole: Option<Former>,
    /// The operator thaws: lease-free right given up before the standby asks.
    thawing: bool,
    access: Access,
}

/// This node's own access, which a peer's attempt may have revoked (K20).
#[derive(Debug, Clone, Copy, Hash, Default)]
struct Access {
    now: bool,
    again_at: Option<Instant>,
    job: Option<Job>,
    peer_attempts: bool,
}

impl Primary {
    pub fn is_going_sole_by_proof(&self) -> bool {
        self.going_sole.is_some()
    }

    pub fn proof(&self) -> ProofKind {
        self.proof
    }
}

impl Node {
    pub(super) fn become_primary(&mut self, proof: ProofKind, sole: bool) {
        self.withdraw_claim();
        self.withdraw_release();
        self.named = false;
        self.told_waiting = None;
        self.abandon_drill();
        let (admitted, remint, going_sole) = (None, None, None);
        let access = Access::default();
        self.role = RoleState::Primary(Primary { proof, sole, admitted, remint, going_sole, thawing: false, access });
        self.again = true;
        self.send_now = true;
    }

    /// Arms the lease, then starts: in this order.
    pub(super) fn start_resources(
        &mut self,
        epoch: super::io::Epoch,
        token: Token,
        proof: ProofKind,
        now: Instant,
        sole: bool,
    ) {
        if sole {
            self.right_until = Some(takeover::sole_right(now, self.settings.term, self.settings.margin));
        }
        let deadline = self.right_until.expect("a start beside a living peer has a lease");
        self.resources = Resources::Starting(epoch);
        self.out(Output::ArmLease { deadline, token, sole });
        self.out(Output::StartResources { epoch, token, proof });
    }

    pub(super) fn primary(&mut self) -> Option<&mut Primary> {
        match &mut self.role {
            RoleState::Primary(primary) => Some(primary),
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::TakingOver(_) | RoleState::Demoting(_) => None,
        }
    }

    /// Acts without a lease.
    pub(super) fn acts_sole(&self) -> bool {
        matches!(&self.role, RoleState::Primary(p) if p.sole)
    }

    /// Whom this primary names as admitted: nobody while it is `Sole`, or about to be.
    pub(super) fn admitted(&self) -> Option<Incarnation> {
        let RoleState::Primary(primary) = &self.role else { return None };
        let paired = !primary.sole && self.record.wanted().standing == Standing::Paired;
        primary.admitted.filter(|_| paired && self.record.written().standing == Standing::Paired)
    }

    pub(super) fn step_primary(&mut self, now: Instant) {
        self.follow_record(now);
        // The first lease after `Sole` may be over already: the write took its time, and the peer fell silent.
        self.enforce_lease(now);
        if !matches!(self.role, RoleState::Primary(_)) {
            return;
        }
        if let Some(said) = self.hears().copied() {
            self.lead(&said, now);
        }
        if self.presence != Presence::Present {
            self.step_doubtful(now);
        }
        self.step_remint(now);
        self.step_access_watch(now);
        self.step_power_on(now);
        self.step_drill(now);
        self.set_primary_timers(now);
    }

    fn set_primary_timers(&mut self, now: Instant) {
        let since = self.detector.silent_since();
        let dead = self.settings.dead_after;
        match self.presence {
            Presence::Present => self.timers.set(Timer::Doubt, since.after(dead.half())),
            Presence::Doubtful => self.timers.set(Timer::Lost, since.after(dead)),
            Presence::Lost => {}
        }
        if let Some(until) = self.right_until {
            self.wake(Timer::LeaseEnd, until, now);
        }
        if let Some(until) = self.settle_until {
            self.wake(Timer::Settle, until, now);
        }
    }

    /// The record has become `Sole` or `Paired`: only now does the right change.
    fn follow_record(&mut self, now: Instant) {
        let (wanted, written) = (self.record.wanted().standing, self.record.written().standing);
        let RoleState::Primary(primary) = &mut self.role else { return };
        match (primary.sole, wanted, written) {
            (false, Standing::Sole, Standing::Sole) => {
                let former = primary.going_sole.take();
                let proof = former.map(|_| ProofKind::Fenced);
                primary.sole = true;
                primary.admitted = None;
                self.fencing.take_proof();
                self.report(Event::WentSole { proof });
                self.rearm_sole(now);
                self.tell_new_token(former);
                self.send_now = true;
            }
            (true, Standing::Paired, Standing::Paired) => {
                primary.sole = false;
                self.leave_sole();
            }
            (true | false, Standing::Paired | Standing::Sole | Standing::Out, _) => {}
        }
    }

    /// The token that was taken is durable only now: a restart before that would go on under the former one.
    fn tell_new_token(&mut self, former: Option<Former>) {
        let to = self.record.written().held_token;
        if let Some(from) = former.map(|f| f.held_token).filter(|from| *from != to) {
            self.out(Output::TokenChanged { token: to });
            self.report(Event::TokenReminted { from, to });
        }
    }

    /// Leaving `Sole` sets the deadline to the first lease, even if that is earlier.
    fn leave_sole(&mut self) {
        let Some(accepted) = self.peer.accepted() else { return };
        let deadline = lease::right_by_contact(accepted.echo_sent, &self.settings);
        self.right_until = Some(deadline);
        let token = self.record.written().held_token;
        self.out(Output::ArmLease { deadline, token, sole: false });
        self.send_now = true;
    }

    /// `Sole`: the daemon itself moves the guard's deadline at each interval.
    pub(super) fn rearm_sole(&mut self, now: Instant) {
        if self.acts_sole() {
            let deadline = takeover::sole_right(now, self.settings.term, self.settings.margin);
            self.right_until = Some(deadline);
            self.wake(Timer::LeaseEnd, deadline, now);
            let token = self.record.written().held_token;
            self.out(Output::ArmLease { deadline, token, sole: true });
        }
    }

    /// The peer is in contact: admit it, or go on without it, as it says itself.
    fn lead(&mut self, said: &Datagram, now: Instant) {
        let stands_aside = self.stands_aside(said);
        if said.notices.freeze && !said.wish && stands_aside {
            self.freeze_with_peer();
        }
        let frozen = self.record.wanted().frozen;
        let asks_thaw = (frozen || self.freeze_asked) && said.notices.freeze && said.wish;
        if asks_thaw {
            self.begin_thaw();
        }
        let Some(primary) = self.primary() else { return };
        if primary.admitted.is_some_and(|i| i != said.incarnation) {
            primary.admitted = None;
        }
        // The standby has thawed too once it no longer says that it is frozen.
        primary.thawing &= said.notices.freeze;
        if stands_aside && !primary.thawing {
            primary.admitted = None;
            self.go_sole(now);
        } else if said.wish && (!frozen || asks_thaw) {
            self.admit(said);
        }
        self.watch_peer_attempts(said, now);
    }

    /// The peer, which knows this primary, is `Out` and does not ask to be admitted. One that is still joining will.
    pub(super) fn stands_aside(&self, said: &Datagram) -> bool {
        let knows = self.peer.accepted().zip(self.acting_since).is_some_and(|(a, since)| a.echo_seq >= since);
        let aside = said.standing == Standing::Out && !said.wish && !said.holding;
        knows && aside && said.role != Role::Joining
    }

    fn freeze_with_peer(&mut self) {
        let thawing = self.primary().is_some_and(|p| p.thawing);
        // Written with `Sole`, which in an exclusive pair comes after a take.
        let too_early = self.is_exclusive() && self.record.wanted().standing != Standing::Sole;
        if too_early {
            return;
        }
        if !self.record.wanted().frozen && !thawing {
            self.record.change(|r| r.frozen = true);
            self.report(Event::Frozen);
        }
        self.freeze_asked &= thawing;
    }

    /// Thaw is an admission: the lease-free right goes first, durably.
    pub(super) fn begin_thaw(&mut self) {
        if self.record.wanted().frozen {
            self.record.change(|r| r.frozen = false);
            self.report(Event::Thawed);
        }
        self.freeze_asked = false;
        if let Some(primary) = self.primary() {
            primary.thawing = true;
        }
        self.want_standing(Standing::Paired);
    }

    /// Writes `Paired`, then names the standby that asks.
    fn admit(&mut self, said: &Datagram) {
        self.want_standing(Standing::Paired);
        let written = self.record.written().standing == Standing::Paired;
        let Some(primary) = self.primary() else { return };
        if written && !primary.sole && primary.admitted != Some(said.incarnation) {
            primary.admitted = Some(said.incarnation);
            self.send_now = true;
            self.report(Event::Admitted { peer: said.incarnation });
        }
    }

    /// The peer stands aside: write `Sole`, after a take where the storage is the arbiter (K16).
    fn go_sole(&mut self, now: Instant) {
        if self.record.wanted().standing == Standing::Sole {
            return;
        }
        // `Paired` was wanted but never written, so never shown: the peer has granted nothing since the last take.
        let written_sole = self.record.written().standing == Standing::Sole;
        let never_left = written_sole && self.record.is_idle() && !self.taking_back;
        if !self.is_exclusive() || never_left || mutant::on(Mutant::SoleWithoutTake) {
            return self.want_standing(Standing::Sole);
        }
        if self.retry_due(now) {
            self.begin_remint();
        }
    }

    /// Silence: ask for status at D/2; after D (and the head start) shoot, if that can end before the lease does.
    fn step_doubtful(&mut self, now: Instant) {
        if self.use_own_proof() || self.acts_sole() {
            return;
        }
        self.probe(false);
        let due = self.turn_to_shoot();
        if self.presence != Presence::Lost || now < due {
            return self.wake(Timer::Retry, due, now);
        }
        if matches!(self.settings.plan, Plan::Yielding | Plan::ConfirmOnly) {
            return;
        }
        self.attempt_before_lease_ends(now);
    }

    fn attempt_before_lease_ends(&mut self, now: Instant) {
        let Some(until) = self.right_until else { return };
        let left = until.since(now);
        if self.fencing.is_attempting() {
            return;
        }
        if left < self.settings.fence_bound {
            return self.tell_too_late(self.settings.fence_bound, left);
        }
        self.attempt(now, until);
        if let Some(at) = self.fencing.retry_at() {
            self.wake(Timer::Retry, at, now);
        }
    }

    /// Proof in hand and the lease not over: `Sole`, with the token just taken where a take was made.
    fn use_own_proof(&mut self) -> bool {
        if self.fencing.proof().is_none_or(|p| p.kind() != ProofKind::Fenced) {
            return false;
        }
        let record = *self.record.wanted();
        if record.standing == Standing::Sole {
            return true;
        }
        let taken = self.fencing.taken().filter(|_| self.is_exclusive());
        self.want_standing(Standing::Sole);
        self.record.change(|r| {
            r.held_token = r.held_token.max(taken.unwrap_or(r.held_token));
        });
        let former = Former::of(&record);
        if let Some(primary) = self.primary() {
            primary.going_sole = Some(former);
            // The token of the fence is newer than one that is being taken in contact.
            primary.remint = None;
        }
        true
    }

    /// Contact before `Sole` was written: the proof is void, and its writes go back.
    pub(super) fn take_back_sole(&mut self) {
        let Some(former) = self.primary().and_then(|p| p.going_sole.take()) else { return };
        self.take_back(former, Standing::Paired);
    }

    /// While the peer was out of sight it may have tried to shut this node out (K20).
    pub(super) fn doubt_own_access(&mut self, now: Instant) {
        let again_at = Some(now.after(self.settings.settle));
        if self.settings.plan.needs_access()
            && !mutant::on(Mutant::AccessNotRestored)
            && let Some(primary) = self.primary()
        {
            primary.access = Access { now: true, again_at, ..primary.access };
        }
    }

    // --- own access and the peer's power -----------------------------------------------------------------------

    fn watch_peer_attempts(&mut self, said: &Datagram, now: Instant) {
        let attempts = said.activity != Activity::Idle;
        let Some(primary) = self.primary() else { return };
        if std::mem::replace(&mut primary.access.peer_attempts, attempts) && !attempts {
            self.doubt_own_access(now);
        }
    }

    fn step_access_watch(&mut self, now: Instant) {
        let token = self.record.written().held_token;
        let RoleState::Primary(primary) = &self.role else { return };
        let access = primary.access;
        let again = access.again_at.is_some_and(|at| now >= at);
        if let Some(at) = access.again_at.filter(|_| !again) {
            self.wake(Timer::Retry, at, now);
        }
        if access.job.is_some() || !(access.now || again) {
            return;
        }
        let job = self.new_job();
        if let Some(primary) = self.primary() {
            let again_at = access.again_at.filter(|_| !again);
            primary.access = Access { now: false, again_at, job: Some(job), ..access };
        }
        self.out(Output::EnsureAccess { job, token });
    }

    pub(super) fn note_own_access(&mut self, job: Job, assured: bool) {
        let Some(primary) = self.primary() else { return };
        if primary.access.job != Some(job) {
            return;
        }
        primary.access.job = None;
        if !assured {
            self.report(Event::AccessFailed);
        }
    }

    /// Switches the fenced peer on again, once no `off` can still land, and not for ever.
    fn step_power_on(&mut self, now: Instant) {
        let PowerOn::AfterPromotion { limit } = self.settings.power_on else { return };
        let settled = self.settle_until.is_none_or(|until| now >= until);
        let up = matches!(self.resources, Resources::Up(_));
        if !self.power_on_due || !settled || !up || self.in_contact() {
            return;
        }
        self.power_on_due = false;
        if self.powered_on >= limit {
            return self.report(Event::PowerOnLimit { limit });
        }
        self.powered_on += 1;
        let job = self.new_job();
        self.report(Event::PowerOnDue { number: self.powered_on });
        self.out(Output::PowerOn { job });
    }
}
