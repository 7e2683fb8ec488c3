//! What the real daemon's driver does with the core's outputs: puts them into effect in order, and decides nothing.

use crate::core::{
    AgentSet, Datagram, Event as Report, Generation, Identity, Incarnation, Input, Instant, Job as JobId, Node, NodeId,
    Output, Plan, Record, RunTimeLease, Span, SystemUuid,
};

use super::disk::Written;
use super::fence::Request;
use super::judges::Guarantee;
use super::links::Fate;
use super::machine::{Daemon, GuardStep};
use super::queue::Event;
use super::rng::PARTS;
use super::text::name;
use super::world::World;

impl World {
    /// Takes the core's outputs until there are none, then sees to its next timer.
    pub(super) fn put_into_effect(&mut self, id: NodeId) {
        while let Some(output) = self.machines[id.index()].daemon.as_mut().and_then(|d| d.node.poll_output()) {
            self.perform(id, output);
        }
        self.schedule_wake(id);
    }

    fn perform(&mut self, id: NodeId, output: Output) {
        let none = AgentSet::EMPTY;
        match output {
            Output::Send(datagram) => self.send(id, datagram),
            Output::Persist { generation, record } => self.persist(id, generation, record),
            Output::StartProbe { job, excluded } => self.launch(id, job, Request::Probe, excluded, None),
            Output::StartFence { job, token: _, take, excluded, deadline } => {
                let request = match (take, self.setup.nodes[id.index()].plan) {
                    (Some(take), _) => Request::FenceTake(take),
                    (None, Plan::Yielding) => Request::Revoke,
                    (None, plan) => Request::Off { access: plan.needs_access() },
                };
                self.launch(id, job, request, excluded, Some(deadline));
            }
            Output::CancelJob(job) => self.cancel(id, job),
            Output::ReadHighest { job } => self.launch(id, job, Request::Highest, none, None),
            Output::Take { job, take } => self.launch(id, job, Request::Take(take), none, None),
            Output::EnsureAccess { job, token: _ } => self.launch(id, job, Request::Access, none, None),
            Output::PowerOn { job } => self.launch(id, job, Request::PowerOn, none, None),
            Output::ArmLease { deadline, token, sole } => self.arm(id, RunTimeLease { token, deadline, sole }),
            Output::DisarmLease { deadline } => self.disarm(id, deadline),
            Output::CutClients => self.cut_clients(id),
            Output::StartResources { epoch, token, proof } => self.start_group(id, epoch, token, proof),
            Output::AdoptResources { epoch, token } => self.adopt_group(id, epoch, token),
            Output::StopResources { epoch, reason } => self.stop_group(id, epoch, reason),
            Output::TokenChanged { token } => self.change_token(id, token),
            Output::NoteContact => self.machines[id.index()].runtime.had_contact = true,
            Output::Report(event) => self.report(id, event),
            Output::Finished => self.finished(id),
        }
    }

    fn report(&mut self, id: NodeId, event: Report) {
        if let Report::Promoted { token, .. } | Report::Promoting { token, .. } = event {
            self.judges.reported(id, token);
        }
        self.say(id, || event.to_string());
    }

    fn send(&mut self, id: NodeId, datagram: Datagram) {
        let disk = &self.machines[id.index()].disk;
        self.judges.sent(self.now, &datagram, disk.durable.as_ref(), disk.acknowledged.as_ref());
        self.last_sent[id.index()] = Some(datagram);
        let to = id.peer();
        if !self.links.rules.is_empty() {
            match self.links.ruled(&datagram, self.now) {
                Some(Fate::Drop) => return self.say(id, || String::from("  (dropped on the way)")),
                Some(Fate::HoldUntil(at)) => {
                    self.say(id, || String::from("  (held on the way)"));
                    return self.arrive(to, at, datagram);
                }
                Some(Fate::RepeatAt(at)) => self.arrive(to, at, datagram),
                None => {}
            }
        }
        for link in 0..self.links.count() {
            self.pass(id, link, &datagram);
        }
    }

    /// One link's copy, and what becomes of it.
    fn pass(&mut self, id: NodeId, link: usize, datagram: &Datagram) {
        let arrivals = self.links.arrivals(id, link, self.now, &mut self.rng);
        if arrivals == [None, None] {
            return;
        }
        let changed = self.links.changes(id, link, &mut self.rng);
        let opened = match &self.sealed {
            Some(sealed) => sealed.travels(link, datagram, changed, &mut self.rng),
            None => (!changed).then_some(*datagram),
        };
        let Some(opened) = opened else { return };
        if opened != *datagram || changed {
            self.judges.accuse(self.now, Guarantee::Wire, String::from("a changed datagram was opened"));
        }
        for at in arrivals.into_iter().flatten() {
            self.arrive(id.peer(), at, opened);
        }
    }

    fn arrive(&mut self, to: NodeId, at: u64, datagram: Datagram) {
        let slot = self.datagrams.put(datagram);
        self.queue.push(at.max(self.now), Event::Deliver { to, slot });
    }

    fn persist(&mut self, id: NodeId, generation: Generation, record: Record) {
        let disk = &mut self.machines[id.index()].disk;
        self.judges.persisted(self.now, id, &record, disk.acknowledged.as_ref());
        disk.write(generation, record);
        self.kick_disk(id);
    }

    /// Gets the disk to work on what is queued.
    pub(super) fn kick_disk(&mut self, id: NodeId) {
        let usual = self.setup.nodes[id.index()].disk;
        let disk = &mut self.machines[id.index()].disk;
        let range = disk.latency(usual);
        if let Some(write) = disk.unscheduled() {
            let at = self.now + self.draw(range);
            self.queue.push(at, Event::DiskDone { node: id, write });
        }
    }

    pub(super) fn disk_done(&mut self, id: NodeId, write: u32) {
        let landed = self.rng.chance(PARTS / 2);
        match self.machines[id.index()].disk.done(write, landed) {
            Some(Written::Durable(generation)) => self.tell(id, 0, Input::Persisted(generation)),
            Some(Written::Failed(generation)) => {
                self.say(id, || String::from("* writing the record fails"));
                self.tell(id, 0, Input::PersistFailed(generation));
            }
            None => {}
        }
        self.kick_disk(id);
    }

    fn arm(&mut self, id: NodeId, lease: RunTimeLease) {
        let machine = &mut self.machines[id.index()];
        machine.runtime.lease = Some(lease);
        machine.guard.deadline = Some(lease.deadline);
        machine.guard.sole = lease.sole;
        machine.guard.step = GuardStep::Watching;
        self.guard_plans(id);
        self.judge();
    }

    fn disarm(&mut self, id: NodeId, deadline: Instant) {
        let machine = &mut self.machines[id.index()];
        machine.runtime.lease = None;
        machine.guard.deadline = Some(deadline);
        self.guard_plans(id);
    }

    fn finished(&mut self, id: NodeId) {
        self.say(id, || String::from("* the daemon has ended"));
        self.machines[id.index()].enabled = false;
        self.end_daemon(id);
    }

    /// The job's future is dropped: its answer reaches nobody, its effects may still land.
    fn cancel(&mut self, id: NodeId, job: JobId) {
        let Some(life) = self.machines[id.index()].daemon.as_ref().map(|d| d.life) else { return };
        for under_way in self.jobs.values_mut().filter(|j| j.caller == id && j.life == life && j.id == job) {
            under_way.cancelled = true;
        }
        for answer in self.answers.values_mut().filter(|a| a.node == id && a.life == life && a.job == Some(job)) {
            answer.life = 0;
        }
    }

    /// The service manager starts the daemon: it reads its record and the run-time record of this boot.
    pub(super) fn start_daemon(&mut self, id: NodeId) {
        let settings = self.setup.settings(id);
        let (incarnation, seed) = (Incarnation(self.rng.draw()), self.rng.draw());
        let machine = &mut self.machines[id.index()];
        if machine.daemon.is_some() || !machine.up {
            return;
        }
        if machine.disk.damaged {
            return self.say(id, || String::from("* the daemon does not start: its record is damaged"));
        }
        machine.lives += 1;
        machine.disk.acknowledged = machine.disk.durable;
        let boot = machine.boot_id();
        let identity = Identity { incarnation, boot, uuid: SystemUuid([id.index() as u8 + 1; 16]), seed };
        let now = machine.clock.read(self.now);
        let node = Node::new(settings, identity, machine.disk.durable, Some(machine.runtime), now);
        machine.daemon = Some(Daemon::new(node, machine.lives));
        let ready = machine.group.ready;
        let lives = machine.lives;
        self.say(id, || format!("* daemon starts, life {lives}"));
        self.step(id, |core, now| core.handle_input(Input::Readiness(ready), now));
    }

    /// The daemon's process ends, by whatever cause; the service stays as it is.
    pub(super) fn end_daemon(&mut self, id: NodeId) {
        let landed = self.rng.chance(PARTS / 2);
        let machine = &mut self.machines[id.index()];
        if machine.daemon.take().is_some() {
            machine.disk.cut_off(landed);
            machine.group.orphan();
            self.judge();
        }
    }

    pub(super) fn start_daemon_at_boot(&mut self, id: NodeId, boot: u32) {
        let machine = &self.machines[id.index()];
        if machine.boots == boot && machine.enabled {
            self.start_daemon(id);
        }
    }

    fn change_token(&mut self, id: NodeId, token: crate::core::Token) {
        self.say(id, || format!("* the service goes on under token {token}"));
        self.machines[id.index()].group.token = token;
        self.judges.use_token(self.now, id, token);
        self.judge();
    }

    /// How long the plan of this node may take, from now, on its own clock.
    pub(super) fn limit(&self, id: NodeId, deadline: Option<Instant>) -> u64 {
        let bound = self.clock(id).after(Span(self.setup.nodes[id.index()].fence_bound));
        let earliest = deadline.map_or(bound, |d| d.min(bound));
        self.machines[id.index()].clock.true_time_of(earliest).max(self.now)
    }

    pub(super) fn cut_clients(&mut self, id: NodeId) {
        if self.machines[id.index()].group.active() {
            self.say(id, || format!("* {} cuts its clients", name(id)));
        }
        self.machines[id.index()].group.cut = true;
        self.judge();
    }
}
