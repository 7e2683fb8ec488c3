//! L1 from outside: with a truthful fence path and one live, ready node that has had contact since it booted, somebody
//! serves within a bound.
//!
//! Looked at whenever something is about to be done to the world, and at its end: until then nothing was done to it for
//! a while, so that what holds now has held since. Worlds in between (bad links, devices that sulk) are not judged: L1
//! promises nothing there.

use crate::core::{DataModel, NodeId, Plan, Standing};

use super::disk::DiskMode;
use super::fence::DeviceMode;
use super::judges::Guarantee;
use super::resources::Group;
use super::text::{self, NODES, show_time};
use super::world::World;

/// How the two stand to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    /// Both are healthy, and every link works.
    Contact,
    /// The peer runs no daemon, or no link works in any direction.
    Silence,
    /// Anything else.
    Unclear,
}

impl World {
    /// Accuses the pair if nobody serves although somebody should have begun to by now.
    pub(super) fn judge_l1(&mut self) {
        let Some(lapse) = self.lapse() else { return };
        let since = lapse.max(self.disturbed);
        let found = NODES.into_iter().find(|n| self.should_serve(*n) && self.now - since > self.bound(*n));
        if let Some(node) = found {
            let text = format!("nobody serves for {}, and {} could", show_time(self.now - since), text::name(node));
            self.judges.accuse(self.now, Guarantee::L1, text);
        }
    }

    /// Since when nobody serves; `None` while somebody does.
    fn lapse(&self) -> Option<u64> {
        let ends = NODES.map(|n| self.judges.served[n.index()].last().map_or(0, |(_, to)| *to));
        let last = ends[0].max(ends[1]);
        (last < u64::MAX).then_some(last)
    }

    /// Patience of a fresh daemon, silence, an attempt that fails and one that does not, the end of a lease, a failed
    /// start before, stop and start: generous, for what L1 forbids is mostly that it never happens.
    fn bound(&self, node: NodeId) -> u64 {
        let n = &self.setup.nodes[node.index()];
        let silence = n.join_wait + n.dead_after + 4 * n.interval + 2 * n.head_start;
        let steps = n.stop_budget + n.reset + n.start.1 + 8 * (n.disk.1 + n.store.1) + n.bmc.1;
        silence + 3 * n.fence_bound + n.term + n.settle + n.start_backoff + steps
    }

    fn should_serve(&self, node: NodeId) -> bool {
        if !self.is_healthy(node) || !self.is_ready(node) {
            return false;
        }
        match self.between(node) {
            Between::Contact => true,
            Between::Silence => self.may_act_alone(node),
            Between::Unclear => false,
        }
    }

    /// Runs, undisturbed, on a disk and a storage that work, with a record that nobody tampered with.
    fn is_healthy(&self, node: NodeId) -> bool {
        let machine = &self.machines[node.index()];
        let runs = machine.up && machine.paused.is_none() && machine.daemon.is_some() && machine.enabled;
        let disk = &machine.disk;
        let writes = disk.mode == DiskMode::Works && !disk.poisoned;
        let known = disk.durable.is_some_and(|r| !r.frozen && !r.rolled_back && r.distrusted.is_empty());
        let group = machine.group.faults == Group::new(1, true).faults;
        runs && writes && known && group && self.store.mode[node.index()] == DeviceMode::Works
    }

    fn is_ready(&self, node: NodeId) -> bool {
        let machine = &self.machines[node.index()];
        machine.group.ready && machine.runtime.had_contact
    }

    fn between(&self, node: NodeId) -> Between {
        let peer = node.peer();
        let quiet = self.links.rules.iter().all(|r| r.is_over(self.now));
        let paths = || self.links.paths.iter().flatten();
        let gone = self.machines[peer.index()].daemon.is_none();
        if gone || quiet && paths().all(|p| p.cut) && self.is_healthy(peer) {
            Between::Silence
        } else if quiet && paths().all(|p| p.is_good(&self.setup)) && self.is_healthy(peer) && self.is_ready(peer) {
            Between::Contact
        } else {
            Between::Unclear
        }
    }

    /// Where one of the two has to prove the other harmless, by a truthful device, and may.
    fn may_act_alone(&self, node: NodeId) -> bool {
        let setup = &self.setup.nodes[node.index()];
        let peer = node.peer();
        let standing = self.machines[node.index()].disk.durable.map(|r| r.standing);
        // Replicated: one that joins alone waits, and nothing outside tells it from one that stood by.
        let data = setup.data == DataModel::Shared || standing == Some(Standing::Sole);
        let outage = self.setup.bmc_shares_power && self.machines[peer.index()].outage;
        let truthful = self.bmcs[peer.index()].mode == DeviceMode::Works && !outage && self.judges.void.s1.is_none();
        match setup.plan {
            Plan::Node { .. } => data && truthful,
            // A `Sole` primary that dies before it has admitted its peer takes the service with it.
            Plan::Exclusive => data && standing != Some(Standing::Out) && self.judges.void.s1.is_none(),
            Plan::Yielding | Plan::ConfirmOnly => false,
        }
    }
}
