//! What is explored: the settings of the pair, and how many faults of each kind one path may hold.

use leasehold::core::{DataModel, Digest, FirstShooter, Instant, NodeId, Plan, PowerOn, PromoteAfter, Settings, Span};

/// The grid of time: one heartbeat interval. Four nanoseconds, so that the core's quarters of it are whole.
pub const H: u64 = 4;
/// How long the guard lets a stop go on after the deadline; the margin holds it twice.
pub const STOP: Span = Span(H);
/// When every world begins: far enough from zero that nothing lies before the boot.
pub const BEGIN: Instant = Instant(1000);

/// How many faults one path may hold; each is spent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// Datagrams lost one by one.
    pub lose: u8,
    /// Datagrams that arrive later, out of order, or after a restart.
    pub hold: u8,
    /// Datagrams that arrive at once, and later again.
    pub copy: u8,
    /// Directions cut, and healed.
    pub cut: u8,
    pub heal: u8,
    /// Writes, jobs, starts and stops that take time.
    pub slow: u8,
    /// Jobs and starts that fail.
    pub fail: u8,
    /// Fence devices that say off and do nothing.
    pub lie: u8,
    pub crash_daemon: u8,
    pub crash_node: u8,
    /// Machines that lose their power.
    pub power: u8,
    /// Machines that boot (again).
    pub boot: u8,
    pub command: u8,
    /// Times that a node becomes unready or ready.
    pub flip: u8,
}

/// What an operator may ask in this model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    Failover,
    Freeze,
    Thaw,
    Stop,
    Fence,
    /// Truthfully: only of a peer that is down.
    Confirm,
}

/// How a world stands when the exploration begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Neither node ever had a record.
    Cold,
    /// The first is primary, the second its admitted standby.
    Settled,
    /// Settled, then frozen.
    Frozen,
}

/// One model.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub name: &'static str,
    pub plan: Plan,
    pub promote_after: PromoteAfter,
    pub data: DataModel,
    pub first: FirstShooter,
    pub join_fence: bool,
    pub dead_after: u64,
    pub term: u64,
    /// T as a daemon has it that starts later.
    pub later_term: u64,
    pub head_start: u64,
    /// The bound of one attempt.
    pub fence: u64,
    /// What is called off only revokes, and says so.
    pub weak: bool,
    /// Faults too small to excuse that the second shooter shoots a healthy peer or, asked for a failover, that the
    /// releaser takes back.
    pub in_turn: bool,
    pub start: Start,
    pub asks: &'static [Ask],
    pub budget: Budget,
}

impl Setup {
    pub const BASE: Setup = Setup {
        name: "base",
        plan: Plan::Node { access: false },
        promote_after: PromoteAfter::Fence,
        data: DataModel::Shared,
        first: FirstShooter::Primary,
        join_fence: false,
        dead_after: 2,
        term: 6,
        later_term: 6,
        head_start: 1,
        fence: 1,
        weak: false,
        in_turn: false,
        start: Start::Settled,
        asks: &[],
        budget: Budget {
            lose: 0,
            hold: 0,
            copy: 0,
            cut: 0,
            heal: 0,
            slow: 0,
            fail: 0,
            lie: 0,
            crash_daemon: 0,
            crash_node: 0,
            power: 0,
            boot: 0,
            command: 0,
            flip: 0,
        },
    };

    /// The smallest whole numbers of H that keep the order of the real deadlines.
    pub fn settings(&self, me: NodeId, life: u8) -> Settings {
        let h = |n: u64| Span(n * H);
        Settings {
            me,
            interval: h(1),
            dead_after: h(self.dead_after),
            term: h(if life > 1 { self.later_term } else { self.term }),
            margin: h(2),
            head_start: h(self.head_start),
            first_shooter: self.first,
            fence_bound: h(self.fence),
            settle: h(1),
            join_wait: h(self.dead_after + 1),
            join_fence: self.join_fence,
            promote_after: self.promote_after,
            plan: self.plan,
            stores_tokens: self.plan == Plan::Exclusive,
            data: self.data,
            leave_timeout: h(2),
            start_backoff: h(2),
            power_on: PowerOn::Never,
            digest: Digest::default(),
        }
    }

    /// The longest that a disk stalls: beyond the lease, so that what was written for it comes too late.
    pub fn stall(&self) -> Span {
        Span(H * self.term)
    }

    /// Longer than every span that the core compares with the past.
    pub fn horizon(&self) -> Span {
        Span(H * (self.term.max(self.dead_after + 5) + 1))
    }
}
