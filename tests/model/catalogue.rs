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

const WORDS: &[Ask] = &[Ask::Failover, Ask::Freeze, Ask::Stop];
const OLD_WORDS: Setup = Setup { asks: WORDS, budget: Budget { hold: 1, command: 1, cut: 1, ..NONE }, ..BASE };
const STALE_PROBE: Setup = Setup { fence: 3, budget: Budget { power: 1, boot: 1, slow: 1, ..NONE }, ..BASE };
const IN_TURN: Setup =
    Setup { in_turn: true, head_start: 2, term: 8, later_term: 8, budget: Budget { cut: 3, heal: 2, ..NONE }, ..BASE };
/// The standby may shoot while the lease of a healthy primary still has long to run.
const LONG_LEASE: Setup = Setup {
    first: FirstShooter::Standby,
    head_start: 3,
    term: 12,
    later_term: 12,
    budget: Budget { cut: 2, crash_daemon: 1, ..NONE },
    ..BASE
};
const RELEASED: Setup =
    Setup { asks: &[Ask::Failover], budget: Budget { cut: 1, command: 1, crash_daemon: 1, ..NONE }, ..BASE };
const YIELDING: Setup = Setup { plan: Plan::Yielding, ..BASE };
const LEFT: Budget = Budget { command: 1, cut: 2, ..NONE };
const UNHEARD: Budget = Budget { command: 1, hold: 1, cut: 1, heal: 1, ..NONE };
const HEALS: Budget = Budget { cut: 2, heal: 1, crash_daemon: 1, ..NONE };
const REBOOTED: Budget = Budget { crash_node: 1, boot: 1, cut: 2, heal: 2, ..NONE };
const THAWED: Budget = Budget { command: 2, hold: 1, ..NONE };

/// A few faults of different kinds, each put together for one question.
const CORNERS: &[Setup] = &[
    Setup { name: "in turn, primary first", ..IN_TURN },
    Setup { name: "in turn, standby first", first: FirstShooter::Standby, ..IN_TURN },
    Setup { name: "weak fence", weak: true, budget: Budget { cut: 2, heal: 1, ..NONE }, ..BASE },
    Setup { name: "stale probe", ..STALE_PROBE },
    Setup { name: "stale probe, fence+lease", promote_after: PromoteAfter::FenceAndLease, ..STALE_PROBE },
    Setup { name: "long lease, exclusive", plan: Plan::Exclusive, ..LONG_LEASE },
    Setup { name: "long lease, yielding", plan: Plan::Yielding, ..LONG_LEASE },
    Setup { name: "old words", ..OLD_WORDS },
    Setup { name: "old words, exclusive", plan: Plan::Exclusive, ..OLD_WORDS },
    Setup { name: "old words, yielding", plan: Plan::Yielding, ..OLD_WORDS },
    Setup { name: "long lease, shortened", plan: Plan::Exclusive, later_term: 6, ..LONG_LEASE },
    Setup {
        name: "frozen, restarts",
        start: Start::Frozen,
        budget: Budget { cut: 1, crash_daemon: 2, ..NONE },
        ..BASE
    },
    Setup { name: "comes back alone", budget: Budget { cut: 1, crash_node: 1, power: 1, boot: 2, ..NONE }, ..BASE },
    Setup { name: "former primary", ..RELEASED },
    Setup { name: "former primary, yielding", plan: Plan::Yielding, ..RELEASED },
    Setup { name: "failed handover", budget: Budget { command: 1, hold: 1, fail: 1, ..NONE }, ..RELEASED },
    Setup { name: "two handovers", budget: Budget { command: 2, hold: 1, cut: 1, ..NONE }, ..RELEASED },
    Setup { name: "nobody takes back", in_turn: true, budget: Budget { command: 1, hold: 1, ..NONE }, ..RELEASED },
    Setup { name: "left, exclusive", plan: Plan::Exclusive, asks: &[Ask::Stop], budget: LEFT, ..BASE },
    Setup { name: "left, yielding", asks: &[Ask::Stop], budget: Budget { command: 1, hold: 1, ..NONE }, ..YIELDING },
    Setup { name: "unready, yielding", budget: Budget { flip: 2, hold: 1, ..NONE }, ..YIELDING },
    Setup { name: "thawed, yielding", asks: &[Ask::Freeze, Ask::Thaw], budget: THAWED, ..YIELDING },
];

/// Too large for every run.
const DEEP_CORNERS: &[Setup] = &[
    Setup { name: "left unheard, yielding", start: Start::Cold, asks: &[Ask::Stop], budget: UNHEARD, ..YIELDING },
    Setup { name: "long lease that heals, exclusive", plan: Plan::Exclusive, budget: HEALS, ..LONG_LEASE },
    Setup { name: "long lease that heals, yielding", plan: Plan::Yielding, budget: HEALS, ..LONG_LEASE },
    Setup { name: "rebooted and holding", join_fence: true, plan: Plan::Exclusive, budget: REBOOTED, ..BASE },
];

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
    CORNERS.iter().copied().chain(cross(PAIRS.iter(), &[DATAGRAMS, NODE])).collect()
}

/// Every state of each of these is visited in every run; the smallest questions come first.
pub fn every_run() -> Vec<Setup> {
    let mut models = CORNERS.to_vec();
    models.push(LIE);
    models.extend(cross(PAIRS.iter(), &[DATAGRAMS, COMMANDS, NODE, CUTS, DAEMON, SLOW]));
    models
}

/// Where wrong changes of the core are looked for.
#[cfg(feature = "mutants")]
pub fn corners() -> Vec<Setup> {
    CORNERS.iter().copied().chain(cross(PAIRS.iter(), &[DATAGRAMS, COMMANDS, CUTS])).collect()
}

/// Faults of all kinds together: as far as time and memory go.
pub fn long() -> Vec<Setup> {
    let mut models = DEEP_CORNERS.to_vec();
    models.extend(cross(PAIRS.iter().chain(MORE_PAIRS), MIXES));
    models
}
