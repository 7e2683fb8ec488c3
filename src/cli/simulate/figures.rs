//! What a configuration does not say and a simulation needs: measured by the operator, or assumed and told.

use crate::cli::args::Simulate;
use crate::config::Checked;
use crate::core::{NodeId, Plan};
use crate::sim::text::{NODES, Range};
use crate::sim::{NodeSetup, Rng, Setup};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// Of a service that is neither tiny nor a large database.
const START: Range = Range(500 * MS, 2 * SECOND);
const STOP: Range = Range(200 * MS, SECOND);
/// One write of the record with its sync, on a disk that works.
const RECORD: Range = Range(MS, 20 * MS);
/// Asking the storage, where only power is fenced.
const STORAGE: Range = Range(5 * MS, 50 * MS);
/// Three stalls in four are within what most configurations tolerate, one is not.
const STALLS: Range = Range(100 * MS, 4 * SECOND);
const STALL_EVERY: u64 = 24 * 3600 * SECOND;

/// All times in nanoseconds, drawn evenly between both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub round_trip: Range,
    /// Share of the datagrams of each link and direction that are lost, each by itself, in parts of a million.
    pub loss: u32,
    /// From the order of a fence attempt to its verified end.
    pub fence_latency: Range,
    /// Of the whole group.
    pub start: Range,
    pub stop: Range,
    pub stalls: Range,
    /// Of each node, on average.
    pub stall_every: u64,
}

impl Figures {
    /// What was given, else what the configuration lets one expect.
    pub fn of(checked: &Checked, given: &Simulate) -> Figures {
        let bounds = &checked.arithmetic.bounds;
        let expected = bounds.fence.as_ref().map_or(SECOND, |fence| fence.typical.0);
        let trip = checked.config.timing.round_trip.0;
        let (most, budget) = (bounds.start.0, checked.config.timing.stop_budget.0);
        Figures {
            round_trip: given.round_trip.unwrap_or(Range(trip / 4, trip)),
            loss: given.loss.unwrap_or(0),
            fence_latency: given.fence_latency.unwrap_or(Range(expected * 3 / 4, expected * 5 / 4)),
            start: given.start_time.unwrap_or(Range(START.0.min(most), START.1.min(most))),
            stop: given.stop_time.unwrap_or(Range(STOP.0.min(budget), STOP.1.min(budget))),
            stalls: given.stalls.unwrap_or(STALLS),
            stall_every: given.stall_every.unwrap_or(STALL_EVERY).max(1),
        }
    }

    /// A world of this pair: its own settings, and around them what these figures say. Drifts are drawn.
    pub fn setup(&self, checked: &Checked, rng: &mut Rng) -> Setup {
        let config = &checked.config;
        let plan = config.fence.plan;
        let nodes = NODES.map(|me| self.around(NodeSetup::of(&config.settings(me)), checked, rng));
        Setup {
            seed: rng.draw(),
            nodes,
            links: config.links.len().clamp(1, 8) as u8,
            delay: in_microseconds(Range(self.round_trip.0 / 2, self.round_trip.1 / 2)),
            loss: self.loss,
            token_check: plan != Plan::Exclusive && config.settings(NodeId::First).stores_tokens,
            // This version has none (docs/SAFETY.md, A7).
            guard: false,
            ..Setup::default()
        }
    }

    /// An attempt is one way to the device, where the `off` lands, a time until it is read back, and one way from there:
    /// how long that time is, if the `off` lands at the share of the attempt at which the configuration expects it.
    /// Whether both nodes of a partition get shot hangs on it.
    fn poll(&self, checked: &Checked) -> u64 {
        let whole = checked.arithmetic.bounds.fence.as_ref().map_or(0, |fence| fence.typical.0);
        let landing = NODES.map(|target| landing(checked, target)).into_iter().max().unwrap_or_default();
        let middle = self.fence_latency.0 / 2 + self.fence_latency.1 / 2;
        let ways = u128::from(middle) * 2 * u128::from(landing) / u128::from(whole.max(1));
        let rest = middle.saturating_sub(u64::try_from(ways).unwrap_or(u64::MAX));
        rest.max(MS).min(self.fence_latency.0) / 1000 * 1000
    }

    fn around(&self, node: NodeSetup, checked: &Checked, rng: &mut Rng) -> NodeSetup {
        let t = &checked.config.timing;
        let rho = i64::from(t.drift_ppm);
        let poll = self.poll(checked);
        let bmc = in_microseconds(Range(self.fence_latency.0 - poll, self.fence_latency.1 - poll));
        NodeSetup {
            pause: t.pause.0,
            stop_budget: t.stop_budget.0,
            reset: t.reset.0,
            rho,
            drift: rng.between(0, 2 * rho.unsigned_abs()) as i64 - rho,
            boot: t.boot_time.0,
            start: in_microseconds(self.start),
            stop: in_microseconds(self.stop),
            steps: checked.config.resources.len().clamp(1, 16) as u32,
            disk: RECORD,
            bmc,
            poll,
            store: if node.plan.reads_power() { STORAGE } else { in_microseconds(self.fence_latency) },
            ..node
        }
    }
}

/// How long it usually takes until an `off` of the first level has landed on this node.
fn landing(checked: &Checked, target: NodeId) -> u64 {
    let agents = || checked.config.agents_against(target);
    let first = agents().map(|agent| agent.level).min();
    agents().filter(|agent| Some(agent.level) == first).map(|agent| agent.typical.0).max().unwrap_or_default()
}

/// What a script can say, so that the worlds of its schedule are the same.
fn in_microseconds(range: Range) -> Range {
    Range(range.0 / 1000 * 1000, range.1 / 1000 * 1000)
}
