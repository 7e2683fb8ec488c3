//! The world: true time, two machines, the queue of what happens next.
//!
//! ```text
//! schedule ──► World ──► machines ─ daemon (the shipped core::Node) ─ guard ─ group ─ disk
//!               │  ▲         │ outputs                       ▲ inputs
//!               │  └─────────┴──► links, BMCs, storage ──────┘
//!               └──► judges look at what the machines do
//! ```

use crate::core::{Datagram, Input, Instant, Job as JobId, Node, NodeId, Plan};

use super::action::{Action, Operator};
use super::fence::{Bmc, DeviceMode, Job, Landing, Store};
use super::judges::{Deed, Judges};
use super::links::Links;
use super::machine::Machine;
use super::queue::{Event, Queue, Slab};
use super::rng::Rng;
use super::sealed::Sealed;
use super::setup::Setup;
use super::text::{NODES, Range};
use super::trace::Trace;

/// An answer on its way to a daemon, with the job that it answers.
#[derive(Debug)]
pub struct Answer {
    pub life: u32,
    pub node: NodeId,
    pub job: Option<JobId>,
    pub input: Input,
}

/// Two nodes and everything around them.
#[derive(Debug)]
pub struct World {
    pub setup: Setup,
    pub now: u64,
    pub machines: [Machine; 2],
    pub links: Links,
    /// The power controllers, by the node that they switch.
    pub bmcs: [Bmc; 2],
    pub store: Store,
    pub judges: Judges,
    pub trace: Trace,
    /// The newest datagram that each node sent.
    pub last_sent: [Option<Datagram>; 2],
    /// When something was last done to the world, or came of what was done.
    pub(super) disturbed: u64,
    /// Core steps made, for figures of speed.
    pub steps: u64,
    /// Datagrams travel as bytes.
    pub(super) sealed: Option<Sealed>,
    pub(super) rng: Rng,
    pub(super) queue: Queue,
    pub(super) datagrams: Slab<Datagram>,
    pub(super) answers: Slab<Answer>,
    pub(super) jobs: Slab<Job>,
    pub(super) landings: Slab<Landing>,
    pub(super) words: Slab<Operator>,
    schedule: Vec<(u64, Action)>,
}

impl World {
    /// A world in which both machines are up, nothing runs, and the schedule is going to happen.
    pub fn new(setup: Setup, schedule: Vec<(u64, Action)>, tracing: bool) -> World {
        let mut queue = Queue::default();
        for (index, (at, _)) in schedule.iter().enumerate() {
            queue.push(*at, Event::Act { index: index as u32 });
        }
        let arbitrates = setup.token_check || setup.nodes[0].plan == Plan::Exclusive;
        let bmc = || Bmc { mode: DeviceMode::Works, shots: 0 };
        let mut world = World {
            now: 0,
            machines: NODES.map(|n| Machine::new(n, &setup.nodes[n.index()])),
            links: Links::new(&setup),
            bmcs: [bmc(), bmc()],
            store: Store::new(),
            judges: Judges::new(NODES.map(|n| setup.nodes[n.index()].promote_after), arbitrates),
            trace: Trace { on: tracing, lines: Vec::new() },
            last_sent: [None, None],
            disturbed: 0,
            steps: 0,
            sealed: setup.wire.then(|| Sealed::new(setup.newer)),
            rng: Rng::new(setup.seed),
            queue,
            datagrams: Slab::default(),
            answers: Slab::default(),
            jobs: Slab::default(),
            landings: Slab::default(),
            words: Slab::default(),
            schedule,
            setup,
        };
        world.void_what_the_setup_breaks();
        world
    }

    /// Adds to the schedule of a world that is under way.
    pub fn plan(&mut self, at: u64, action: Action) {
        let index = self.schedule.len() as u32;
        self.schedule.push((at, action));
        self.queue.push(at.max(self.now), Event::Act { index });
    }

    /// All that was, or will be, done to this world.
    pub fn schedule(&self) -> &[(u64, Action)] {
        &self.schedule
    }

    /// Lets everything happen that happens until then, that moment included.
    pub fn run_until(&mut self, until: u64) {
        while let Some((at, event)) = self.queue.pop_until(until) {
            self.now = at;
            self.happen(event);
        }
        self.now = until;
    }

    /// Nothing more is going to happen: what the judges can only see now.
    pub fn finish(&mut self) {
        self.judge_l1();
        self.judges.finish(self.now);
    }

    fn happen(&mut self, event: Event) {
        if let Some(node) = event.guest().filter(|n| self.machines[n.index()].holds_back(event)) {
            return self.defer(node, event);
        }
        if event.disturbs() {
            self.judge_l1();
            self.disturbed = self.now;
        }
        match event {
            Event::Wake { node, life } => self.wake(node, life),
            Event::Deliver { to, slot } => self.deliver(to, slot),
            Event::Answer { node, life, slot } => self.answer(node, life, slot),
            Event::Operator { node, slot } => self.operator_speaks(node, slot),
            Event::DiskDone { node, write } => self.disk_done(node, write),
            Event::Group { node, op } => self.group_step(node, op),
            Event::Guard { node, boot } => self.guard_looks(node, boot),
            Event::Booted { node, boot } => self.booted(node, boot),
            Event::StartDaemon { node, boot } => self.start_daemon_at_boot(node, boot),
            Event::Resume { node, pause } => self.resume(node, pause),
            Event::Job { slot } => self.job_goes_on(slot),
            Event::Landing { slot } => self.lands(slot),
            Event::Reset { node, boot } => self.reset(node, boot),
            Event::Act { index } => {
                let action = self.schedule[index as usize].1.clone();
                self.act(&action);
            }
        }
    }

    /// What the clock of this node shows.
    pub fn clock(&self, node: NodeId) -> Instant {
        self.machines[node.index()].clock.read(self.now)
    }

    pub(super) fn draw(&mut self, range: Range) -> u64 {
        self.rng.between(range.0, range.1)
    }

    pub(super) fn say(&mut self, node: NodeId, text: impl FnOnce() -> String) {
        self.trace.say(self.now, Some(node), text);
    }

    /// Something gets the core of this node to move, if its daemon lives.
    pub(super) fn step(&mut self, id: NodeId, how: impl FnOnce(&mut Node, Instant)) {
        let machine = &mut self.machines[id.index()];
        let now = machine.clock.read(self.now);
        let Some(daemon) = &mut machine.daemon else { return };
        how(&mut daemon.node, now);
        self.steps += 1;
        self.put_into_effect(id);
    }

    fn wake(&mut self, node: NodeId, life: u32) {
        let machine = &mut self.machines[node.index()];
        let now = machine.clock.read(self.now);
        let Some(daemon) = machine.daemon.as_mut().filter(|d| d.life == life && d.wake == self.now) else { return };
        daemon.forget_wake();
        if daemon.node.poll_timeout().is_some_and(|due| due <= now) {
            self.step(node, |core, now| core.handle_timeout(now));
        } else {
            self.schedule_wake(node);
        }
    }

    /// Queues the core's next timer, unless it is queued already.
    pub(super) fn schedule_wake(&mut self, node: NodeId) {
        let machine = &mut self.machines[node.index()];
        let Some(daemon) = &mut machine.daemon else { return };
        let due = daemon.node.poll_timeout();
        if due == daemon.wake_for {
            return;
        }
        daemon.wake_for = due;
        let Some(due) = due else { return };
        let at = machine.clock.true_time_of(due).max(self.now);
        if at < daemon.wake {
            daemon.wake = at;
            self.queue.push(at, Event::Wake { node, life: daemon.life });
        }
    }

    fn deliver(&mut self, to: NodeId, slot: u32) {
        if let (Some(datagram), true) = (self.datagrams.take(slot), self.machines[to.index()].up) {
            self.step(to, |core, now| core.handle_input(Input::Datagram(datagram), now));
        }
    }

    fn answer(&mut self, node: NodeId, life: u32, slot: u32) {
        let Some(answer) = self.answers.take(slot) else { return };
        let alive = self.machines[node.index()].daemon.as_ref().is_some_and(|d| d.life == life);
        if alive {
            if let Input::Persisted(generation) = answer.input {
                self.machines[node.index()].disk.heard(generation);
            }
            self.step(node, |core, now| core.handle_input(answer.input, now));
        }
    }

    /// An input for the daemon that lives on this node now, after `delay`.
    pub(super) fn tell(&mut self, node: NodeId, delay: u64, input: Input) {
        let Some(life) = self.machines[node.index()].daemon.as_ref().map(|d| d.life) else { return };
        self.send_answer(Answer { life, node, job: None, input }, delay);
    }

    pub(super) fn send_answer(&mut self, answer: Answer, delay: u64) {
        let (node, life) = (answer.node, answer.life);
        let slot = self.answers.put(answer);
        self.queue.push(self.now + delay, Event::Answer { node, life, slot });
    }

    /// Shows the judges what the nodes do now. Called wherever that may have changed.
    pub(super) fn judge(&mut self) {
        // Twice, because the first write of the one may raise the token below which the storage refuses the other.
        for node in NODES {
            self.deed(node);
        }
        let deeds = NODES.map(|n| self.deed(n));
        if deeds == self.judges.deeds {
            return;
        }
        for node in NODES {
            let (new, old) = (deeds[node.index()], self.judges.deeds[node.index()]);
            if new.serves != old.serves {
                self.say(node, || String::from(if new.serves { "* serves clients" } else { "* serves no more" }));
            }
        }
        let known = self.judges.violations.len();
        self.judges.deeds(self.now, deeds);
        for violation in &self.judges.violations[known..] {
            self.trace.say(self.now, None, || format!("VIOLATED {:?}: {}", violation.guarantee, violation.text));
        }
    }

    /// What this node does, and whether the storage lets it.
    fn deed(&mut self, node: NodeId) -> Deed {
        let machine = &self.machines[node.index()];
        let token = machine.group.token;
        let acts = machine.acts();
        let reaches = self.store.mode[node.index()] != DeviceMode::Unreachable && !self.store.revoked[node.index()];
        let fresh = !self.setup.token_check || token >= self.store.token;
        let accepted = acts && machine.group.up > 0 && reaches && fresh;
        if accepted && self.setup.token_check {
            self.store.token = token;
        }
        Deed { acts, accepted, serves: machine.serves() && accepted, sole: machine.guard.sole, token }
    }
}
