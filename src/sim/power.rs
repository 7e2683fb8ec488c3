//! Power, boots, pauses and resets of the machines.

use crate::core::{NodeId, Plan, Standing};

use super::clock::Clock;
use super::machine::{Guard, NO_RUN_TIME, Pause, Paused};
use super::queue::Event;
use super::rng::PARTS;
use super::text::{self, NODES};
use super::world::World;

/// A paused socket holds about this many datagrams; the newest are lost.
const SOCKET_HOLDS: usize = 600;

impl World {
    /// What the setup itself breaks, before anything happens.
    pub(super) fn void_what_the_setup_breaks(&mut self) {
        if self.setup.nodes.iter().any(|n| n.drift.abs() > n.rho) {
            self.void_timing("a clock drifts beyond the bound");
        }
        if !self.setup.guard {
            self.void_timing("there is no guard");
        }
    }

    /// Time no longer protects: S2 is void, and S1 where it rests on the lease.
    fn void_timing(&mut self, why: &'static str) {
        self.judges.void.s2.get_or_insert(why);
        if !matches!(self.setup.nodes[0].plan, Plan::Node { .. }) {
            self.judges.void.s1.get_or_insert(why);
        }
    }

    pub(super) fn defer(&mut self, node: NodeId, event: Event) {
        let deferred = &mut self.machines[node.index()].deferred;
        if let (Event::Deliver { slot, .. }, SOCKET_HOLDS..) = (event, deferred.len()) {
            self.datagrams.take(slot);
            return;
        }
        deferred.push(event);
    }

    pub(super) fn pause(&mut self, node: NodeId, what: Pause, length: u64) {
        let now = self.now;
        let machine = &mut self.machines[node.index()];
        if !machine.up || machine.paused.is_some() {
            return;
        }
        machine.paused = Some(Paused { what, since: now });
        machine.pause_serial += 1;
        if what == Pause::Hypervisor {
            machine.clock.stop(now);
        }
        self.queue.push(now + length, Event::Resume { node, pause: machine.pause_serial });
        self.judge();
    }

    pub(super) fn resume(&mut self, node: NodeId, pause: u32) {
        let allowed = self.setup.nodes[node.index()].pause;
        let machine = &mut self.machines[node.index()];
        if machine.pause_serial != pause {
            return;
        }
        let Some(paused) = machine.paused.take() else { return };
        machine.clock.go_on(self.now);
        if machine.daemon.is_some() || machine.up {
            self.say(node, || String::from("* goes on after the pause"));
        }
        let whole = matches!(paused.what, Pause::Suspend | Pause::Hypervisor);
        if whole && self.now - paused.since > allowed {
            self.void_timing("a machine stood still for longer than the tolerated pause");
        }
        self.catch_up(node);
        self.judge();
    }

    /// What waited for the end of the pause happens now; whether timers or datagrams come first is chance.
    fn catch_up(&mut self, node: NodeId) {
        let timers_first = self.rng.chance(PARTS / 2);
        let machine = &mut self.machines[node.index()];
        let deferred = std::mem::take(&mut machine.deferred);
        if let Some(daemon) = &mut machine.daemon {
            daemon.forget_wake();
        }
        if timers_first {
            self.schedule_wake(node);
        }
        for event in deferred {
            self.queue.push(self.now, event);
        }
        if !timers_first {
            self.schedule_wake(node);
        }
    }

    /// The kernel is gone, with everything in memory: daemon, resources, guard, run-time record, pauses.
    pub(super) fn kernel_ends(&mut self, node: NodeId) {
        self.end_daemon(node);
        let machine = &mut self.machines[node.index()];
        machine.up = false;
        machine.boots += 1;
        machine.pause_serial += 1;
        machine.paused = None;
        machine.runtime = NO_RUN_TIME;
        machine.guard = Guard::default();
        machine.group.vanish();
        for event in std::mem::take(&mut machine.deferred) {
            if let Event::Deliver { slot, .. } = event {
                self.datagrams.take(slot);
            }
        }
        self.judge();
    }

    pub(super) fn boot_after(&mut self, node: NodeId, delay: u64) {
        let boot = self.machines[node.index()].boots;
        self.queue.push(self.now + delay, Event::Booted { node, boot });
    }

    pub(super) fn booted(&mut self, node: NodeId, boot: u32) {
        let drift = self.setup.nodes[node.index()].drift;
        let machine = &mut self.machines[node.index()];
        if machine.boots != boot || !machine.powered || machine.up {
            return;
        }
        machine.up = true;
        machine.clock = Clock::booted(self.now, drift);
        let delay = self.setup.nodes[node.index()].daemon_start;
        self.say(node, || format!("* boot {boot}"));
        self.queue.push(self.now + delay, Event::StartDaemon { node, boot });
    }

    pub(super) fn reset(&mut self, node: NodeId, boot: u32) {
        if self.machines[node.index()].boots == boot {
            self.say(node, || String::from("* reset"));
            self.kernel_ends(node);
            self.boot_after(node, self.setup.nodes[node.index()].boot);
        }
    }

    pub(super) fn power_off(&mut self, node: NodeId) {
        if self.machines[node.index()].powered {
            self.say(node, || String::from("* power off"));
            self.machines[node.index()].powered = false;
            self.kernel_ends(node);
        }
    }

    pub(super) fn power_on(&mut self, node: NodeId) {
        let machine = &mut self.machines[node.index()];
        machine.outage = false;
        if !machine.powered {
            machine.powered = true;
            self.say(node, || String::from("* power on"));
            self.boot_after(node, self.setup.nodes[node.index()].boot);
        }
    }

    /// Which node serves, if the pair is whole: one primary, one admitted and ready standby.
    pub fn whole(&self) -> Result<NodeId, String> {
        let serving: Vec<NodeId> = NODES.into_iter().filter(|n| self.judges.deeds[n.index()].serves).collect();
        let [primary] = serving[..] else { return Err(format!("{} nodes serve", serving.len())) };
        let (Some(mine), Some(peers)) = (self.last_sent[primary.index()], self.last_sent[primary.peer().index()])
        else {
            return Err(String::from("a node is silent"));
        };
        let standby = text::name(primary.peer());
        if self.machines[primary.peer().index()].daemon.is_none() {
            return Err(format!("{standby} runs no daemon"));
        }
        let admitted = mine.admitted == Some(peers.incarnation) && peers.standing == Standing::Paired;
        match (admitted, peers.ready) {
            (true, true) => Ok(primary),
            (false, _) => Err(format!("{standby} is not admitted")),
            (true, false) => Err(format!("{standby} is not ready")),
        }
    }
}
