//! The checked parameters of the protocol (section 2), as the core needs them.

use super::ids::{BootId, Digest, Incarnation, NodeId, SystemUuid};
use super::time::Span;

/// Which node may shoot first when contact is lost (`fence.first`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstShooter {
    Primary,
    Standby,
}

/// When a verified fence of node scope lets the standby start (`promote.after`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromoteAfter {
    Fence,
    FenceAndLease,
}

/// Whether both nodes see one set of data, or each its own replica (`data`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataModel {
    Shared,
    Replicated,
}

/// What the configured fence plan can prove (protocol section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// An agent of node scope must verify; agents of resource scope may add to it (`access`).
    Node { access: bool },
    /// Resource scope with `take`: the storage is the arbiter.
    Exclusive,
    /// Resource scope without `take`: only an admitted standby ever shoots.
    Yielding,
    /// No agent: only an operator's word (`fence = "confirm-only"`).
    ConfirmOnly,
}

impl Plan {
    /// Whether the plan can read the peer's power.
    pub fn reads_power(self) -> bool {
        matches!(self, Plan::Node { .. })
    }

    /// Whether resource-scope agents without `take` may have revoked this node's own access.
    pub fn needs_access(self) -> bool {
        matches!(self, Plan::Node { access: true } | Plan::Yielding)
    }
}

/// How often a fenced peer is switched on again without an operator (`power_on = "after-promotion"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerOn {
    Never,
    AfterPromotion { limit: u32 },
}

/// All parameters of one node's protocol machine. Made by `config`, which has checked the inequalities of section 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub me: NodeId,
    /// H
    pub interval: Span,
    /// D
    pub dead_after: Span,
    /// T
    pub term: Span,
    /// M
    pub margin: Span,
    /// L
    pub head_start: Span,
    pub first_shooter: FirstShooter,
    /// F, the bound of one whole attempt with its verification
    pub fence_bound: Span,
    /// how long an `off` may still land after its attempt ended
    pub settle: Span,
    pub join_wait: Span,
    pub join_fence: bool,
    pub promote_after: PromoteAfter,
    pub plan: Plan,
    /// Some agent or resource stores tokens: ask for the highest before a start by `Fenced` or `Confirmed`.
    pub stores_tokens: bool,
    pub data: DataModel,
    pub leave_timeout: Span,
    /// how long a node that failed to start its resources is not ready
    pub start_backoff: Span,
    pub power_on: PowerOn,
    pub digest: Digest,
}

/// Who this daemon is, for one life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub incarnation: Incarnation,
    pub boot: BootId,
    pub uuid: SystemUuid,
    /// Seed of the random part of the retry interval.
    pub seed: u64,
}
