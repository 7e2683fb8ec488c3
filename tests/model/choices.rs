//! What can happen next in a world, the usual course first.

use leasehold::core::{Instant, Job, NodeId};

use super::agents::{Stage, Work};
use super::machine::Doing;
use super::setup::Ask;
use super::world::{Action, Fresh, NODES, World};

impl World {
    /// Everything that can happen next; the usual course first.
    pub fn actions(&self) -> Vec<Action> {
        if let Some(fresh) = self.fresh.front() {
            return self.decisions(fresh);
        }
        let due: Vec<Action> = NODES.into_iter().filter(|id| self.is_due(*id)).map(Action::Wake).collect();
        if !due.is_empty() {
            return due;
        }
        let mut actions = Vec::with_capacity(16);
        if self.next_instant().is_some() {
            actions.push(Action::Advance);
        }
        self.late(&mut actions);
        NODES.into_iter().for_each(|id| self.faults(id, &mut actions));
        actions
    }

    fn is_due(&self, id: NodeId) -> bool {
        let daemon = self.machines[id.index()].daemon.as_ref();
        daemon.and_then(|d| d.poll_timeout()).is_some_and(|at| at <= self.now)
    }

    fn decisions(&self, fresh: &Fresh) -> Vec<Action> {
        let b = &self.budget;
        let mut choices = vec![Action::Now];
        let mut may = |so: bool, action: Action| choices.extend(so.then_some(action));
        match fresh {
            Fresh::Message(_) => {
                may(b.lose > 0, Action::Never);
                may(b.hold > 0, Action::Later);
                may(b.copy > 0, Action::Copy);
            }
            Fresh::Write(_) => may(b.slow > 0, Action::Later),
            Fresh::Stop(id) => may(b.slow > 0 && self.machines[id.index()].service.active, Action::Later),
            Fresh::Start(_) => {
                may(b.slow > 0, Action::Later);
                may(b.fail > 0, Action::Never);
            }
            Fresh::Job(id, job) => {
                may(b.slow > 0, Action::Later);
                may(b.slow > 0, Action::AnswerLater);
                may(b.fail > 0, Action::Never);
                may(b.lie > 0 && self.work(*id, *job).is_some_and(Work::can_lie), Action::Lie);
            }
        }
        choices
    }

    /// What was put off and may happen now.
    fn late(&self, actions: &mut Vec<Action>) {
        for (i, said) in self.held.iter().enumerate() {
            if self.machines[said.sender.peer().index()].daemon.is_some() {
                actions.push(Action::Deliver(i as u8));
            }
        }
        for (i, work) in self.works.iter().enumerate() {
            if work.stage == Stage::Sent {
                actions.push(Action::Land(i as u8));
            }
            if !work.cancelled {
                actions.push(Action::Answer(i as u8));
            }
        }
        for machine in &self.machines {
            let id = machine.id;
            if machine.writing.is_some() {
                actions.push(Action::Written(id));
            }
            match machine.service.doing {
                Doing::Nothing => {}
                Doing::Starting(_) => actions.push(Action::Started(id)),
                Doing::Stopping(_) => actions.push(Action::Stopped(id)),
            }
        }
    }

    fn faults(&self, id: NodeId, actions: &mut Vec<Action>) {
        let b = &self.budget;
        let machine = &self.machines[id.index()];
        let mut may = |so: bool, action: Action| actions.extend(so.then_some(action));
        let lives = machine.daemon.is_some();
        for landed in [true, false] {
            let distinct = landed || machine.writing.is_some();
            may(b.crash_daemon > 0 && lives && distinct, Action::CrashDaemon(id, landed));
            may(b.crash_node > 0 && machine.up && distinct, Action::CrashNode(id, landed));
            may(b.power > 0 && machine.up && distinct, Action::LosePower(id, landed));
        }
        may(machine.up && !lives, Action::StartDaemon(id));
        may(!machine.up && b.boot > 0, Action::Boot(id));
        may(!self.cut[id.index()] && b.cut > 0, Action::Cut(id));
        may(self.cut[id.index()] && b.heal > 0, Action::Heal(id));
        may(b.flip > 0 && lives, Action::Flip(id));
        for ask in self.setup.asks {
            may(b.command > 0 && lives && self.may_ask(id, *ask), Action::Operator(id, *ask));
        }
    }

    /// An operator confirms only what is so: that the peer is down.
    fn may_ask(&self, id: NodeId, ask: Ask) -> bool {
        let peer = &self.machines[id.peer().index()];
        ask != Ask::Confirm || !peer.up
    }

    pub fn work(&self, id: NodeId, job: Job) -> Option<&Work> {
        let life = self.machines[id.index()].lives;
        self.works.iter().find(|w| w.caller == id && w.life == life && w.job == job)
    }

    pub fn next_instant(&self) -> Option<Instant> {
        let machines = self.machines.iter().flat_map(|m| {
            let lease = m.run_time.lease.filter(|_| m.daemon.is_none()).map(|l| l.deadline);
            [m.daemon.as_ref().and_then(|d| d.poll_timeout()), m.kill_at(), m.stalled_until, lease]
        });
        let works = self.works.iter().map(|w| Some(w.limit));
        machines.chain(works).flatten().filter(|at| *at > self.now).min()
    }
}
