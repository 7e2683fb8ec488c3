//! Digest of what both nodes must agree on (protocol section 2): it travels in every heartbeat.
//!
//! The text that is hashed is part of the protocol: one `name=value` a line, strings quoted and escaped, so that no
//! two configurations write the same text. No secret, no path, no log setting is in it; a node may keep those apart.

use std::fmt::Write;

use sha2::{Digest as _, Sha256};

use super::checked::{Agent, Config};
use crate::core::Digest;

/// First 16 bytes of SHA-256 over the canonical text.
pub fn of(config: &Config) -> Digest {
    let hash = Sha256::digest(canonical(config).as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    Digest(short)
}

fn canonical(config: &Config) -> String {
    let mut text = String::from("leasehold configuration 1\n");
    let mut line = |name: &str, value: &dyn std::fmt::Debug| {
        writeln!(text, "{name}={value:?}").expect("a String takes everything that is written to it");
    };
    line("cluster", &config.cluster);
    line("data", &config.data);
    config.nodes.iter().for_each(|node| line("node", &node.name));
    let t = &config.timing;
    for (name, span) in [("H", t.interval), ("D", t.dead_after), ("T", t.term), ("M", t.margin), ("L", t.head_start)] {
        line(name, &span.0);
    }
    line("F", &t.fence_bound.0);
    line("settle", &t.settle.0);
    line("drift", &t.drift_ppm);
    line("promote", &t.promote_after);
    line("join.fence", &t.join_fence);
    line("plan", &config.fence.plan);
    line("first", &config.fence.first);
    config.fence.agents.iter().for_each(|agent| line("agent", &identity(agent)));
    config.resources.iter().for_each(|resource| line("resource", &resource.name));
    text
}

/// Whom the agent shoots, how far, in which order, through which device.
fn identity(agent: &Agent) -> Vec<(String, String)> {
    let mut parts = vec![
        ("name".to_string(), agent.name.clone()),
        ("target".to_string(), agent.target.to_string()),
        ("level".to_string(), agent.level.to_string()),
        ("scope".to_string(), agent.scope.to_string()),
    ];
    parts.extend(match agent.kind.facts() {
        Some(facts) => facts.device(),
        None => vec![("manual".to_string(), String::new())],
    });
    parts
}
