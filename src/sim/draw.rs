//! What a seed draws: a setup that keeps the rules, and a schedule of faults of a few kinds.

use crate::core::{Command, DataModel, FirstShooter, NodeId, Plan, PowerOn, PromoteAfter};

use super::action::{Action, DiskAction, GroupAction, Operator, PathChange, Snatch, SnatchHow, Wires};
use super::disk::DiskMode;
use super::fence::DeviceMode;
use super::machine::Pause;
use super::matching::{Pattern, Property};
use super::rng::{PARTS, Rng};
use super::setup::Setup;
use super::text::{NODES, Range};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// The pair has settled by then.
const CALM: u64 = 15 * SECOND;

/// Longer than what L1 allows a pair of any drawn setup, so that a pair that would wait for ever is caught waiting.
const QUIET: u64 = 130 * SECOND;

/// A kind of fault; a seed draws some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Daemon,
    Pause,
    LongPause,
    Machine,
    Power,
    Cut,
    BadLinks,
    Snatch,
    Device,
    Lie,
    Store,
    Disk,
    OldRecord,
    Group,
    Operator,
    WrongConfirm,
}

const KINDS: [Kind; 16] = [
    Kind::Daemon,
    Kind::Pause,
    Kind::LongPause,
    Kind::Machine,
    Kind::Power,
    Kind::Cut,
    Kind::BadLinks,
    Kind::Snatch,
    Kind::Device,
    Kind::Lie,
    Kind::Store,
    Kind::Disk,
    Kind::OldRecord,
    Kind::Group,
    Kind::Operator,
    Kind::WrongConfirm,
];

/// Kinds that void guarantees are rarer, so that most worlds judge everything.
const RARE: [Kind; 4] = [Kind::LongPause, Kind::Lie, Kind::OldRecord, Kind::WrongConfirm];

pub fn draw_setup(seed: u64, rng: &mut Rng) -> Setup {
    let mut setup = Setup { seed, ..Setup::default() };
    let node = Plan::Node { access: false };
    let plan = rng.pick(&[
        node,
        node,
        node,
        node,
        Plan::Node { access: true },
        Plan::Exclusive,
        Plan::Exclusive,
        Plan::Yielding,
        Plan::ConfirmOnly,
    ]);
    let after = rng.pick(&[PromoteAfter::Fence, PromoteAfter::FenceAndLease]);
    let first = rng.pick(&[FirstShooter::Primary, FirstShooter::Primary, FirstShooter::Standby]);
    let data = rng.pick(&[DataModel::Shared, DataModel::Shared, DataModel::Shared, DataModel::Replicated]);
    let interval = rng.pick(&[500, 1000, 1000]) * MS;
    let power_on = rng.pick(&[PowerOn::Never, PowerOn::Never, PowerOn::AfterPromotion { limit: 3 }]);
    let join_fence = plan != Plan::Yielding && rng.chance(200_000);
    for n in &mut setup.nodes {
        (n.plan, n.promote_after, n.first, n.data, n.power_on) = (plan, after, first, data, power_on);
        n.join_fence = join_fence;
        n.interval = interval;
        n.dead_after = 6 * interval;
        n.term = 12 * interval + 12 * SECOND;
        n.margin = n.least_margin().div_ceil(100 * MS) * 100 * MS;
        n.drift = rng.between(0, 400) as i64 - 200;
        n.bmc = Range(100 * MS, rng.between(1, 30) * 100 * MS);
        n.store = Range(5 * MS, rng.between(1, 10) * 50 * MS);
        n.disk = Range(MS, rng.between(1, 50) * MS);
        n.start = Range(200 * MS, rng.between(2, 40) * 100 * MS);
        n.stop = Range(50 * MS, rng.between(1, 19) * 100 * MS);
    }
    setup.links = rng.between(1, 2) as u8;
    setup.delay = Range(MS / 5, rng.between(1, 40) * MS);
    setup.token_check = rng.chance(300_000);
    // Sealing takes most of a world's time, so few worlds do it.
    setup.wire = rng.chance(30_000);
    setup.newer = setup.wire.then(|| rng.pick(&[None, Some(NodeId::First), Some(NodeId::Second)])).flatten();
    setup.bmc_shares_power = rng.chance(200_000);
    setup
}

/// The faults, then the end of all faults; and when the world ends.
pub fn draw_schedule(setup: &Setup, rng: &mut Rng) -> (Vec<(u64, Action)>, u64) {
    let kinds: Vec<Kind> =
        KINDS.into_iter().filter(|k| rng.chance(if RARE.contains(k) { 60_000 } else { 350_000 })).collect();
    let length = rng.between(30, 240) * SECOND;
    let mut schedule = start(rng);
    // Mostly only one of the two loses its record: when both have, nothing that they could know is left.
    let one = rng.pick(&NODES);
    let forgetful = if rng.chance(150_000) { NODES } else { [one, one] };
    if !kinds.is_empty() {
        let mut at = CALM;
        for _ in 0..rng.between(1, 20) {
            at = next_moment(rng, at, length);
            let kind = rng.pick(&kinds);
            Drawing { rng, schedule: &mut schedule, at, forgetful }.fault(kind);
        }
    }
    let quiet = if rng.chance(250_000) { QUIET } else { 0 };
    let until = heal(&mut schedule, setup, CALM + length + quiet);
    schedule.sort_by_key(|(at, _)| *at);
    (schedule, until)
}

/// Faults come in bursts: half of them soon after the one before, some even before the pair has settled.
fn next_moment(rng: &mut Rng, last: u64, length: u64) -> u64 {
    match rng.below(10) {
        0..5 => (last + rng.below(6000) * MS).min(CALM + length),
        5 => rng.below(CALM / MS) * MS,
        _ => CALM + rng.below(length / MS) * MS,
    }
}

/// Both daemons start, often not at once.
fn start(rng: &mut Rng) -> Vec<(u64, Action)> {
    let late = if rng.chance(500_000) { rng.below(5000) * MS } else { 0 };
    let first = rng.pick(&NODES);
    vec![(0, Action::Start(first)), (late, Action::Start(first.peer()))]
}

/// Everything works again. Twice, because a shot or a late command may still land after the first time; then an
/// operator takes back what only an operator may, and once more, because a node that could prove nothing before that
/// has shot its peer only then.
fn heal(schedule: &mut Vec<(u64, Action)>, setup: &Setup, from: u64) -> u64 {
    let n = &setup.nodes[0];
    let round = n.boot + n.join_wait + n.dead_after + n.head_start + 2 * n.fence_bound + n.term + n.start_backoff;
    for at in [from, from + round] {
        schedule.push((at, Action::Mend));
    }
    let asked = from + round + n.boot + 5 * SECOND;
    for node in NODES {
        for command in [Command::ClearAlarms, Command::Thaw] {
            schedule.push((asked, Action::Operator { node, operator: Operator::Plain(command) }));
        }
    }
    schedule.push((asked + round, Action::Mend));
    asked + 3 * round
}

/// One fault on its way into the schedule.
struct Drawing<'a> {
    rng: &'a mut Rng,
    schedule: &'a mut Vec<(u64, Action)>,
    at: u64,
    forgetful: [NodeId; 2],
}

impl Drawing<'_> {
    fn now(&mut self, action: Action) {
        self.schedule.push((self.at, action));
    }

    /// The same a while later: up to 40 s, mostly a few.
    fn later(&mut self, action: Action) {
        let longest = self.rng.pick(&[2000, 8000, 40_000]);
        let at = self.at + (1 + self.rng.below(longest)) * MS;
        self.schedule.push((at, action));
    }

    fn fault(&mut self, kind: Kind) {
        let node = self.rng.pick(&NODES);
        match kind {
            Kind::Daemon => self.daemon(node),
            Kind::Pause => self.pause(node, 1000),
            Kind::LongPause => self.pause(node, 60_000),
            Kind::Machine => self.machine(node),
            Kind::Power => self.power(node),
            Kind::Cut => self.cut(),
            Kind::BadLinks => self.bad_links(),
            Kind::Snatch => self.snatch(node),
            Kind::Device => self.device(node),
            Kind::Lie => {
                self.now(Action::Bmc { node, mode: DeviceMode::Lies });
                self.later(Action::Bmc { node, mode: DeviceMode::Works });
            }
            Kind::Store => self.store(node),
            Kind::Disk => self.disk(node),
            Kind::OldRecord => {
                let node = self.rng.pick(&self.forgetful);
                self.old_record(node);
            }
            Kind::Group => self.group(node),
            Kind::Operator => self.operator(node),
            Kind::WrongConfirm => self.now(Action::Operator { node, operator: Operator::Confirm }),
        }
    }

    fn daemon(&mut self, node: NodeId) {
        if self.rng.chance(600_000) {
            return self.now(Action::RestartDaemon(node));
        }
        self.now(Action::KillDaemon(node));
        self.later(Action::Start(node));
    }

    /// Whole machines within the tolerated pause, unless `longest` says otherwise; processes for as long as one likes.
    fn pause(&mut self, node: NodeId, longest: u64) {
        let what = self.rng.pick(&[Pause::Daemon, Pause::Processes, Pause::Suspend, Pause::Hypervisor]);
        let whole = matches!(what, Pause::Suspend | Pause::Hypervisor);
        let longest = if whole { longest } else { 40_000 };
        let length = (1 + self.rng.below(longest)) * MS;
        self.now(Action::Pause { node, what, length });
    }

    fn machine(&mut self, node: NodeId) {
        match self.rng.below(4) {
            0 => self.now(Action::Reboot { node, after: None }),
            1 | 2 => {
                let after = Some(self.rng.between(200, 4000) * MS);
                self.now(Action::Reboot { node, after });
            }
            _ => {
                self.now(Action::Crash(node));
                self.later(Action::Reboot { node, after: Some(SECOND) });
            }
        }
    }

    fn power(&mut self, node: NodeId) {
        let action = if self.rng.chance(500_000) { Action::PowerOff(node) } else { Action::PowerCut(node) };
        self.now(action);
        self.later(Action::PowerOn(node));
    }

    fn wires(&mut self) -> Wires {
        let from = self.rng.pick(&[[true, true], [true, true], [true, false], [false, true]]);
        let link = if self.rng.chance(800_000) { None } else { Some(self.rng.below(2) as u8) };
        Wires { from, link }
    }

    fn cut(&mut self) {
        let wires = self.wires();
        self.now(Action::Cut(wires));
        self.later(Action::Heal(wires));
    }

    fn bad_links(&mut self) {
        let wires = self.wires();
        let some = |rng: &mut Rng, most: u64| rng.chance(400_000).then(|| rng.below(most) as u32 / 1000 * 1000);
        let change = PathChange {
            delay: self.rng.chance(300_000).then(|| Range(MS, self.rng.between(1, 1500) * MS)),
            loss: some(self.rng, 900_000),
            reorder: some(self.rng, 300_000),
            duplicate: some(self.rng, 300_000),
            corrupt: some(self.rng, 300_000),
            flap: self.rng.chance(200_000).then(|| (self.rng.between(1, 5) * SECOND, self.rng.between(1, 5) * SECOND)),
        };
        self.now(Action::Change { wires, change });
        self.later(Action::HealAll);
    }

    fn snatch(&mut self, from: NodeId) {
        let property = self.rng.pick(&[
            Property::Grant,
            Property::Release,
            Property::Claim,
            Property::Admitted,
            Property::Wish,
            Property::Leave,
            Property::Freeze,
            Property::Cannot,
            Property::Holding,
            Property::Attempt,
            Property::Proof,
        ]);
        let then = self.at + self.rng.between(200, 30_000) * MS;
        let how = match self.rng.below(3) {
            0 => SnatchHow::Drop { until: Some(then) },
            1 => SnatchHow::Hold { until: then },
            _ => SnatchHow::Repeat { at: then },
        };
        let count = Some(self.rng.between(1, 6) as u32);
        self.now(Action::Snatch(Snatch { from, pattern: Pattern(vec![property]), how, count }));
    }

    fn mode(&mut self, latest: u64) -> DeviceMode {
        let late = DeviceMode::Late(self.rng.between(500, latest) * MS);
        self.rng.pick(&[
            DeviceMode::Refuses,
            DeviceMode::Unreachable,
            DeviceMode::LosesCommands,
            DeviceMode::LosesAnswers,
            late,
        ])
    }

    fn device(&mut self, node: NodeId) {
        let mode = self.mode(20_000);
        self.now(Action::Bmc { node, mode });
        self.later(Action::Bmc { node, mode: DeviceMode::Works });
    }

    fn store(&mut self, node: NodeId) {
        // A revocation that lands later than its agent declares (`settle`) is one that nobody can allow for.
        let mode = self.mode(2_000);
        self.now(Action::Store { node, mode });
        self.later(Action::Store { node, mode: DeviceMode::Works });
    }

    fn disk(&mut self, node: NodeId) {
        let slow = DiskMode::Slow(Range(100 * MS, self.rng.between(1, 50) * 100 * MS));
        let mode = self.rng.pick(&[slow, slow, DiskMode::Stalled, DiskMode::Full, DiskMode::FailingSync]);
        self.now(Action::Disk { node, action: DiskAction::Mode(mode) });
        self.later(Action::Disk { node, action: DiskAction::Mode(DiskMode::Works) });
    }

    /// A copy is taken, and put back (or the record lost) while the machine is down.
    fn old_record(&mut self, node: NodeId) {
        self.now(Action::Disk { node, action: DiskAction::Save });
        let at = self.at + self.rng.between(5, 60) * SECOND;
        let action = self.rng.pick(&[DiskAction::Restore, DiskAction::Wipe]);
        self.schedule.push((at, Action::PowerOff(node)));
        self.schedule.push((at + SECOND, Action::Disk { node, action }));
        self.schedule.push((at + 2 * SECOND, Action::PowerOn(node)));
    }

    fn group(&mut self, node: NodeId) {
        let action = self.rng.pick(&[
            GroupAction::StartFails,
            GroupAction::StartHangs,
            GroupAction::StopHangs,
            GroupAction::KillHangs,
            GroupAction::Fail,
            GroupAction::Ready(false),
        ]);
        self.now(Action::Group { node, action });
        if action != GroupAction::Fail {
            self.later(Action::Group { node, action: GroupAction::Works });
            self.later(Action::Group { node, action: GroupAction::Ready(true) });
        }
    }

    fn operator(&mut self, node: NodeId) {
        let command = self.rng.pick(&[
            Command::Failover { force: false },
            Command::Failover { force: false },
            Command::Failover { force: true },
            Command::Fence,
            Command::Freeze,
            Command::Thaw,
            Command::Stop,
            Command::Init,
        ]);
        self.now(Action::Operator { node, operator: Operator::Plain(command) });
        match command {
            Command::Stop => self.later(Action::Start(node)),
            Command::Freeze => self.frozen(node),
            _ => {}
        }
    }

    /// A frozen pair is thawed some time; before that its primary's daemon may end and leave the service up.
    fn frozen(&mut self, node: NodeId) {
        if self.rng.chance(PARTS / 3) {
            let keeper = self.rng.pick(&NODES);
            let at = self.at + self.rng.between(1, 5) * SECOND;
            let operator = Operator::Plain(Command::StopKeeping);
            self.schedule.push((at, Action::Operator { node: keeper, operator }));
            self.later(Action::Start(keeper));
        }
        self.later(Action::Operator { node, operator: Operator::Plain(Command::Thaw) });
    }
}
