//! Everything that is fixed before a world begins, as `key=value`: scripts write it, failing seeds print it.

use crate::core::{DataModel, Digest, FirstShooter, NodeId, Plan, PowerOn, PromoteAfter, Settings, Span};

use super::text::{self, NODES, Range};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// What one node is configured and built with. Times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSetup {
    pub interval: u64,
    pub dead_after: u64,
    pub term: u64,
    pub margin: u64,
    pub head_start: u64,
    pub first: FirstShooter,
    pub fence_bound: u64,
    pub settle: u64,
    pub join_wait: u64,
    pub join_fence: bool,
    pub promote_after: PromoteAfter,
    pub plan: Plan,
    pub data: DataModel,
    pub leave_timeout: u64,
    pub start_backoff: u64,
    pub power_on: PowerOn,
    pub digest: u64,
    /// P, S, R and the bound ρ: what the margin allows for. The judges hold the faults against these.
    pub pause: u64,
    pub stop_budget: u64,
    pub reset: u64,
    pub rho: i64,
    /// What this node's clock really does.
    pub drift: i64,
    /// From power to kernel, and from kernel (or crash) to daemon.
    pub boot: u64,
    pub daemon_start: u64,
    pub start: Range,
    pub stop: Range,
    pub steps: u32,
    pub ready: bool,
    pub disk: Range,
    /// Round trip to the device that fences THIS node.
    pub bmc: Range,
    /// How long after the order, and then how often, the power of THIS node is read back.
    pub poll: u64,
    /// Round trip of this node to the storage.
    pub store: Range,
}

impl Default for NodeSetup {
    fn default() -> Self {
        NodeSetup {
            interval: 250 * MS,
            dead_after: 1500 * MS,
            term: 15 * SECOND,
            margin: 4200 * MS,
            head_start: SECOND,
            first: FirstShooter::Primary,
            fence_bound: 5 * SECOND,
            settle: 2 * SECOND,
            join_wait: 30 * SECOND,
            join_fence: false,
            promote_after: PromoteAfter::Fence,
            plan: Plan::Node { access: false },
            data: DataModel::Shared,
            leave_timeout: 5 * SECOND,
            start_backoff: 20 * SECOND,
            power_on: PowerOn::Never,
            digest: 1,
            pause: SECOND,
            stop_budget: 2 * SECOND,
            reset: SECOND,
            rho: 200,
            drift: 0,
            boot: 20 * SECOND,
            daemon_start: 100 * MS,
            start: Range(500 * MS, 500 * MS),
            stop: Range(300 * MS, 300 * MS),
            steps: 2,
            ready: true,
            disk: Range(2 * MS, 2 * MS),
            bmc: Range(200 * MS, 200 * MS),
            poll: 250 * MS,
            store: Range(10 * MS, 10 * MS),
        }
    }
}

/// The keys of [`NodeSetup`]; without a node's name before them they set both.
pub const NODE_KEYS: [&str; 32] = [
    "interval",
    "dead-after",
    "term",
    "margin",
    "head-start",
    "fence.first",
    "fence-bound",
    "settle",
    "join.wait",
    "join.fence",
    "promote.after",
    "plan",
    "data",
    "leave-timeout",
    "start-backoff",
    "power-on",
    "digest",
    "pause",
    "stop-budget",
    "reset",
    "rho",
    "drift",
    "boot",
    "daemon-start",
    "start",
    "stop",
    "steps",
    "ready",
    "disk",
    "bmc",
    "poll",
    "store",
];

/// A whole world before it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    pub seed: u64,
    pub nodes: [NodeSetup; 2],
    pub links: u8,
    pub delay: Range,
    pub loss: u32,
    pub reorder: u32,
    pub duplicate: u32,
    /// The storage refuses writes under a token lower than one it has seen.
    pub token_check: bool,
    /// The guard of section 7 runs.
    pub guard: bool,
    /// A real loss of power takes the node's BMC along.
    pub bmc_shares_power: bool,
    /// Datagrams travel sealed, as bytes.
    pub wire: bool,
    /// Sealed: the node whose program is one version ahead, in the middle of a rolling upgrade.
    pub newer: Option<NodeId>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            seed: 1,
            nodes: [NodeSetup::default(), NodeSetup::default()],
            links: 2,
            delay: Range(MS / 5, MS),
            loss: 0,
            reorder: 0,
            duplicate: 0,
            token_check: false,
            guard: true,
            bmc_shares_power: false,
            wire: false,
            newer: None,
        }
    }
}

const WORLD_KEYS: [&str; 11] = [
    "seed",
    "links",
    "delay",
    "loss",
    "reorder",
    "duplicate",
    "token-check",
    "guard",
    "bmc.shares-power",
    "wire",
    "newer",
];

impl Setup {
    /// Sets `key`, `heron.key` or `plover.key`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if WORLD_KEYS.contains(&key) {
            return self.set_world(key, value);
        }
        match key.split_once('.') {
            Some((name, rest)) if text::NAMES.contains(&name) => self.nodes[text::node(name)?.index()].set(rest, value),
            _ => self.nodes.iter_mut().try_for_each(|n| n.set(key, value)),
        }
    }

    fn set_world(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "seed" => self.seed = text::number(value)?,
            "links" => self.links = text::number(value)?.clamp(1, 8) as u8,
            "delay" => self.delay = text::range(value)?,
            "loss" => self.loss = text::share(value)?,
            "reorder" => self.reorder = text::share(value)?,
            "duplicate" => self.duplicate = text::share(value)?,
            "token-check" => self.token_check = text::yes(value)?,
            "guard" => self.guard = text::yes(value)?,
            "bmc.shares-power" => self.bmc_shares_power = text::yes(value)?,
            "wire" => self.wire = text::yes(value)?,
            _ => self.newer = if value == "none" { None } else { Some(text::node(value)?) },
        }
        Ok(())
    }

    fn get_world(&self, key: &str) -> String {
        match key {
            "seed" => self.seed.to_string(),
            "links" => self.links.to_string(),
            "delay" => text::show_range(self.delay),
            "loss" => text::show_share(self.loss),
            "reorder" => text::show_share(self.reorder),
            "duplicate" => text::show_share(self.duplicate),
            "token-check" => text::show_yes(self.token_check),
            "guard" => text::show_yes(self.guard),
            "bmc.shares-power" => text::show_yes(self.bmc_shares_power),
            "wire" => text::show_yes(self.wire),
            _ => self.newer.map_or("none", |node| text::NAMES[node.index()]).to_owned(),
        }
    }

    /// All that differs from the default, as lines for a script.
    pub fn lines(&self) -> Vec<String> {
        let default = Setup::default();
        let mut lines = Vec::new();
        for key in WORLD_KEYS {
            let value = self.get_world(key);
            if value != default.get_world(key) {
                lines.push(format!("config {key}={value}"));
            }
        }
        for key in NODE_KEYS {
            let [a, b, d] = [&self.nodes[0], &self.nodes[1], &default.nodes[0]].map(|n| n.get(key));
            if a == b && a != d {
                lines.push(format!("config {key}={a}"));
            } else if a != b {
                lines.push(format!("config heron.{key}={a} plover.{key}={b}"));
            }
        }
        lines
    }

    /// What the core of this node is given.
    pub fn settings(&self, me: NodeId) -> Settings {
        let n = &self.nodes[me.index()];
        Settings {
            me,
            interval: Span(n.interval),
            dead_after: Span(n.dead_after),
            term: Span(n.term),
            margin: Span(n.margin),
            head_start: Span(n.head_start),
            first_shooter: n.first,
            fence_bound: Span(n.fence_bound),
            settle: Span(n.settle),
            join_wait: Span(n.join_wait),
            join_fence: n.join_fence,
            promote_after: n.promote_after,
            plan: n.plan,
            stores_tokens: self.token_check || n.plan == Plan::Exclusive,
            data: n.data,
            leave_timeout: Span(n.leave_timeout),
            start_backoff: Span(n.start_backoff),
            power_on: n.power_on,
            digest: Digest(u128::from(n.digest).to_be_bytes()),
        }
    }

    /// The rules of section 2 that a world must keep for its judges to be right; the text names the broken one.
    pub fn broken_rule(&self) -> Option<String> {
        NODES
            .into_iter()
            .find_map(|id| self.nodes[id.index()].broken_rule().map(|r| format!("{}: {r}", text::name(id))))
    }
}

impl NodeSetup {
    /// M must cover 2ρT + P + S + R, and T − M the silence D.
    fn broken_rule(&self) -> Option<String> {
        let least = self.least_margin();
        if self.margin < least {
            return Some(format!("margin {} < {}", text::show_time(self.margin), text::show_time(least)));
        }
        if self.term.saturating_sub(self.margin) < self.dead_after {
            return Some(String::from("term - margin < dead-after"));
        }
        (self.join_wait < self.dead_after).then(|| String::from("join.wait < dead-after"))
    }

    /// 2ρT + P + S + R
    pub fn least_margin(&self) -> u64 {
        2 * self.rho.unsigned_abs() * self.term.div_ceil(1_000_000) + self.pause + self.stop_budget + self.reset
    }

    /// How long after the end of the right the guard orders the reset: M − 2ρT − R.
    pub fn reset_after(&self) -> u64 {
        let drift = 2 * self.rho.unsigned_abs() * self.term.div_ceil(1_000_000);
        self.margin.saturating_sub(drift + self.reset)
    }

    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "interval" => self.interval = text::time(value)?,
            "dead-after" => self.dead_after = text::time(value)?,
            "term" => self.term = text::time(value)?,
            "margin" => self.margin = text::time(value)?,
            "head-start" => self.head_start = text::time(value)?,
            "fence-bound" => self.fence_bound = text::time(value)?,
            "settle" => self.settle = text::time(value)?,
            "join.wait" => self.join_wait = text::time(value)?,
            "join.fence" => self.join_fence = text::yes(value)?,
            "leave-timeout" => self.leave_timeout = text::time(value)?,
            "start-backoff" => self.start_backoff = text::time(value)?,
            "digest" => self.digest = text::number(value)?,
            "pause" => self.pause = text::time(value)?,
            "stop-budget" => self.stop_budget = text::time(value)?,
            "reset" => self.reset = text::time(value)?,
            "rho" => self.rho = text::ppm(value)?,
            "drift" => self.drift = text::ppm(value)?,
            "boot" => self.boot = text::time(value)?,
            "daemon-start" => self.daemon_start = text::time(value)?,
            "start" => self.start = text::range(value)?,
            "stop" => self.stop = text::range(value)?,
            "steps" => self.steps = text::number(value)?.clamp(1, 16) as u32,
            "ready" => self.ready = text::yes(value)?,
            "disk" => self.disk = text::range(value)?,
            "bmc" => self.bmc = text::range(value)?,
            "poll" => self.poll = text::time(value)?.max(MS),
            "store" => self.store = text::range(value)?,
            _ => return self.set_choice(key, value),
        }
        Ok(())
    }

    fn set_choice(&mut self, key: &str, value: &str) -> Result<(), String> {
        match (key, value) {
            ("fence.first", "primary") => self.first = FirstShooter::Primary,
            ("fence.first", "standby") => self.first = FirstShooter::Standby,
            ("promote.after", "fence") => self.promote_after = PromoteAfter::Fence,
            ("promote.after", "fence+lease") => self.promote_after = PromoteAfter::FenceAndLease,
            ("plan", "node") => self.plan = Plan::Node { access: false },
            ("plan", "node+access") => self.plan = Plan::Node { access: true },
            ("plan", "exclusive") => self.plan = Plan::Exclusive,
            ("plan", "yielding") => self.plan = Plan::Yielding,
            ("plan", "confirm-only") => self.plan = Plan::ConfirmOnly,
            ("data", "shared") => self.data = DataModel::Shared,
            ("data", "replicated") => self.data = DataModel::Replicated,
            ("power-on", "never") => self.power_on = PowerOn::Never,
            ("power-on", limit) => {
                self.power_on = PowerOn::AfterPromotion { limit: text::number(limit)?.min(1000) as u32 };
            }
            _ => return Err(format!("no setting `{key}={value}`; the keys are {}", NODE_KEYS.join(" "))),
        }
        Ok(())
    }

    fn get(&self, key: &str) -> String {
        use text::{show_range, show_time, show_yes};
        match key {
            "interval" => show_time(self.interval),
            "dead-after" => show_time(self.dead_after),
            "term" => show_time(self.term),
            "margin" => show_time(self.margin),
            "head-start" => show_time(self.head_start),
            "fence-bound" => show_time(self.fence_bound),
            "settle" => show_time(self.settle),
            "join.wait" => show_time(self.join_wait),
            "join.fence" => show_yes(self.join_fence),
            "leave-timeout" => show_time(self.leave_timeout),
            "start-backoff" => show_time(self.start_backoff),
            "digest" => self.digest.to_string(),
            "pause" => show_time(self.pause),
            "stop-budget" => show_time(self.stop_budget),
            "reset" => show_time(self.reset),
            "rho" => format!("{}ppm", self.rho),
            "drift" => format!("{}ppm", self.drift),
            "boot" => show_time(self.boot),
            "daemon-start" => show_time(self.daemon_start),
            "start" => show_range(self.start),
            "stop" => show_range(self.stop),
            "steps" => self.steps.to_string(),
            "ready" => show_yes(self.ready),
            "disk" => show_range(self.disk),
            "bmc" => show_range(self.bmc),
            "poll" => show_time(self.poll),
            "store" => show_range(self.store),
            _ => self.get_choice(key),
        }
    }

    fn get_choice(&self, key: &str) -> String {
        String::from(match key {
            "fence.first" if self.first == FirstShooter::Primary => "primary",
            "fence.first" => "standby",
            "promote.after" if self.promote_after == PromoteAfter::Fence => "fence",
            "promote.after" => "fence+lease",
            "data" if self.data == DataModel::Shared => "shared",
            "data" => "replicated",
            "power-on" => return self.shown_power_on(),
            _ => match self.plan {
                Plan::Node { access: false } => "node",
                Plan::Node { access: true } => "node+access",
                Plan::Exclusive => "exclusive",
                Plan::Yielding => "yielding",
                Plan::ConfirmOnly => "confirm-only",
            },
        })
    }

    fn shown_power_on(&self) -> String {
        match self.power_on {
            PowerOn::Never => String::from("never"),
            PowerOn::AfterPromotion { limit } => limit.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_setup_is_the_same_setup_when_read() {
        let mut setup = Setup::default();
        for (key, value) in
            [("plan", "exclusive"), ("heron.term", "20s"), ("loss", "3%"), ("seed", "99"), ("power-on", "3")]
        {
            setup.set(key, value).expect("a known key");
        }
        let mut read = Setup::default();
        for line in setup.lines() {
            for word in line.split_whitespace().skip(1) {
                let (key, value) = word.split_once('=').expect("key=value");
                read.set(key, value).expect("what was printed");
            }
        }
        assert_eq!(read, setup);
    }

    #[test]
    fn the_default_world_keeps_the_rules_of_timing() {
        assert_eq!(Setup::default().broken_rule(), None);
    }
}
