//! A drill: the primary really fences its standby, and brings it back (protocol section 6, "After a fence").
//!
//! ```text
//!   Fencing ── verified off ──▶ Off ── sole, settled, silent ──▶ Returning ── a handover would work ──▶ over
//! ```
//!
//! It gives no right to act. Its fence is an operator's: the standby is in contact, which voids it as a proof, and this
//! node proves its silent peer harmless by the ordinary way. Only the switching on again, once nothing can land any
//! more, is the drill's own.

use super::detector::Presence;
use super::ids::BootId;
use super::io::{Event, FenceResult, Hindrance, Job, Output, Refusal, Scope};
use super::node::{Node, Resources, RoleState};
use super::settings::Plan;
use super::time::Instant;

/// How far a drill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drill {
    /// The fence is under way.
    Fencing,
    /// The standby of this boot read off at this time.
    Off { boot: Option<BootId>, since: Instant },
    /// It was switched on, or came by itself.
    Returning,
}

impl Node {
    pub(super) fn command_drill(&mut self, now: Instant) -> Result<(), Refusal> {
        if !matches!(self.role, RoleState::Primary(_)) {
            return Err(Refusal::NotPrimary);
        }
        match self.settings.plan {
            Plan::Node { .. } => {}
            Plan::ConfirmOnly => return Err(Refusal::NoAgent),
            Plan::Exclusive | Plan::Yielding => return Err(Refusal::NothingToDrill),
        }
        // A standby that could not take over is no standby to be without, and to wait for.
        if let Some(because) = self.handover_hindrances(now).into_iter().next() {
            return Err(Refusal::NotNow(because));
        }
        if !self.operator_fence() {
            return Err(Refusal::NotNow(Hindrance::Settling));
        }
        self.drill = Some(Drill::Fencing);
        self.report(Event::DrillBegun);
        Ok(())
    }

    /// Whether the attempt of this job is a drill's own: its fence of a standby that is heard.
    pub fn is_drill(&self, job: Job) -> bool {
        self.drill == Some(Drill::Fencing) && self.fencing.is_by_operator(job)
    }

    /// The operator's fence has ended.
    pub(super) fn note_drill_fence(&mut self, result: FenceResult, now: Instant) {
        if self.drill != Some(Drill::Fencing) {
            return;
        }
        match result {
            FenceResult::Confirmed { scope: Scope::Node, .. } => {
                self.drill = Some(Drill::Off { boot: self.peer.said().map(|d| d.boot), since: now });
            }
            FenceResult::Confirmed { scope: Scope::Resource, .. }
            | FenceResult::Refused { .. }
            | FenceResult::Unknown => self.abandon_drill(),
        }
    }

    pub(super) fn step_drill(&mut self, now: Instant) {
        match self.drill {
            None | Some(Drill::Fencing) => {}
            Some(Drill::Off { boot, since }) => self.bring_back(boot, since, now),
            Some(Drill::Returning) if self.handover_hindrances(now).is_empty() => {
                self.drill = None;
                self.report(Event::DrillDone);
            }
            Some(Drill::Returning) => {}
        }
    }

    /// Once this node acts without the fenced one, and no `off` can land any more.
    fn bring_back(&mut self, boot: Option<BootId>, since: Instant, now: Instant) {
        match self.presence {
            Presence::Present if self.peer.said().map(|d| d.boot) != boot => self.drill = Some(Drill::Returning),
            // Heard on and on, it was never off.
            Presence::Present if self.detector.silent_since() > since.after(self.settings.dead_after) => {
                self.abandon_drill();
            }
            Presence::Present | Presence::Doubtful => {}
            Presence::Lost => self.switch_on_for_drill(now),
        }
    }

    fn switch_on_for_drill(&mut self, now: Instant) {
        let settled = self.settle_until.is_none_or(|until| now >= until);
        let up = matches!(self.resources, Resources::Up(_));
        if self.acts_sole() && settled && up {
            self.drill = Some(Drill::Returning);
            let job = self.new_job();
            self.report(Event::DrillPowersOn);
            self.out(Output::PowerOn { job });
        }
    }

    /// Whoever acts no more, or anew, has other things to do than to bring a peer back.
    pub(super) fn abandon_drill(&mut self) {
        if self.drill.take().is_some() {
            self.report(Event::DrillFailed);
        }
    }
}
