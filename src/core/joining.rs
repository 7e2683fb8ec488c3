//! Every daemon start: go on under an unexpired lease, or first make sure that nothing runs here, then look around.

use super::io::{Event, Hindrance, Output, PowerReading, StopReason};
use super::message::Standing;
use super::mutant::{self, Mutant};
use super::node::{Node, Resources, RoleState, RunTimeLease};
use super::record::ProofKind;
use super::takeover::{self, TakingOver};
use super::time::{Instant, Timer};

#[derive(Debug, Clone, Hash, Default)]
pub struct Joining {
    /// The stop at the start could not be verified within its budget.
    pub stuck: bool,
}

impl Node {
    pub(super) fn begin(&mut self, lease: Option<RunTimeLease>, now: Instant) {
        match lease.filter(|l| self.may_adopt(l, now)) {
            Some(lease) => self.adopt(lease, now),
            None => {
                self.out(Output::DisarmLease { deadline: now });
                self.stop_resources(StopReason::Joining);
            }
        }
    }

    /// Same boot (the driver saw to that), unexpired, and of the token last held here (K6: a release has removed it).
    fn may_adopt(&self, lease: &RunTimeLease, now: Instant) -> bool {
        let record = self.record.written();
        now < lease.deadline && lease.token == record.held_token && record.standing != Standing::Out
    }

    fn adopt(&mut self, lease: RunTimeLease, now: Instant) {
        let epoch = self.new_epoch();
        self.resources = Resources::Up(epoch);
        // Of resources that were kept up without a daemon the record has no end: from now on they have one again.
        let deadline = lease.deadline.min(takeover::sole_right(now, self.settings.term, self.settings.margin));
        self.right_until = Some(deadline);
        self.report(Event::LeaseAdopted { token: lease.token, left: deadline.since(now) });
        self.out(Output::AdoptResources { epoch, token: lease.token });
        let sole = self.record.written().standing == Standing::Sole;
        let proof = self.record.written().held_proof.unwrap_or(ProofKind::Agreed);
        self.become_primary(proof, sole);
    }

    pub(super) fn step_joining(&mut self, now: Instant) {
        if self.resources != Resources::Stopped {
            return self.heed_stuck();
        }
        if self.leaving() {
            return self.finish();
        }
        match self.hears().map(|said| said.holding) {
            Some(true) => self.become_standby(now),
            Some(false) => self.settle(now),
            None => self.step_alone(now),
        }
    }

    /// While it cannot verify its own stop this node is a standby that is not ready.
    fn heed_stuck(&mut self) {
        let RoleState::Joining(joining) = &self.role else { return };
        let primary = self.hears().is_some_and(|said| said.holding);
        if joining.stuck && primary && self.standing() == Standing::Paired {
            self.want_standing(Standing::Out);
        }
    }

    /// The peer is silent: patience first, then only what the protocol allows to one that starts alone.
    fn step_alone(&mut self, now: Instant) {
        if self.fencing.proof().is_some_and(|p| p.kind() == ProofKind::Confirmed) {
            return self.become_taking_over(TakingOver::attempting(), now);
        }
        let patience = self.detector.silent_since().after(self.settings.join_wait).after(self.head_start());
        if now < patience {
            return self.wake(Timer::JoinWait, patience, now);
        }
        if let Some(because) = self.alone_hindrance().or_else(|| self.shoot_hindrance()) {
            return self.wait_for(because);
        }
        if self.fencing.proof().is_some() {
            return self.become_taking_over(TakingOver::attempting(), now);
        }
        if self.may_only_look() {
            return self.wait_for_power_off(now);
        }
        if !self.links_usable {
            return self.wait_for(Hindrance::NoWorkingLink);
        }
        self.become_taking_over(TakingOver::attempting(), now);
    }

    /// A powered-on peer that was never heard in this boot is not shot: this node may be the one cut off (K7, C38).
    pub(super) fn may_only_look(&self) -> bool {
        let never_heard = !self.had_contact_this_boot && !mutant::on(Mutant::JoinerShoots);
        never_heard && !self.settings.join_fence
    }

    pub(super) fn wait_for_power_off(&mut self, now: Instant) {
        if self.retry_due(now) {
            self.probe(true);
            self.retry_after(now, self.settings.fence_bound.max(self.settings.dead_after));
        }
        if let Some(at) = self.fencing.retry_at() {
            self.wake(Timer::Retry, at, now);
        }
        match self.fencing.reading() {
            Some(PowerReading::On) => self.wait_for(Hindrance::PoweredOnPeerNeverHeard),
            Some(PowerReading::Unknown) => self.wait_for(Hindrance::PowerUnknown),
            None if !self.settings.plan.reads_power() => self.wait_for(Hindrance::PoweredOnPeerNeverHeard),
            Some(PowerReading::Off { .. }) | None => {}
        }
    }
}
