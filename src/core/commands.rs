//! What an operator asks. A refusal says what stands in the way; `Ok` means begun.

use super::ids::AgentSet;
use super::io::{Command, Event, Hindrance, Output, Refusal, StopReason};
use super::message::{Role, Standing};
use super::node::{Node, Resources, RoleState};
use super::settings::Plan;
use super::time::Instant;

impl Node {
    pub(super) fn begin_command(&mut self, command: Command, now: Instant) -> Result<(), Refusal> {
        match command {
            Command::Failover { force } => self.command_failover(force, now),
            Command::Fence => self.command_fence(),
            Command::Drill => self.command_drill(now),
            Command::ConfirmFenced { incident, uid } => self.command_confirm(incident, uid, now),
            Command::Freeze => self.command_freeze(),
            Command::Thaw => self.command_thaw(),
            Command::Stop => self.command_stop(now),
            Command::StopKeeping => self.command_stop_keeping(now),
            Command::Init => {
                self.recordless = false;
                Ok(())
            }
            Command::ClearAlarms => {
                self.command_clear();
                Ok(())
            }
        }
    }

    fn command_failover(&mut self, force: bool, now: Instant) -> Result<(), Refusal> {
        if !matches!(self.role, RoleState::Primary(_)) {
            return Err(Refusal::NotPrimary);
        }
        // A standby that cannot serve would hand the release back: force does not help there.
        let forced = |because: &Hindrance| force && *because == Hindrance::NotAdmitted;
        match self.handover_hindrances(now).into_iter().find(|because| !forced(because)) {
            Some(because) => Err(Refusal::NotNow(because)),
            None => {
                self.become_demoting(StopReason::Handover, now);
                Ok(())
            }
        }
    }

    /// What stands in the way of a planned handover from this primary.
    pub(super) fn handover_hindrances(&self, now: Instant) -> Vec<Hindrance> {
        let said = self.hears();
        let admitted = said.is_some_and(|d| d.standing == Standing::Paired && self.admitted() == Some(d.incarnation));
        let facts = [
            (self.leaving(), Hindrance::Stopping),
            (said.is_none(), Hindrance::PeerSilent),
            (self.frozen(), Hindrance::Frozen),
            (said.is_some() && self.digest_differs, Hindrance::DigestDiffers),
            (self.fencing.is_attempting() || self.settle_until.is_some_and(|until| now < until), Hindrance::Settling),
            // After a handover this node has to grant, which needs a record that can be written.
            (self.record.failed(), Hindrance::RecordNotWritable),
            (said.is_some_and(|d| !d.ready), Hindrance::PeerNotReady),
            (said.is_some_and(|d| d.ready) && !admitted, Hindrance::NotAdmitted),
        ];
        facts.into_iter().filter_map(|(so, because)| so.then_some(because)).collect()
    }

    fn command_fence(&mut self) -> Result<(), Refusal> {
        match self.settings.plan {
            Plan::ConfirmOnly => Err(Refusal::NoAgent),
            Plan::Yielding if !self.named => Err(Refusal::YieldingNode),
            Plan::Node { .. } | Plan::Exclusive | Plan::Yielding => {
                if self.recordless {
                    return Err(Refusal::NotNow(Hindrance::NoRecordNoContact));
                }
                if self.is_exclusive() && self.record.failed() {
                    return Err(Refusal::NotNow(Hindrance::RecordNotWritable));
                }
                self.operator_fence().then_some(()).ok_or(Refusal::NotNow(Hindrance::Settling))
            }
        }
    }

    fn command_confirm(&mut self, incident: u64, uid: u32, now: Instant) -> Result<(), Refusal> {
        if self.in_contact() {
            return Err(Refusal::PeerInContact);
        }
        if incident != self.incident {
            return Err(Refusal::WrongIncident { current: self.incident });
        }
        let useful = match &self.role {
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::Demoting(_) => self.fencing.proof().is_none(),
            RoleState::TakingOver(t) => !t.has_proof(),
            RoleState::Primary(_) => false,
        };
        if !useful {
            return Err(Refusal::NothingToConfirm);
        }
        if self.recordless {
            return Err(Refusal::NotNow(Hindrance::NoRecordNoContact));
        }
        self.report(Event::Confirmed { uid, incident });
        self.confirm_by_operator(now);
        // Single use: the next silence is another incident.
        self.incident += 1;
        Ok(())
    }

    fn command_freeze(&mut self) -> Result<(), Refusal> {
        if self.record.wanted().frozen || self.freeze_asked {
            return Err(Refusal::AlreadyFrozen);
        }
        if self.leaving() {
            return Err(Refusal::AlreadyStopping);
        }
        match self.role {
            RoleState::Standby(_) => {
                self.freeze();
                Ok(())
            }
            RoleState::Primary(_) => self.freeze_as_primary(),
            RoleState::Joining(_) | RoleState::TakingOver(_) | RoleState::Demoting(_) => {
                Err(Refusal::NotNow(Hindrance::PeerSilent))
            }
        }
    }

    /// A primary freezes after its standby has: it asks, unless there is nobody to ask.
    fn freeze_as_primary(&mut self) -> Result<(), Refusal> {
        if self.hears().is_some() {
            self.freeze_asked = true;
        } else if self.acts_sole() {
            self.record.change(|r| r.frozen = true);
            self.report(Event::Frozen);
        } else {
            return Err(Refusal::NotNow(Hindrance::PeerSilent));
        }
        self.send_now = true;
        Ok(())
    }

    fn command_thaw(&mut self) -> Result<(), Refusal> {
        if !self.record.wanted().frozen && !self.freeze_asked {
            return Err(Refusal::NotFrozen);
        }
        let Some(said) = self.hears().copied() else { return Err(Refusal::NotNow(Hindrance::PeerSilent)) };
        match self.role {
            RoleState::Primary(_) => self.begin_thaw(),
            RoleState::Standby(_) if said.holding && said.role == Role::Primary => self.thaw_asked = true,
            RoleState::Joining(_) | RoleState::Standby(_) | RoleState::TakingOver(_) | RoleState::Demoting(_) => {
                self.thaw();
            }
        }
        self.send_now = true;
        Ok(())
    }

    fn command_stop(&mut self, now: Instant) -> Result<(), Refusal> {
        if self.leaving() {
            return Err(Refusal::AlreadyStopping);
        }
        let hands_over = self.handover_hindrances(now).is_empty();
        self.call_off_attempt(now);
        self.stopping = Some(now);
        self.report(Event::Stopping);
        if matches!(self.role, RoleState::Primary(_)) {
            let reason = if hands_over { StopReason::Handover } else { StopReason::Leaving };
            self.become_demoting(reason, now);
        }
        self.send_now = true;
        Ok(())
    }

    /// Nobody watches over what is left behind. So the peer must be known not to take over by itself, whatever it hears or
    /// does not hear: both nodes hold durably that they are frozen, this one as `Sole` and the other as `Out`.
    fn command_stop_keeping(&mut self, now: Instant) -> Result<(), Refusal> {
        let (written, wanted) = (self.record.written(), self.record.wanted());
        let frozen = written.frozen && written.standing == Standing::Sole && written == wanted;
        let peer = self.hears();
        let peer_frozen =
            peer.is_some_and(|d| d.notices.freeze && d.standing == Standing::Out && !d.wish && !d.holding);
        let refusal = [
            (self.leaving() || self.finished, Refusal::AlreadyStopping),
            (!matches!(self.role, RoleState::Primary(_)), Refusal::NotPrimary),
            (!matches!(self.resources, Resources::Up(_)), Refusal::NotServing),
            (!frozen, Refusal::NotFrozen),
            (!peer_frozen, Refusal::PeerNotFrozen),
        ];
        if let Some((_, refusal)) = refusal.into_iter().find(|(so, _)| *so) {
            return Err(refusal);
        }
        let token = written.held_token;
        self.call_off_attempt(now);
        self.report(Event::KeepsResources { token });
        self.out(Output::ArmLease { deadline: Instant::NEVER, token, sole: true });
        self.finish();
        Ok(())
    }

    fn command_clear(&mut self) {
        self.record.change(|r| {
            r.rolled_back = false;
            r.distrusted = AgentSet::EMPTY;
        });
        // The peer's announcements are taken as they are from now on.
        if self.peer_record_is_old
            && let Some(said) = self.peer.said().copied()
        {
            self.record.change(|r| r.peer_highest = said.highest_token);
            self.peer_record_is_old = false;
        }
        self.report(Event::AlarmsCleared);
    }
}
