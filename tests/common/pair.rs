//! Pairs of real daemons for tests.

#![allow(dead_code)] // each test program uses another part

use leasehold::cli::demo::checker::{self, Term};
use leasehold::cli::demo::history;
use leasehold::cli::demo::pair::{News, Pair, What};
use leasehold::cli::demo::world::{BOTH, Fencing, Plan, Timing, name};
use leasehold::control::Role;
use leasehold::core::{NodeId, Span};

/// Far beyond what any step takes, also on a machine that does much else.
pub const PATIENCE: Span = Span::from_secs(60);

pub fn plan(timing: Timing, fencing: Fencing) -> Plan {
    Plan::new(env!("CARGO_BIN_EXE_leasehold").into(), timing, fencing)
}

pub fn build(plan: Plan) -> Pair {
    Pair::build(plan).expect("a world can be made")
}

/// Switches both machines on and waits for a primary whose service has written, and its admitted standby: gives the
/// primary.
pub fn start(pair: &mut Pair) -> NodeId {
    BOTH.into_iter().for_each(|node| pair.switch_on(node).expect("a machine starts"));
    let primary = until_whole(pair);
    // The resource is up as soon as its process runs; on a busy machine its first write may take a while.
    until_written(pair, primary, 0);
    primary
}

/// The same where fencing is broken from the beginning, so that nobody could say that a failover would go.
pub fn start_unproven(pair: &mut Pair) -> NodeId {
    BOTH.into_iter().for_each(|node| pair.switch_on(node).expect("a machine starts"));
    let primary = told(pair.until("a primary with an admitted standby", PATIENCE, |pair, _| {
        let statuses = BOTH.map(|node| pair.status(node));
        let is =
            |node: NodeId, role| statuses[node.index()].as_ref().is_some_and(|s| s.me.role == role && s.me.admitted);
        Ok(BOTH.into_iter().find(|node| is(*node, Role::Primary) && is(node.peer(), Role::Standby)))
    }));
    until_written(pair, primary, 0);
    primary
}

pub fn until_whole(pair: &mut Pair) -> NodeId {
    told(pair.until("the pair is whole", PATIENCE, |pair, _| Ok(pair.whole())))
}

/// Waits for news of this node that `wanted` finds something in.
pub fn until<T>(pair: &mut Pair, what: &str, node: NodeId, mut wanted: impl FnMut(&What) -> Option<T>) -> T {
    let of_node = |news: Option<&News>| news.filter(|news| news.node == node).cloned();
    told(pair.until(what, PATIENCE, |_, news| Ok(of_node(news).and_then(|news| wanted(&news.what)))))
}

/// Waits until the service writes on this node under a token above `token`; gives the new one.
pub fn until_written(pair: &mut Pair, node: NodeId, token: u64) -> u64 {
    until(pair, &format!("{} serves above token {token}", name(node)), node, |what| match what {
        What::Wrote(line) if line.token > token => Some(line.token),
        _ => None,
    })
}

/// The text of the next decision of this kind.
pub fn until_decided(pair: &mut Pair, node: NodeId, kind: &str) -> String {
    until(pair, kind, node, |what| match what {
        What::Decided(decision) if decision.kind == kind => Some(decision.text.clone()),
        _ => None,
    })
}

/// Holds the history against the judges; gives who wrote when.
pub fn judged(pair: &Pair) -> Result<Vec<Term>, String> {
    let lines = history::read(&pair.world.history()).map_err(|error| error.to_string())?;
    let mut broken: Vec<_> = checker::judge(&lines).into_iter().filter(|check| !check.holds()).collect();
    // A protection that breaks breaks with every write.
    broken.iter_mut().for_each(|check| check.findings.truncate(5));
    if broken.is_empty() { Ok(checker::terms(&lines)) } else { Err(format!("{broken:#?}")) }
}

/// Both daemons' logs.
pub fn logs(pair: &Pair) -> [String; 2] {
    BOTH.map(|node| std::fs::read_to_string(pair.world.home(node).join("daemon.log")).unwrap_or_default())
}

pub fn told<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}
