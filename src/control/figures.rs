//! What is counted and timed, as `status` tells it.

use serde::{Deserialize, Serialize};

/// How long the daemon's loop, or the machine, stood still, against what the margin allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stalls {
    pub longest_ms: u64,
    /// P: the tolerated pause.
    pub allowed_ms: u64,
    /// How many were above half of that.
    pub long: u64,
    /// How late the daemon's loop was woken, which sends heartbeats and keeps the lease.
    #[serde(default)]
    pub daemon: Lateness,
    /// How late the guard was; null while none runs.
    #[serde(default)]
    pub guard: Option<Lateness>,
}

/// How late somebody was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lateness {
    pub since_start: Late,
    /// And up to ten minutes more.
    pub last_hour: Late,
}

/// Of all times that he was woken: half were not later than `p50_us`, all but one in a thousand not later than `p99_9_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Late {
    pub count: u64,
    pub p50_us: u64,
    pub p99_9_us: u64,
    pub longest_us: u64,
}

/// Orderly stops of this node's resources, verification included, over all lives of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stops {
    pub count: u64,
    pub last_ms: u64,
    pub longest_ms: u64,
    /// S: what the lease's margin allows.
    pub budget_ms: u64,
}

/// What the control server counts, since the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Open now.
    pub connections: u64,
    pub requests: u64,
    /// Lines that were no request.
    pub bad_requests: u64,
    /// Requests and connections that credentials did not allow.
    pub denied: u64,
    /// Connections turned away because too many were open.
    pub turned_away: u64,
    /// Connections dropped because they did not read, or said nothing for too long.
    pub dropped: u64,
}
