//! A node of a made-up world with the settings of a real configuration.

use crate::core::Settings;

use super::setup::NodeSetup;

impl NodeSetup {
    /// A node whose core gets exactly these settings. What they do not say (drift, budgets, latencies) stays as in the
    /// default. Of the digest only a part is kept: all that matters is whether both nodes have the same.
    pub fn of(settings: &Settings) -> NodeSetup {
        let [.., a, b, c, d, e, f, g, h] = settings.digest.0;
        NodeSetup {
            interval: settings.interval.0,
            dead_after: settings.dead_after.0,
            term: settings.term.0,
            margin: settings.margin.0,
            head_start: settings.head_start.0,
            first: settings.first_shooter,
            fence_bound: settings.fence_bound.0,
            settle: settings.settle.0,
            join_wait: settings.join_wait.0,
            join_fence: settings.join_fence,
            promote_after: settings.promote_after,
            plan: settings.plan,
            data: settings.data,
            leave_timeout: settings.leave_timeout.0,
            start_backoff: settings.start_backoff.0,
            power_on: settings.power_on,
            digest: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            ..NodeSetup::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Digest, NodeId};
    use crate::sim::setup::Setup;

    #[test]
    fn the_core_gets_back_what_was_given() {
        let mut setup = Setup { token_check: true, ..Setup::default() };
        setup.nodes[1].head_start = 7;
        let mut settings = setup.settings(NodeId::Second);
        settings.digest = Digest([0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        setup.nodes[1] = NodeSetup::of(&settings);
        assert_eq!(setup.settings(NodeId::Second), settings);
    }
}
