//! The models: each pair of settings with each mix of faults.

use leasehold::core::{DataModel, FirstShooter, Plan, PromoteAfter};

use super::setup::{Ask, Budget, Setup, Start};

const BASE: Setup = Setup::BASE;
const NONE: Budget = BASE.budget;
const ALL: &[Ask] = &[Ask::Failover, Ask::Freeze, Ask::Thaw, Ask::Stop, Ask::Fence, Ask::Confirm];

/// The settings under which everything is tried.
const PAIRS: &[Setup] = &[
    Setup { name: "fence", ..BASE },
    Setup { name: "fence+lease", promote_after: PromoteAfter::FenceAndLease, ..BASE },
    Setup { name: "exclusive", plan: Plan::Exclusive, ..BASE },
    Setup { name: "yielding", plan: Plan::Yielding, ..BASE },
    Setup { name: "replicated", data: DataModel::Replicated, ..BASE },
    Setup { name: "standby first", first: FirstShooter::Standby, ..BASE },
    Setup { name: "frozen start", start: Start::Frozen, asks: &[Ask::Thaw], ..BASE },
    Setup { name: "cold start", start: Start::Cold, ..BASE },
];

/// And those that only the long run takes.
const MORE_PAIRS: &[Setup] = &[
    Setup { name: "access", plan: Plan::Node { access: true }, ..BASE },
    Setup { name: "join.fence", join_fence: true, ..BASE },
    Setup { name: "exclusive, standby first", plan: Plan::Exclusive, first: FirstShooter::Standby, ..BASE },
];

const CUTS: (&str, Budget) = ("cuts", Budget { cut: 2, heal: 2, boot: 1, ..NONE });
const DAEMON: (&str, Budget) = ("daemon crash", Budget { cut: 1, heal: 1, crash_daemon: 1, boot: 1, ..NONE });
const NODE: (&str, Budget) = ("node crash", Budget { cut: 1, heal: 1, crash_node: 1, boot: 1, ..NONE });
const DATAGRAMS: (&str, Budget) = ("datagrams", Budget { hold: 1, lose: 1, cut: 1, ..NONE });
const SLOW: (&str, Budget) = ("slow", Budget { cut: 1, heal: 1, slow: 1, boot: 1, fail: 1, ..NONE });
const COMMANDS: (&str, Budget) = ("commands", Budget { cut: 1, heal: 1, command: 1, ..NONE });

const MIXES: &[(&str, Budget)] = &[
    ("restarts", Budget { cut: 2, heal: 1, slow: 1, crash_daemon: 1, boot: 1, hold: 1, ..NONE }),
    ("crashes", Budget { cut: 2, heal: 2, crash_daemon: 1, crash_node: 1, boot: 2, fail: 1, ..NONE }),
    ("slow commands", Budget { cut: 1, heal: 1, slow: 2, command: 1, crash_daemon: 1, ..NONE }),
    ("old datagrams", Budget { hold: 2, slow: 1, cut: 1, flip: 1, lose: 1, copy: 1, ..NONE }),
    ("two commands", Budget { command: 2, flip: 1, cut: 1, slow: 1, ..NONE }),
];

/// A device that lies once: S2 must hold where the start waits for the lease.
const LIE: Setup = Setup {
    name: "lie, fence+lease",
    promote_after: PromoteAfter::FenceAndLease,
    budget: Budget { lie: 1, cut: 1, heal: 1, crash_daemon: 1, ..NONE },
    ..BASE
};

fn with(pair: &Setup, (name, budget): (&str, Budget)) -> Setup {
    // A frozen pair has its own question: what a thaw does.
    let thaws = u8::from(pair.start == Start::Frozen);
    let asks = if budget.command > 0 && pair.asks.is_empty() { ALL } else { pair.asks };
    let budget = Budget { command: budget.command.max(thaws), ..budget };
    Setup { name: format!("{}: {name}", pair.name).leak(), asks, budget, ..*pair }
}

fn cross<'a>(pairs: impl Iterator<Item = &'a Setup>, faults: &[(&str, Budget)]) -> Vec<Setup> {
    pairs.flat_map(|pair| faults.iter().map(|mix| with(pair, *mix))).collect()
}

/// For builds without optimization.
pub fn smallest() -> Vec<Setup> {
    cross(PAIRS.iter().take(4), &[NODE])
}

/// Every state of each of these is visited in every run.
pub fn every_run() -> Vec<Setup> {
    let mut models = cross(PAIRS.iter(), &[CUTS, DAEMON, NODE, DATAGRAMS, SLOW, COMMANDS]);
    models.push(LIE);
    models
}

/// Faults of all kinds together: as far as time and memory go.
pub fn long() -> Vec<Setup> {
    cross(PAIRS.iter().chain(MORE_PAIRS), MIXES)
}

/// Where the mutants of the core are hunted.
pub fn hunts() -> Vec<Setup> {
    every_run()
}
