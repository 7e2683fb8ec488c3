//! Two real nodes, and everything between and around them that may happen in another order.
//!
//! What a step sets off (a datagram, a write, a job, a start, a stop) is *fresh*: before anything else is done it is
//! decided whether that happens now, later, or not at all. Later and not at all are faults, and cost budget. So the
//! usual course is one path, and the faults branch off it.

use std::collections::VecDeque;
use std::rc::Rc;

use leasehold::core::{Command, Datagram, Identity, Incarnation, Input, Instant, Job, Node, NodeId, SystemUuid};

use super::agents::{Store, Work};
use super::judge::{Judge, Violation};
use super::machine::{Doing, Machine};
use super::setup::{Ask, BEGIN, Budget, H, Setup, Start};

pub const NODES: [NodeId; 2] = [NodeId::First, NodeId::Second];

/// One transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// What is fresh happens now.
    Now,
    /// What is fresh happens later.
    Later,
    /// The job takes effect now, its answer comes later.
    AnswerLater,
    /// The datagram arrives now, and once more later.
    Copy,
    /// The datagram is lost, the job or the start fails.
    Never,
    /// The device says off, and nothing happened.
    Lie,
    /// The datagram that was held arrives.
    Deliver(u8),
    /// The write that took its time is durable.
    Written(NodeId),
    /// The job takes effect; its answer comes later still.
    Land(u8),
    /// The job takes effect, if it has not, and is answered.
    Answer(u8),
    Started(NodeId),
    Stopped(NodeId),
    /// To the next instant at which anything is due.
    Advance,
    Wake(NodeId),
    CrashDaemon(NodeId, bool),
    CrashNode(NodeId, bool),
    LosePower(NodeId, bool),
    StartDaemon(NodeId),
    Boot(NodeId),
    /// Datagrams of this node are lost from now on.
    Cut(NodeId),
    Heal(NodeId),
    Operator(NodeId, Ask),
    Flip(NodeId),
}

/// What was set off and is not decided yet.
#[allow(clippy::large_enum_variant)] // a datagram is the common case, and few things are fresh
#[derive(Debug, Clone, Copy, Hash)]
pub enum Fresh {
    Message(Datagram),
    Write(NodeId),
    Job(NodeId, Job),
    Start(NodeId),
    Stop(NodeId),
}

#[derive(Debug, Clone)]
pub struct World {
    pub setup: &'static Setup,
    pub now: Instant,
    pub machines: [Machine; 2],
    pub fresh: VecDeque<Fresh>,
    /// Datagrams that were held back, in the order of their sending.
    pub held: Vec<Datagram>,
    pub works: Vec<Work>,
    pub store: Store,
    pub cut: [bool; 2],
    pub budget: Budget,
    pub judge: Judge,
    pub trace: Option<Vec<String>>,
}

pub type Step = Result<(), Violation>;

impl World {
    /// A world in which nothing has gone wrong yet.
    pub fn new(setup: &'static Setup) -> World {
        let mut world = World {
            setup,
            now: BEGIN,
            machines: NODES.map(Machine::new),
            fresh: VecDeque::new(),
            held: Vec::new(),
            works: Vec::new(),
            store: Store::default(),
            cut: [false; 2],
            budget: Budget::default(),
            judge: Judge::default(),
            trace: None,
        };
        world.prepare().expect("nothing is violated where nothing goes wrong");
        world.budget = setup.budget;
        world
    }

    fn prepare(&mut self) -> Step {
        NODES.into_iter().try_for_each(|id| self.start_daemon(id))?;
        match self.setup.start {
            Start::Cold => return Ok(()),
            Start::Settled => self.go_on(12)?,
            Start::Frozen => {
                self.go_on(12)?;
                self.ask(NodeId::First, Ask::Freeze)?;
                self.go_on(6)?;
            }
        }
        Ok(())
    }

    /// The usual course, for this many intervals.
    fn go_on(&mut self, intervals: u64) -> Step {
        let end = self.now.after(leasehold::core::Span(intervals * H));
        while self.now < end {
            let first = self.actions()[0];
            self.apply(first)?;
        }
        while !self.fresh.is_empty() {
            self.apply(Action::Now)?;
        }
        Ok(())
    }

    pub fn apply(&mut self, action: Action) -> Step {
        self.say(|| format!("{action:?}"));
        match action {
            Action::Now => self.fresh_now(),
            Action::Later => self.fresh_later(),
            Action::AnswerLater => self.fresh_answers_later(),
            Action::Copy => self.fresh_copied(),
            Action::Never => self.fresh_never(),
            Action::Lie => self.fresh_lie(),
            Action::Deliver(i) => {
                let said = self.held.remove(usize::from(i));
                self.deliver(&said)
            }
            Action::Written(id) => self.written(id),
            Action::Land(i) => {
                self.land(usize::from(i));
                Ok(())
            }
            Action::Answer(i) => self.answer(usize::from(i)),
            Action::Started(id) => self.started(id),
            Action::Stopped(id) => self.stopped(id),
            Action::Advance => self.advance(),
            Action::Wake(id) => self.with_daemon(id, |node, now| node.handle_timeout(now)),
            Action::CrashDaemon(id, landed) => {
                self.budget.crash_daemon -= 1;
                self.machines[id.index()].end_daemon(landed);
                self.forget(id)
            }
            Action::CrashNode(id, landed) => {
                self.budget.crash_node -= 1;
                let powered = self.machines[id.index()].powered;
                self.machines[id.index()].go_down(powered, landed);
                self.forget(id)
            }
            Action::LosePower(id, landed) => {
                self.budget.power -= 1;
                self.machines[id.index()].go_down(false, landed);
                self.forget(id)
            }
            Action::StartDaemon(id) => self.start_daemon(id),
            Action::Boot(id) => self.boot(id),
            Action::Cut(id) => {
                self.budget.cut -= 1;
                self.cut[id.index()] = true;
                Ok(())
            }
            Action::Heal(id) => {
                self.budget.heal -= 1;
                self.cut[id.index()] = false;
                Ok(())
            }
            Action::Operator(id, ask) => {
                self.budget.command -= 1;
                self.ask(id, ask)
            }
            Action::Flip(id) => {
                self.budget.flip -= 1;
                let machine = &mut self.machines[id.index()];
                machine.ready = !machine.ready;
                let ready = machine.ready;
                self.tell(id, Input::Readiness(ready))
            }
        }
    }

    /// What the daemon knew and asked for is gone.
    fn forget(&mut self, id: NodeId) -> Step {
        self.orphan(id);
        self.judge.forget(id, self.machines[id.index()].disk.as_ref());
        Ok(())
    }

    fn take_fresh(&mut self) -> Fresh {
        self.fresh.pop_front().expect("a decision is offered only while something is fresh")
    }

    fn fresh_now(&mut self) -> Step {
        match self.take_fresh() {
            Fresh::Message(said) => self.deliver(&said),
            Fresh::Write(id) => self.written(id),
            Fresh::Start(id) => self.started(id),
            Fresh::Stop(id) => self.stopped(id),
            Fresh::Job(id, job) => self.position(id, job).map_or(Ok(()), |i| self.answer(i)),
        }
    }

    fn fresh_later(&mut self) -> Step {
        match self.take_fresh() {
            Fresh::Message(said) => {
                self.budget.hold -= 1;
                self.held.push(said);
            }
            Fresh::Write(id) => {
                self.budget.slow -= 1;
                self.machines[id.index()].stalled_until = Some(self.now.after(self.setup.stall()));
            }
            Fresh::Start(_) | Fresh::Stop(_) | Fresh::Job(..) => self.budget.slow -= 1,
        }
        Ok(())
    }

    fn fresh_answers_later(&mut self) -> Step {
        self.budget.slow -= 1;
        if let Fresh::Job(id, job) = self.take_fresh()
            && let Some(i) = self.position(id, job)
        {
            self.land(i);
        }
        Ok(())
    }

    fn fresh_copied(&mut self) -> Step {
        let Fresh::Message(said) = self.take_fresh() else { return Ok(()) };
        self.budget.copy -= 1;
        self.held.push(said);
        self.deliver(&said)
    }

    fn fresh_never(&mut self) -> Step {
        match self.take_fresh() {
            Fresh::Message(_) => self.budget.lose -= 1,
            Fresh::Job(id, job) => {
                self.budget.fail -= 1;
                if let Some(i) = self.position(id, job) {
                    let work = self.works.remove(i);
                    return self.reply(&work, work.unknown());
                }
            }
            Fresh::Start(id) => {
                self.budget.fail -= 1;
                let service = &mut self.machines[id.index()].service;
                service.doing = Doing::Nothing;
                let epoch = service.epoch;
                return self.tell(id, Input::ResourcesFailed(epoch));
            }
            Fresh::Write(_) | Fresh::Stop(_) => {}
        }
        Ok(())
    }

    fn fresh_lie(&mut self) -> Step {
        let Fresh::Job(id, job) = self.take_fresh() else { return Ok(()) };
        self.budget.lie -= 1;
        self.judge.void = true;
        match self.position(id, job) {
            Some(i) => {
                let work = self.works.remove(i);
                self.reply(&work, work.lied())
            }
            None => Ok(()),
        }
    }

    fn position(&self, id: NodeId, job: Job) -> Option<usize> {
        let life = self.machines[id.index()].lives;
        self.works.iter().position(|w| w.caller == id && w.life == life && w.job == job)
    }

    pub fn deliver(&mut self, said: &Datagram) -> Step {
        let to = said.sender.peer();
        if let Some(daemon) = &self.machines[to.index()].daemon {
            let before = daemon.status(self.now).peer.map(|p| (p.incarnation, p.seq));
            self.tell(to, Input::Datagram(*said))?;
            let daemon = self.machines[to.index()].daemon.as_ref();
            let after = daemon.and_then(|d| d.status(self.now).peer).map(|p| (p.incarnation, p.seq));
            if before != after {
                self.judge.tell(to, said);
            }
            return Ok(());
        }
        self.tell(said.sender.peer(), Input::Datagram(*said))
    }

    fn written(&mut self, id: NodeId) -> Step {
        let machine = &mut self.machines[id.index()];
        let Some((generation, record)) = machine.writing.take() else { return Ok(()) };
        machine.stalled_until = None;
        machine.disk = Some(record);
        self.tell(id, Input::Persisted(generation))
    }

    /// Time passes to the next instant; the guard and the limits of jobs come before everything else.
    fn advance(&mut self) -> Step {
        let Some(next) = self.next_instant() else { return Ok(()) };
        self.now = next;
        for id in NODES {
            if self.machines[id.index()].kill_at().is_some_and(|at| at <= next) {
                self.guard_kills(id)?;
            }
            if self.machines[id.index()].stalled_until.is_some_and(|at| at <= next) {
                self.written(id)?;
            }
        }
        while let Some(i) = self.works.iter().position(|w| w.limit <= next) {
            let work = self.works.remove(i);
            self.run_out(work)?;
        }
        Ok(())
    }

    pub fn start_daemon(&mut self, id: NodeId) -> Step {
        let now = self.now;
        let machine = &mut self.machines[id.index()];
        machine.lives += 1;
        let settings = self.setup.settings(id, machine.lives);
        let life = (id.index() as u64 + 1) * 100 + u64::from(machine.lives);
        let identity = Identity {
            incarnation: Incarnation(life),
            boot: machine.boot_id(),
            uuid: SystemUuid([id.index() as u8 + 1; 16]),
            seed: life,
        };
        let node = Node::new(settings, identity, machine.disk, Some(machine.run_time), now);
        machine.daemon = Some(Rc::new(node));
        let ready = machine.ready;
        self.tell(id, Input::Readiness(ready))
    }

    fn boot(&mut self, id: NodeId) -> Step {
        self.budget.boot -= 1;
        let machine = &mut self.machines[id.index()];
        machine.powered = true;
        machine.up = true;
        machine.boots += 1;
        self.start_daemon(id)
    }

    fn ask(&mut self, id: NodeId, ask: Ask) -> Step {
        let now = self.now;
        self.with_daemon(id, |node, _| {
            let incident = node.status(now).incident;
            let command = match ask {
                Ask::Failover => Command::Failover { force: false },
                Ask::Freeze => Command::Freeze,
                Ask::Thaw => Command::Thaw,
                Ask::Stop => Command::Stop,
                Ask::Fence => Command::Fence,
                Ask::Confirm => Command::ConfirmFenced { incident, uid: 0 },
            };
            // A refusal changes nothing: the state is one already seen.
            let _ = node.command(command, now);
        })
    }

    pub fn tell(&mut self, id: NodeId, input: Input) -> Step {
        self.with_daemon(id, |node, now| node.handle_input(input, now))
    }

    fn with_daemon(&mut self, id: NodeId, act: impl FnOnce(&mut Node, Instant)) -> Step {
        let now = self.now;
        match &mut self.machines[id.index()].daemon {
            Some(daemon) => act(Rc::make_mut(daemon), now),
            None => return Ok(()),
        }
        self.put_into_effect(id)
    }

    pub fn say(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>3} {}", (now.0 - BEGIN.0) as f64 / H as f64, text()));
        }
    }
}
