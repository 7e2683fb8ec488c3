//! Proof ahead of need: every agent looks at its device, all side by side, and changes nothing.
//!
//! ```text
//!   FencePlan::prove_all ─┐
//!   Proving::of (config) ─┴─▶ Proving ── next ──▶ Probed { health, named, … }, in the order of their ends
//! ```
//!
//! A plan holds what its node may use. [`Proving::of`] also looks through the agents that only the peer uses, because
//! an agent that controls the wrong machine is seen from either side.

use std::collections::{BTreeSet, VecDeque};

use tokio::task::JoinSet;

use crate::config::Config;
use crate::core::{NodeId, SystemUuid};

use super::plan::build;
use super::prove::{Probed, look};
use super::{Entry, FencePlan};

/// Looks that are under way. Dropping it ends them and kills their children.
#[derive(Debug, Default)]
pub struct Proving {
    ended: VecDeque<Probed>,
    tasks: JoinSet<Probed>,
    running: BTreeSet<usize>,
}

impl FencePlan {
    /// Begins to look at every device of the plan, each for its agent's limit at most. Needs a runtime.
    pub fn prove_all(&self) -> Proving {
        let mut proving = Proving::default();
        for entry in self.all() {
            proving.begin(self, entry);
        }
        proving
    }
}

impl Proving {
    /// Begins to look through every agent of the configuration, as far as it can be made on this node; one that
    /// cannot has that as its fault. `known` are the UUIDs of the two nodes. Needs a runtime.
    pub fn of(config: &Config, me: NodeId, known: [Option<SystemUuid>; 2]) -> Proving {
        let (mut against, mut own, mut unmade) = (Vec::new(), Vec::new(), VecDeque::new());
        for (index, configured) in config.fence.agents.iter().enumerate() {
            let (name, level, limit) = (configured.name.clone(), configured.level, configured.timeout.into());
            match build(config, configured, me) {
                Ok(agent) if configured.target == me => own.push(Entry { index, name, level, limit, agent }),
                Ok(agent) => against.push(Entry { index, name, level, limit, agent }),
                Err(error) => unmade.push_back(Probed::unusable(index, without_name(&name, &error.to_string()))),
            }
        }
        let plan = FencePlan::of(against, own).of_node(me);
        for (node, uuid) in known.into_iter().enumerate() {
            uuid.into_iter().for_each(|uuid| plan.identities().learn(node, uuid));
        }
        Proving { ended: unmade, ..plan.prove_all() }
    }

    /// The next look that has ended; `None` when all have. A call that is given up loses nothing.
    pub async fn next(&mut self) -> Option<Probed> {
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        let probed = self.tasks.join_next().await?.expect("a look survives an agent that panics, and nobody aborts it");
        self.running.remove(&probed.index);
        Some(probed)
    }

    /// The agents that have not answered yet, by their places in the configuration.
    pub fn waiting(&self) -> Vec<usize> {
        self.running.iter().copied().collect()
    }

    fn begin(&mut self, plan: &FencePlan, entry: &Entry) {
        let (attempt, entry) = (plan.attempt(entry), entry.clone());
        self.running.insert(entry.index);
        self.tasks.spawn(async move { look(&entry, attempt).await });
    }
}

/// The error without the beginning that names its agent, which whoever shows it does anyway.
fn without_name<'e>(name: &str, error: &'e str) -> &'e str {
    error.strip_prefix(&format!("fence agent {name:?}: ")).unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::core::{Scope, Token};
    use crate::fence::{Agent, Attempt, Health, Outcome, Pending, Reading};

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Manner {
        Answers,
        Hangs,
        Panics,
    }

    impl Agent for Manner {
        fn scope(&self) -> Scope {
            Scope::Node
        }

        fn off<'a>(&'a self, _: Token, _: &'a Attempt) -> Pending<'a, Outcome> {
            unreachable!("a look changes nothing")
        }

        fn on<'a>(&'a self, _: Token, _: &'a Attempt) -> Pending<'a, Outcome> {
            unreachable!("a look changes nothing")
        }

        fn status<'a>(&'a self, attempt: &'a Attempt) -> Pending<'a, Reading> {
            attempt.names("i-0123");
            match self {
                Manner::Answers => Box::pin(async { Reading::On }),
                Manner::Hangs => Box::pin(std::future::pending()),
                Manner::Panics => panic!("an agent with a bug"),
            }
        }
    }

    fn plan(manners: &[Manner]) -> FencePlan {
        let limit = Duration::from_millis(50);
        let entry = |(index, manner): (usize, &Manner)| {
            let agent: Arc<dyn Agent> = Arc::new(*manner);
            Entry { index, name: format!("agent{index}"), level: 1, limit, agent }
        };
        FencePlan::of(manners.iter().enumerate().map(entry).collect(), Vec::new())
    }

    #[tokio::test]
    async fn one_that_hangs_or_fails_is_told_and_holds_up_nobody() {
        let mut proving = plan(&[Manner::Hangs, Manner::Panics, Manner::Answers]).prove_all();
        assert_eq!(proving.waiting(), [0, 1, 2]);
        let mut found = Vec::new();
        while let Some(proven) = proving.next().await {
            found.push(proven);
        }
        assert!(proving.waiting().is_empty());
        assert_eq!(found.last().map(|p| p.index), Some(0), "the one that hangs ends last");
        found.sort_by_key(|p| p.index);
        assert_eq!(found[0].health.faults, ["no verdict within its limit of 50ms"]);
        assert!(found[1].health.faults[0].contains("bug"), "{:?}", found[1]);
        assert_eq!((&found[2].health, found[2].named.as_deref()), (&Health::of(Reading::On), Some("i-0123")));
    }

    #[tokio::test]
    async fn a_look_that_is_given_up_loses_nothing() {
        let mut proving = plan(&[Manner::Hangs]).prove_all();
        assert!(tokio::time::timeout(Duration::from_millis(1), proving.next()).await.is_err());
        assert_eq!(proving.next().await.map(|p| p.index), Some(0));
    }

    #[test]
    fn the_name_of_the_agent_is_not_told_twice() {
        assert_eq!(without_name("bmc", "fence agent \"bmc\": no such file"), "no such file");
        assert_eq!(without_name("bmc", "something else"), "something else");
    }
}
