//! From acting to verified stillness: first the lease record goes and the clients are cut, then the group stops.

use super::ids::Token;
use super::io::{Epoch, Event, Generation, Output, StopReason};
use super::message::Activity;
use super::mutant::{self, Mutant};
use super::node::{Node, Release, Resources, RoleState};
use super::time::{Instant, Span};

#[derive(Debug, Clone, Hash)]
pub struct Demoting {
    reason: StopReason,
    token: Token,
    pub stuck: bool,
}

impl Demoting {
    pub fn reason(&self) -> StopReason {
        self.reason
    }
}

/// That nothing of the service is left here: only a verified stop makes one, and a release takes one.
#[derive(Debug)]
struct Stopped(());

impl Node {
    /// The run-time record goes and the deadline is fixed BEFORE the first resource stops (K6).
    pub(super) fn become_demoting(&mut self, reason: StopReason, now: Instant) {
        self.take_back_sole();
        let token = self.record.written().held_token;
        let deadline = self.right_until.unwrap_or(now);
        self.report(Event::Demoting { reason, token });
        if !mutant::on(Mutant::LeaseRecordStays) {
            self.out(Output::DisarmLease { deadline });
        }
        self.out(Output::CutClients);
        self.role = RoleState::Demoting(Demoting { reason, token, stuck: false });
        self.freeze_asked = false;
        self.power_on_due = false;
        self.abandon_drill();
        self.again = true;
        self.send_now = true;
        if matches!(reason, StopReason::StartFailed | StopReason::ResourceFailed) {
            self.back_off(now, self.settings.start_backoff);
        }
        self.stop_resources(reason);
    }

    fn back_off(&mut self, now: Instant, pause: Span) {
        self.backoff_until = Some(now.after(pause));
        self.is_ready = false;
    }

    pub(super) fn stop_resources(&mut self, reason: StopReason) {
        let epoch = self.new_epoch();
        self.resources = Resources::Stopping(epoch);
        self.out(Output::StopResources { epoch, reason });
    }

    pub(super) fn step_demoting(&mut self, now: Instant) {
        if let Some(stopped) = self.verified_stop() {
            self.give_up(stopped, now);
        }
    }

    fn verified_stop(&self) -> Option<Stopped> {
        let stopped = self.resources == Resources::Stopped || mutant::on(Mutant::ReleaseBeforeStopped);
        stopped.then_some(Stopped(()))
    }

    /// Releases the token, and becomes a standby whose only promise is that of section 2.
    fn give_up(&mut self, _stopped: Stopped, now: Instant) {
        let RoleState::Demoting(demoting) = &self.role else { return };
        let token = demoting.token;
        self.become_standby(now);
        // While it shoots at the peer, or has a proof against it, a node gives nothing up.
        if self.fencing.activity() == Activity::Idle {
            self.release = Some(Release { token, since: now });
            self.report(Event::Released { token });
        }
    }

    pub(super) fn note_started(&mut self, epoch: Epoch) {
        if self.resources == Resources::Starting(epoch) {
            self.resources = Resources::Up(epoch);
            self.again = true;
            let token = self.record.written().held_token;
            self.report(Event::Serving { token });
        }
    }

    pub(super) fn note_failed(&mut self, epoch: Epoch, now: Instant) {
        match self.resources {
            Resources::Starting(e) if e == epoch => self.become_demoting(StopReason::StartFailed, now),
            Resources::Up(e) if e == epoch => self.become_demoting(StopReason::ResourceFailed, now),
            Resources::Starting(_) | Resources::Up(_) | Resources::Stopping(_) | Resources::Stopped => {}
        }
    }

    pub(super) fn note_stopped(&mut self, epoch: Epoch) {
        if self.resources == Resources::Stopping(epoch) {
            self.resources = Resources::Stopped;
        }
    }

    pub(super) fn note_stop_stuck(&mut self, epoch: Epoch) {
        if self.resources != Resources::Stopping(epoch) {
            return;
        }
        match &mut self.role {
            RoleState::Joining(joining) => joining.stuck = true,
            RoleState::Demoting(demoting) => demoting.stuck = true,
            RoleState::Standby(_) | RoleState::TakingOver(_) | RoleState::Primary(_) => {}
        }
        self.report(Event::StopStuck);
    }

    /// This machine is not where, or when, it believes to be: whatever its clocks say of the lease is void.
    pub(super) fn note_displaced(&mut self, reason: StopReason, now: Instant) {
        if matches!(self.role, RoleState::Primary(_)) {
            self.right_until = Some(now);
            self.become_demoting(reason, now);
        }
    }

    pub(super) fn note_persisted(&mut self, generation: Generation) {
        self.record.persisted(generation);
        self.check_mute();
        // A write may make a grant, a claim or a name possible: it leaves at once.
        self.send_now = true;
    }

    pub(super) fn note_persist_failed(&mut self, generation: Generation) {
        if self.record.fail(generation) {
            self.report(Event::RecordUnwritable);
        }
    }

    /// A voided proof takes its writes back before the next datagram leaves.
    pub(super) fn check_mute(&mut self) {
        let (wanted, written) = (self.record.wanted(), self.record.written());
        let same = wanted.held_token == written.held_token && wanted.standing == written.standing;
        self.taking_back &= !(same && self.record.is_idle());
    }
}
