//! Puts the actions of a script, or of the swarm, into effect.

use crate::core::{Command, Input, NodeId};

use super::action::{Action, DiskAction, GroupAction, Operator, Snatch, SnatchHow, Wires};
use super::disk::DiskMode;
use super::fence::DeviceMode;
use super::links::{Fate, Path, Rule};
use super::machine::Machine;
use super::queue::Event;
use super::resources::Group;
use super::text::NODES;
use super::world::World;

/// What somebody who types `confirm-fenced` is.
const OPERATOR_UID: u32 = 1000;

impl World {
    /// Does this to the world, now.
    pub fn act(&mut self, action: &Action) {
        self.trace.say(self.now, None, || format!("> {action}"));
        match action {
            Action::Start(node) => self.enable(*node),
            Action::KillDaemon(node) => self.kill_daemon(*node),
            Action::RestartDaemon(node) => {
                self.kill_daemon(*node);
                self.start_soon(*node);
            }
            Action::Pause { node, what, length } => self.pause(*node, *what, *length),
            Action::Crash(node) => self.crash(*node),
            Action::Reboot { node, after } => {
                self.crash(*node);
                self.boot_after(*node, after.unwrap_or(self.setup.nodes[node.index()].boot));
            }
            Action::PowerOff(node) => self.power_off(*node),
            Action::PowerCut(node) => {
                self.power_off(*node);
                self.machines[node.index()].outage = true;
            }
            Action::PowerOn(node) => self.power_on(*node),
            Action::Cut(wires) => self.each_path(wires, |path| path.cut = true),
            Action::Heal(wires) => self.each_path(wires, |path| path.cut = false),
            Action::HealAll => self.links.heal(&self.setup),
            Action::Change { wires, change } => self.each_path(wires, |path| change.apply(path)),
            Action::Snatch(snatch) => self.snatch(snatch),
            Action::Bmc { node, mode } => self.bmcs[node.index()].mode = *mode,
            Action::Store { node, mode } => self.store.mode[node.index()] = *mode,
            Action::Revoke { node, revoked } => self.store.revoked[node.index()] = *revoked,
            Action::Disk { node, action } => self.disk_action(*node, *action),
            Action::Group { node, action } => self.group_action(*node, *action),
            Action::Operator { node, operator } => {
                let slot = self.words.put(*operator);
                self.queue.push(self.now, Event::Operator { node: *node, slot });
            }
            // The script's reader has tried this key and value already.
            Action::Set { key, value } => drop(self.setup.set(key, value)),
            Action::GenerationId(node) => self.tell(*node, 0, Input::GenerationIdChanged),
            Action::Mend => NODES.into_iter().for_each(|node| self.mend(node)),
        }
        self.judge();
    }

    fn enable(&mut self, node: NodeId) {
        let machine = &mut self.machines[node.index()];
        machine.enabled = true;
        self.queue.push(self.now, Event::StartDaemon { node, boot: machine.boots });
    }

    /// SIGKILL reaches a stopped process, but nothing in a guest that stands still.
    fn kill_daemon(&mut self, node: NodeId) {
        if !self.machines[node.index()].frozen() {
            self.end_daemon(node);
        }
    }

    fn start_soon(&mut self, node: NodeId) {
        let boot = self.machines[node.index()].boots;
        let delay = self.setup.nodes[node.index()].daemon_start;
        self.queue.push(self.now + delay, Event::StartDaemon { node, boot });
    }

    fn crash(&mut self, node: NodeId) {
        if self.machines[node.index()].powered {
            self.kernel_ends(node);
        }
    }

    fn each_path(&mut self, wires: &Wires, change: impl Fn(&mut Path)) {
        for from in NODES.into_iter().filter(|n| wires.from[n.index()]) {
            for (link, path) in self.links.paths[from.index()].iter_mut().enumerate() {
                if wires.link.is_none_or(|wanted| usize::from(wanted) == link) {
                    change(path);
                }
            }
        }
    }

    fn snatch(&mut self, snatch: &Snatch) {
        let (fate, until) = match snatch.how {
            SnatchHow::Drop { until } => (Fate::Drop, until),
            SnatchHow::Hold { until } => (Fate::HoldUntil(until), Some(until)),
            SnatchHow::Repeat { at } => (Fate::RepeatAt(at), Some(at)),
        };
        self.links.rules.push(Rule::new(snatch.from, snatch.pattern.clone(), fate, snatch.count, until));
    }

    /// A record is restored, lost or damaged while no daemon of this node runs; with one it would be an attack.
    fn disk_action(&mut self, node: NodeId, action: DiskAction) {
        let tampers = matches!(action, DiskAction::Restore | DiskAction::Wipe | DiskAction::Damage);
        if tampers && self.machines[node.index()].daemon.is_some() {
            return self.say(node, || String::from("* a daemon runs: its record stays"));
        }
        let disk = &mut self.machines[node.index()].disk;
        match action {
            DiskAction::Mode(mode) => disk.mode = mode,
            DiskAction::Save => disk.save(),
            DiskAction::Restore => disk.restore(),
            DiskAction::Wipe => disk.wipe(),
            DiskAction::Damage => disk.damaged = true,
        }
        if matches!(action, DiskAction::Restore | DiskAction::Wipe) {
            self.judges.tampered(node, action == DiskAction::Restore);
        }
        self.kick_disk(node);
    }

    fn group_action(&mut self, node: NodeId, action: GroupAction) {
        let group = &mut self.machines[node.index()].group;
        match action {
            GroupAction::StartFails => group.faults.start_fails = true,
            GroupAction::StartHangs => group.faults.start_hangs = true,
            GroupAction::StopHangs => group.faults.stop_hangs = true,
            GroupAction::KillHangs => group.faults.kill_hangs = true,
            GroupAction::Works => group.faults = Group::new(1, true).faults,
            GroupAction::Fail => {
                if group.serving() {
                    group.failed = true;
                    self.tell_failed(node);
                }
            }
            GroupAction::Ready(ready) => {
                group.ready = ready;
                self.tell(node, 0, Input::Readiness(ready));
            }
        }
    }

    pub(super) fn operator_speaks(&mut self, node: NodeId, slot: u32) {
        let Some(operator) = self.words.take(slot) else { return };
        let now = self.clock(node);
        let incident = self.machines[node.index()].daemon.as_ref().map_or(0, |d| d.node.status(now).incident);
        let command = match operator {
            Operator::Plain(command) => command,
            Operator::Confirm => Command::ConfirmFenced { incident, uid: OPERATOR_UID },
        };
        let mut answer = None;
        self.step(node, |core, now| answer = Some(core.command(command, now)));
        match answer {
            None => self.say(node, || String::from("* no daemon hears the operator")),
            Some(Err(refusal)) => self.say(node, || format!("* refused: {refusal}")),
            Some(Ok(())) if operator == Operator::Confirm => self.confirmed(node),
            Some(Ok(())) => {}
        }
    }

    /// The operator said that the peer is down. Who says so of a running machine voids what rests on the word.
    fn confirmed(&mut self, node: NodeId) {
        if self.machines[node.peer().index()].up {
            self.judges.void.s1.get_or_insert("an operator confirmed wrongly");
        }
    }

    /// Every fault of this node's surroundings ends; a machine that is down comes back, a daemon that is dead starts.
    fn mend(&mut self, node: NodeId) {
        self.links.heal(&self.setup);
        self.bmcs[node.index()].mode = DeviceMode::Works;
        self.store.mode[node.index()] = DeviceMode::Works;
        let machine = &mut self.machines[node.index()];
        machine.disk.mode = DiskMode::Works;
        if std::mem::take(&mut machine.disk.damaged) {
            machine.disk.wipe();
            self.judges.tampered(node, false);
        }
        self.kick_disk(node);
        self.group_action(node, GroupAction::Works);
        self.group_action(node, GroupAction::Ready(true));
        self.revive(node);
    }

    fn revive(&mut self, node: NodeId) {
        let machine = &mut self.machines[node.index()];
        machine.enabled = true;
        let Machine { powered, up, .. } = *machine;
        let poisoned = machine.disk.poisoned;
        match (powered, up, machine.daemon.is_some()) {
            (false, _, _) => self.power_on(node),
            (true, false, _) => self.boot_after(node, self.setup.nodes[node.index()].boot),
            (true, true, false) => self.start_soon(node),
            (true, true, true) if poisoned => {
                self.end_daemon(node);
                self.start_soon(node);
            }
            (true, true, true) => {}
        }
    }
}
