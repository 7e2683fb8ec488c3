//! The resource group put into motion: steps of starting and stopping, and the guard that trusts no daemon.

use crate::core::{Epoch, Input, Instant, NodeId, ProofKind, Span, StopReason, Token};

use super::judges::Promotion;
use super::machine::GuardStep;
use super::queue::Event;
use super::resources::Doing;
use super::text::Range;
use super::world::World;

/// How often the driver tries again to kill what does not die.
const KILL_AGAIN: u64 = 1_000_000_000;
/// Looking whether anything runs here.
const VERIFY: u64 = 1_000_000;

impl World {
    pub(super) fn start_group(&mut self, id: NodeId, epoch: Epoch, token: Token, proof: ProofKind) {
        let machine = &mut self.machines[id.index()];
        let fresh = !machine.group.active();
        machine.group.token = token;
        machine.group.proof = Some(proof);
        machine.group.epoch = epoch;
        machine.group.cut = false;
        let durable = machine.disk.durable;
        if fresh {
            let promotion = Promotion { at: self.now, node: id, token, proof };
            self.judges.promoted(promotion, durable.as_ref());
        }
        self.say(id, || format!("* starting resources, token {token}, {proof}"));
        self.machines[id.index()].group.doing = Doing::Starting { epoch };
        self.next_start_step(id, epoch);
        self.judge();
    }

    /// What a former daemon of this boot left running is watched from now on.
    pub(super) fn adopt_group(&mut self, id: NodeId, epoch: Epoch, token: Token) {
        let group = &mut self.machines[id.index()].group;
        group.epoch = epoch;
        group.token = token;
        if !group.serving() {
            self.tell_failed(id);
        }
        self.judge();
    }

    /// Between any two steps the armed deadline is checked.
    fn next_start_step(&mut self, id: NodeId, epoch: Epoch) {
        let now = self.clock(id);
        let setup = &self.setup.nodes[id.index()];
        let (range, steps) = (setup.start, u64::from(setup.steps.max(1)));
        let machine = &mut self.machines[id.index()];
        if machine.guard.deadline.is_none_or(|deadline| now >= deadline) {
            return self.start_failed(id, epoch);
        }
        let hangs = if machine.group.faults.start_hangs { 10 } else { 1 };
        let op = machine.group.next_op();
        let at = self.now + self.draw(Range(range.0 / steps, range.1 / steps)) * hangs;
        self.queue.push(at, Event::Group { node: id, op });
    }

    fn start_failed(&mut self, id: NodeId, epoch: Epoch) {
        self.machines[id.index()].group.doing = Doing::Nothing;
        self.say(id, || String::from("* starting resources fails"));
        self.tell(id, 0, Input::ResourcesFailed(epoch));
        self.judge();
    }

    pub(super) fn stop_group(&mut self, id: NodeId, epoch: Epoch, reason: StopReason) {
        let setup = &self.setup.nodes[id.index()];
        let (polite, budget) = (setup.stop, setup.stop_budget);
        let polite = self.draw(polite).min(budget);
        let group = &mut self.machines[id.index()].group;
        if let Doing::Starting { .. } = group.doing {
            // The step under way may have started its resource already.
            group.up = (group.up + 1).min(group.steps);
        }
        let faults = group.faults;
        let takes = match (group.up, faults.stop_hangs || faults.kill_hangs) {
            (0, _) => VERIFY,
            (_, true) => budget,
            (_, false) => polite,
        };
        let active = group.up > 0;
        group.doing = Doing::Stopping { epoch, stuck: false };
        let op = group.next_op();
        self.queue.push(self.now + takes, Event::Group { node: id, op });
        if active {
            self.say(id, || format!("* stopping resources: {reason}"));
        }
        self.judge();
    }

    pub(super) fn group_step(&mut self, id: NodeId, op: u32) {
        let group = &mut self.machines[id.index()].group;
        if group.op != op {
            return;
        }
        match group.doing {
            Doing::Nothing => {}
            Doing::Starting { epoch } if group.faults.start_fails || group.faults.start_hangs => {
                self.start_failed(id, epoch);
            }
            Doing::Starting { epoch } => self.started_one(id, epoch),
            Doing::Stopping { epoch, stuck } if group.faults.kill_hangs && group.up > 0 => {
                group.doing = Doing::Stopping { epoch, stuck: true };
                let op = group.next_op();
                self.queue.push(self.now + KILL_AGAIN, Event::Group { node: id, op });
                if !stuck {
                    self.say(id, || String::from("* a resource does not die"));
                    self.tell(id, 0, Input::StopStuck(epoch));
                }
            }
            Doing::Stopping { epoch, .. } => self.stopped(id, epoch),
        }
    }

    fn started_one(&mut self, id: NodeId, epoch: Epoch) {
        let group = &mut self.machines[id.index()].group;
        group.up += 1;
        group.failed = false;
        if group.up < group.steps {
            return self.next_start_step(id, epoch);
        }
        group.doing = Doing::Nothing;
        self.tell(id, 0, Input::ResourcesStarted(epoch));
        self.judge();
    }

    fn stopped(&mut self, id: NodeId, epoch: Epoch) {
        let group = &mut self.machines[id.index()].group;
        let acted = group.up > 0;
        group.up = 0;
        group.failed = false;
        group.doing = Doing::Nothing;
        if acted {
            self.say(id, || String::from("* resources stopped, verified"));
        }
        self.tell(id, 0, Input::ResourcesStopped(epoch));
        self.judge();
    }

    /// Queues the guard's next look, unless an earlier one is queued.
    pub(super) fn guard_plans(&mut self, id: NodeId) {
        let Some(due) = self.guard_due(id).filter(|_| self.setup.guard) else { return };
        let machine = &mut self.machines[id.index()];
        let at = machine.clock.true_time_of(due).max(self.now);
        if machine.guard.look.is_none_or(|look| at < look) {
            machine.guard.look = Some(at);
            self.queue.push(at, Event::Guard { node: id, boot: machine.boots });
        }
    }

    /// When the guard has to act next, on this machine's clock: cut, kill, reset.
    fn guard_due(&self, id: NodeId) -> Option<Instant> {
        let setup = &self.setup.nodes[id.index()];
        let guard = &self.machines[id.index()].guard;
        let deadline = guard.deadline?;
        match guard.step {
            GuardStep::Watching => Some(deadline),
            GuardStep::Cut => Some(deadline.after(Span(setup.stop_budget.min(setup.reset_after())))),
            GuardStep::Killed => Some(deadline.after(Span(setup.reset_after()))),
            GuardStep::ResetOrdered => None,
        }
    }

    pub(super) fn guard_looks(&mut self, id: NodeId, boot: u32) {
        let now = self.clock(id);
        let due = self.guard_due(id);
        let machine = &mut self.machines[id.index()];
        if machine.boots != boot {
            return;
        }
        machine.guard.look = None;
        if due.is_some_and(|due| due <= now) && machine.group.active() {
            self.guard_acts(id);
        } else if due.is_some_and(|due| due <= now) {
            return;
        }
        self.guard_plans(id);
    }

    fn guard_acts(&mut self, id: NodeId) {
        let machine = &mut self.machines[id.index()];
        match machine.guard.step {
            GuardStep::Watching => {
                machine.guard.step = GuardStep::Cut;
                if !machine.group.cut {
                    self.cut_clients(id);
                }
            }
            GuardStep::Cut => {
                machine.guard.step = GuardStep::Killed;
                self.guard_kills(id);
            }
            GuardStep::Killed => {
                machine.guard.step = GuardStep::ResetOrdered;
                let (boot, takes) = (machine.boots, self.setup.nodes[id.index()].reset);
                self.say(id, || String::from("* the guard orders a reset"));
                self.queue.push(self.now + takes, Event::Reset { node: id, boot });
            }
            GuardStep::ResetOrdered => {}
        }
    }

    /// The guard kills the resources; the daemon, if it lives, sees them end.
    fn guard_kills(&mut self, id: NodeId) {
        let group = &mut self.machines[id.index()].group;
        if group.faults.kill_hangs || !group.active() {
            return;
        }
        let doing = group.doing;
        group.next_op();
        group.up = 0;
        group.failed = false;
        group.doing = Doing::Nothing;
        self.say(id, || String::from("* the guard kills the resources"));
        match doing {
            Doing::Stopping { epoch, .. } => self.tell(id, 0, Input::ResourcesStopped(epoch)),
            Doing::Starting { epoch } => self.tell(id, 0, Input::ResourcesFailed(epoch)),
            Doing::Nothing => self.tell_failed(id),
        }
        self.judge();
    }

    /// A resource that was up failed for good.
    pub(super) fn tell_failed(&mut self, id: NodeId) {
        let epoch = self.machines[id.index()].group.epoch;
        self.tell(id, 0, Input::ResourcesFailed(epoch));
    }
}
