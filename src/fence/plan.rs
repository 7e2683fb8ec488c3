//! The fence plan of one node against its peer: which agents, in which order, and what their answers add up to.
//!
//! Levels are alternatives in rising order; within a level all agents must confirm (both supplies of a machine). A plan
//! that has an agent of node scope succeeds only with one of node scope; agents of resource scope add to it. An agent
//! in `excluded` once lied: its level cannot be proven and is skipped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{Agent as Configured, AgentKind, Config};
use crate::core::{AgentSet, FenceResult, NodeId, PowerReading, Scope, Span, SystemUuid, Take, TakeResult, Token};

use super::ec2::{Ec2Power, Ec2Volume};
use super::fence_agent::FenceAgent;
use super::gate::{IscsiAcl, NfsExport};
use super::openstack::{OpenstackPower, OpenstackVolume};
use super::redfish::Redfish;
use super::scsi_pr::ScsiPr;
use super::{
    Agent, Attempt, Evidence, Exec, FenceError, Identities, Ipmi, Manual, Outcome, Reading, Setup, Stamp, with_all,
};

/// One agent with its place in the plan.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its place among all agents of the configuration: its bit in an [`AgentSet`].
    pub index: usize,
    pub name: String,
    pub level: u32,
    /// Limit of one whole attempt with its verification.
    pub limit: Duration,
    pub agent: Arc<dyn Agent>,
}

/// One attempt, as the core wants it.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    pub token: Token,
    /// For an exclusive plan: the attempt is this take.
    pub take: Option<Take>,
    pub excluded: AgentSet,
    /// The whole attempt ends after this time, whatever its agents' limits are.
    pub deadline_after: Duration,
}

/// How an attempt ended, and all that was sent and read.
#[derive(Debug, Clone)]
pub struct Report {
    pub result: FenceResult,
    pub evidence: Vec<Evidence>,
}

/// All that this node can do about its peer, and about its own access. Dropping any of its futures ends the work.
#[derive(Debug, Clone)]
pub struct FencePlan {
    /// Aimed at the peer, in rising level.
    against: Vec<Entry>,
    /// Aimed at this node: the peer shoots with them, and this node uses them to let itself in again.
    own: Vec<Entry>,
    stamp: Stamp,
    me: NodeId,
    identities: Identities,
}

impl FencePlan {
    /// Reads every secret and checks every program now: nothing that fencing needs is first missed at a failover.
    pub fn new(config: &Config, me: NodeId) -> Result<FencePlan, FenceError> {
        let (mut against, mut own) = (Vec::new(), Vec::new());
        for (index, configured) in config.fence.agents.iter().enumerate() {
            let name = configured.name.clone();
            if index >= 32 {
                return Err(FenceError::TooMany { agent: name, index });
            }
            if configured.target == me && configured.scope == Scope::Node {
                continue;
            }
            let agent = build(config, configured, me)?;
            let entry = Entry { index, name, level: configured.level, limit: configured.timeout.into(), agent };
            if configured.target == me { own.push(entry) } else { against.push(entry) }
        }
        Ok(FencePlan::of(against, own).of_node(me))
    }

    /// One agent alone, made as for the node `me`. `None`: the configuration has none of this name.
    pub fn one(config: &Config, name: &str, me: NodeId) -> Option<Result<Entry, FenceError>> {
        let (index, configured) = config.fence.agents.iter().enumerate().find(|(_, agent)| agent.name == name)?;
        let (level, limit) = (configured.level, configured.timeout.into());
        let entry = |agent| Entry { index, name: name.to_owned(), level, limit, agent };
        Some(build(config, configured, me).map(entry))
    }

    /// A plan of given agents.
    pub fn of(mut against: Vec<Entry>, own: Vec<Entry>) -> FencePlan {
        against.sort_by_key(|e| e.level);
        FencePlan { against, own, stamp: String::new, me: NodeId::First, identities: Identities::default() }
    }

    /// The plan as this node has it.
    pub(super) fn of_node(self, me: NodeId) -> FencePlan {
        FencePlan { me, ..self }
    }

    /// Where the nodes' UUIDs are told as they become known.
    pub fn identities(&self) -> Identities {
        self.identities.clone()
    }

    /// Dates the evidence by this clock.
    pub fn with_stamp(self, stamp: Stamp) -> FencePlan {
        FencePlan { stamp, ..self }
    }

    /// Runs the plan against the peer, or the take where the order is one.
    pub async fn off(&self, order: &Order) -> Report {
        let mut trail = Trail::default();
        let work = async {
            match order.take {
                Some(take) => self.take_along(take, order.excluded, &mut trail).await.into_fence_result(self),
                None => self.levels(order, &mut trail).await,
            }
        };
        let result = timeout(order.deadline_after, work).await.ok();
        Report { result: result.unwrap_or_else(|| trail.failure()), evidence: trail.evidence() }
    }

    /// Reads the peer's power with the agents of node scope, changing nothing. The first level that gives a clear
    /// answer decides: an outlet of a later level may well be on behind a machine that is off.
    pub async fn probe(&self, excluded: AgentSet) -> (PowerReading, Vec<Evidence>) {
        let lies = |level| self.against.iter().any(|e| e.level == level && excluded.contains(e.index));
        let entries = self.entries(|e| e.agent.scope() == Scope::Node && !lies(e.level));
        let mut trail = Trail::default();
        let answers = self
            .each(&entries, &mut trail, |entry, attempt| async move { Some(entry.agent.status(&attempt).await) })
            .await;
        let decided = levels_of(&entries).into_iter().find_map(|level| {
            let of_level = || entries.iter().zip(&answers).filter(|(e, _)| e.level == level);
            let verified_by = with_all(AgentSet::EMPTY, of_level().map(|(e, _)| e.index));
            if of_level().all(|(_, a)| *a == Some(Reading::Off)) {
                return Some(PowerReading::Off { verified_by });
            }
            of_level().any(|(_, a)| *a == Some(Reading::On)).then_some(PowerReading::On)
        });
        (decided.unwrap_or(PowerReading::Unknown), trail.evidence())
    }

    /// The highest token in any store; `None` when one of them could not be asked.
    pub async fn highest(&self) -> Option<Token> {
        let stores = self.takers();
        let mut trail = Trail::default();
        let answers =
            self.each(&stores, &mut trail, |entry, attempt| async move { entry.agent.highest(&attempt).await }).await;
        answers.into_iter().try_fold(Token::NONE, |highest, answer| Some(highest.max(answer?)))
    }

    /// Takes at every store; `Taken` only if all of them gave it.
    pub async fn take(&self, take: Take) -> (TakeResult, Vec<Evidence>) {
        let mut trail = Trail::default();
        let result = self.take_along(take, AgentSet::EMPTY, &mut trail).await;
        (result, trail.evidence())
    }

    /// Lets this node in again wherever the peer may have revoked it. `true` when every such place reads it in.
    pub async fn ensure_access(&self, token: Token) -> bool {
        let entries: Vec<_> = self.own.iter().filter(|e| !e.agent.takes()).cloned().collect();
        let mut trail = Trail::default();
        let outcomes =
            self.each(&entries, &mut trail, move |entry, attempt| async move {
                Some(entry.agent.on(token, &attempt).await)
            })
            .await;
        let assured = outcomes.iter().all(|o| *o == Some(Outcome::Confirmed));
        if !assured {
            trail.evidence().iter().for_each(|e| {
                tracing::warn!(agent = e.agent, sent = e.sent, read = e.read, "own access is not verified");
            });
        }
        assured
    }

    /// Switches the fenced peer on: outlets of later levels first, since a BMC may hang on them.
    pub async fn power_on(&self, token: Token) -> (Outcome, Vec<Evidence>) {
        let entries = self.entries(|e| e.agent.scope() == Scope::Node);
        let mut trail = Trail::default();
        let mut outcome = Outcome::Unknown;
        for level in levels_of(&entries).into_iter().rev() {
            let of_level: Vec<_> = entries.iter().filter(|e| e.level == level).cloned().collect();
            let outcomes = self
                .each(&of_level, &mut trail, move |entry, attempt| async move {
                    Some(entry.agent.on(token, &attempt).await)
                })
                .await;
            outcome = outcomes.into_iter().flatten().find(|o| *o != Outcome::Confirmed).unwrap_or(Outcome::Confirmed);
        }
        (outcome, trail.evidence())
    }

    async fn levels(&self, order: &Order, trail: &mut Trail) -> FenceResult {
        let needs_node = self.against.iter().any(|e| e.agent.scope() == Scope::Node);
        let token = order.token;
        let mut verified_by = AgentSet::EMPTY;
        for level in levels_of(&self.against) {
            let entries = self.entries(|e| e.level == level);
            if let Some(liar) = entries.iter().find(|e| order.excluded.contains(e.index)) {
                trail.skip(liar, self.stamp);
                continue;
            }
            let outcomes =
                self.each(&entries, trail, move |entry, attempt| async move {
                    Some(entry.agent.off(token, &attempt).await)
                })
                .await;
            if !outcomes.iter().all(|o| *o == Some(Outcome::Confirmed)) {
                continue;
            }
            verified_by = with_all(verified_by, entries.iter().map(|e| e.index));
            let has_node = entries.iter().any(|e| e.agent.scope() == Scope::Node);
            match (has_node, needs_node) {
                (true, _) => return FenceResult::Confirmed { scope: Scope::Node, verified_by },
                (false, false) => return FenceResult::Confirmed { scope: Scope::Resource, verified_by },
                (false, true) => {}
            }
        }
        trail.failure()
    }

    async fn take_along(&self, take: Take, excluded: AgentSet, trail: &mut Trail) -> TakeResult {
        let stores = self.takers();
        if stores.is_empty() || stores.iter().any(|e| excluded.contains(e.index)) {
            return TakeResult::Unknown;
        }
        let answers = self
            .each(&stores, trail, move |entry, attempt| async move { Some(entry.agent.take(take, &attempt).await) })
            .await;
        let refusals = answers.iter().filter_map(|a| match a {
            Some(TakeResult::Refused { highest }) => Some(*highest),
            Some(TakeResult::Taken | TakeResult::Unknown) | None => None,
        });
        match refusals.max() {
            Some(highest) => TakeResult::Refused { highest },
            None if answers.iter().any(|a| *a != Some(TakeResult::Taken)) => TakeResult::Unknown,
            None if self.reads_me_in(trail).await => TakeResult::Taken,
            None => TakeResult::Unknown,
        }
    }

    /// Whether every store that is also aimed at this node (for the peer to use) reads this node's access as on.
    async fn reads_me_in(&self, trail: &mut Trail) -> bool {
        let stores: Vec<_> = self.own.iter().filter(|e| e.agent.takes()).cloned().collect();
        let readings =
            self.each(&stores, trail, |entry, attempt| async move { Some(entry.agent.status(&attempt).await) }).await;
        readings.iter().all(|r| *r == Some(Reading::On))
    }

    /// The UUID of the machine that the agent is aimed at.
    pub(super) fn expected(&self, entry: &Entry) -> Option<SystemUuid> {
        let aimed_at_me = self.own.iter().any(|own| own.index == entry.index);
        let node = if aimed_at_me { self.me } else { self.me.peer() };
        self.identities.of(node.index())
    }

    /// Every agent of the plan, whomever it is aimed at.
    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.against.iter().chain(&self.own)
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn takers(&self) -> Vec<Entry> {
        self.entries(|e| e.agent.takes())
    }

    fn entries(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.against.iter().filter(|e| wanted(e)).cloned().collect()
    }

    /// Lets all entries work side by side, each for its own limit at most. An agent that hangs, panics or runs
    /// out of time answers `None`; the verdict on it is in the trail.
    async fn each<T, F>(
        &self,
        entries: &[Entry],
        trail: &mut Trail,
        work: impl Fn(Entry, Arc<Attempt>) -> F,
    ) -> Vec<Option<T>>
    where
        T: Send + 'static,
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for (place, entry) in entries.iter().enumerate() {
            let attempt = trail.begin(entry, self.stamp, self.expected(entry));
            let job = work(entry.clone(), attempt.clone());
            let limit = entry.limit;
            tasks.spawn(async move { (place, within(limit, job, &attempt).await) });
        }
        let mut answers: Vec<Option<T>> = entries.iter().map(|_| None).collect();
        while let Some(ended) = tasks.join_next().await {
            if let Ok((place, answer)) = ended {
                answers[place] = answer;
            }
        }
        answers
    }
}

async fn within<T>(limit: Duration, job: impl Future<Output = Option<T>>, attempt: &Attempt) -> Option<T> {
    match timeout(limit, job).await {
        Ok(answer) => answer,
        Err(_) => {
            attempt.note("(waiting)", &format!("given up after its limit of {}", Span::from(limit)));
            None
        }
    }
}

trait IntoFenceResult {
    fn into_fence_result(self, plan: &FencePlan) -> FenceResult;
}

impl IntoFenceResult for TakeResult {
    fn into_fence_result(self, plan: &FencePlan) -> FenceResult {
        match self {
            TakeResult::Taken => {
                let verified_by = with_all(AgentSet::EMPTY, plan.takers().iter().map(|e| e.index));
                FenceResult::Confirmed { scope: Scope::Resource, verified_by }
            }
            TakeResult::Refused { highest } => FenceResult::Refused { highest: Some(highest) },
            TakeResult::Unknown => FenceResult::Unknown,
        }
    }
}

/// The attempts of all agents so far; it is there when the plan was cut off in the middle.
#[derive(Debug, Default)]
struct Trail(Vec<Arc<Attempt>>);

impl Trail {
    fn begin(&mut self, entry: &Entry, stamp: Stamp, expected: Option<SystemUuid>) -> Arc<Attempt> {
        let attempt = Arc::new(Attempt::new(&entry.name, stamp).expecting(expected));
        self.0.push(attempt.clone());
        attempt
    }

    fn skip(&mut self, entry: &Entry, stamp: Stamp) {
        let text = "skipped with its level: it once confirmed what was not so; an operator must clear it";
        self.begin(entry, stamp, None).note("(nothing)", text);
    }

    /// The result when nothing was confirmed.
    fn failure(&self) -> FenceResult {
        let refusals = self.0.iter().filter_map(|attempt| match attempt.verdict() {
            Outcome::Refused { highest } => Some(highest),
            Outcome::Confirmed | Outcome::Unknown => None,
        });
        refusals.max().map_or(FenceResult::Unknown, |highest| FenceResult::Refused { highest })
    }

    fn evidence(&self) -> Vec<Evidence> {
        self.0.iter().flat_map(|attempt| attempt.evidence()).collect()
    }
}

fn levels_of(entries: &[Entry]) -> BTreeSet<u32> {
    entries.iter().map(|e| e.level).collect()
}

pub(super) fn build(config: &Config, agent: &Configured, me: NodeId) -> Result<Arc<dyn Agent>, FenceError> {
    let (target, caller) = (&config.node(agent.target).name, &config.node(me).name);
    let setup = Setup { name: &agent.name, scope: agent.scope, limit: agent.timeout, target, caller };
    Ok(match &agent.kind {
        AgentKind::Ipmi(ipmi) => Arc::new(Ipmi::new(&agent.name, agent.scope, agent.timeout, ipmi)?),
        AgentKind::Redfish(redfish) => Arc::new(Redfish::new(setup, redfish)?),
        AgentKind::FenceAgent(program) => Arc::new(FenceAgent::new(setup, program)?),
        AgentKind::Ec2Power(power) => Arc::new(Ec2Power::new(setup, power)?),
        AgentKind::Ec2Volume(volume) => Arc::new(Ec2Volume::new(setup, volume)?),
        AgentKind::OpenstackPower(power) => Arc::new(OpenstackPower::new(setup, power)?),
        AgentKind::OpenstackVolume(volume) => Arc::new(OpenstackVolume::new(setup, volume)?),
        AgentKind::NfsExport(export) => Arc::new(NfsExport::new(setup, export)?),
        AgentKind::IscsiAcl(acl) => Arc::new(IscsiAcl::new(setup, acl)?),
        AgentKind::ScsiPr(reservation) => Arc::new(ScsiPr::new(setup, reservation)?),
        AgentKind::Exec(exec) => Arc::new(Exec::new(&agent.name, agent.scope, agent.timeout, exec, target, caller)?),
        AgentKind::Manual => Arc::new(Manual::new(agent.scope, target)),
    })
}
