//! From the configuration to what one node's protocol machine needs.

use super::checked::Config;
use crate::core::{NodeId, Settings};

impl Config {
    /// The parameters of the core, for the node that this process is.
    pub fn settings(&self, me: NodeId) -> Settings {
        let t = &self.timing;
        Settings {
            me,
            interval: t.interval,
            dead_after: t.dead_after,
            term: t.term,
            margin: t.margin,
            head_start: t.head_start,
            first_shooter: self.fence.first,
            fence_bound: t.fence_bound,
            settle: t.settle,
            join_wait: t.join_wait,
            join_fence: t.join_fence,
            promote_after: t.promote_after,
            plan: self.fence.plan,
            stores_tokens: self.stores_tokens(),
            data: self.data,
            leave_timeout: t.leave_timeout,
            start_backoff: t.start_backoff,
            power_on: self.fence.power_on,
            digest: self.digest,
        }
    }

    /// Whether any agent keeps tokens that a start by `Fenced` or `Confirmed` has to ask for (protocol section 3).
    fn stores_tokens(&self) -> bool {
        self.fence.agents.iter().any(|a| a.kind.takes())
    }
}
