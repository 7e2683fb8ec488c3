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
use crate::core::{AgentSet, FenceResult, NodeId, PowerReading, Scope, SystemUuid, Take, TakeResult, Token};

use super::ec2::{Ec2Power, Ec2Volume};
use super::fence_agent::FenceAgent;
use super::gate::GateAgent;
use super::journal::{Action, Journal, Verdict};
use super::openstack::{OpenstackPower, OpenstackVolume};
use super::redfish::Redfish;
use super::scsi_pr::ScsiPr;
use super::trail::Trail;
use super::turns::Turns;
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
    pub(super) against: Vec<Entry>,
    /// Aimed at this node: the peer shoots with them, and this node uses them to let itself in again.
    pub(super) own: Vec<Entry>,
    pub(super) stamp: Stamp,
    me: NodeId,
    /// Of the peer and of this node, for the journal; empty in a plan of given agents.
    names: [String; 2],
    identities: Identities,
    pub(super) turns: Turns,
    pub(super) journal: Option<Journal>,
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
        let names = [me.peer(), me].map(|node| config.node(node).name.clone());
        Ok(FencePlan { me, names, ..FencePlan::of(against, own) })
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
        FencePlan {
            against,
            own,
            stamp: String::new,
            me: NodeId::First,
            names: Default::default(),
            identities: Identities::default(),
            turns: Turns::default(),
            journal: None,
        }
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

    /// Keeps every attempt there.
    pub fn with_journal(self, journal: Journal) -> FencePlan {
        FencePlan { journal: Some(journal), ..self }
    }

    /// Runs the plan against the peer, or the take where the order is one.
    pub async fn off(&self, order: &Order) -> Report {
        self.off_as(Action::Off, order).await
    }

    /// The same, which the journal calls a drill.
    pub async fn drill(&self, order: &Order) -> Report {
        self.off_as(Action::Drill, order).await
    }

    async fn off_as(&self, action: Action, order: &Order) -> Report {
        let mut trail = self.trail(action, Some(order.token));
        let work = async {
            match order.take {
                Some(take) => self.take_along(take, order.excluded, &mut trail).await.into_fence_result(self),
                None => self.levels(order, &mut trail).await,
            }
        };
        let ended = timeout(order.deadline_after, work).await.ok();
        let result = ended.unwrap_or_else(|| trail.failure());
        let verdict = match result {
            FenceResult::Confirmed { .. } => Verdict::Confirmed,
            FenceResult::Refused { .. } => Verdict::Refused,
            FenceResult::Unknown => Verdict::Unknown,
        };
        Report { result, evidence: trail.close(verdict, &result.to_string(), ended.is_none()) }
    }

    /// Reads the peer's power with the agents of node scope, changing nothing. The first level that gives a clear
    /// answer decides: an outlet of a later level may well be on behind a machine that is off.
    pub async fn probe(&self, excluded: AgentSet) -> (PowerReading, Vec<Evidence>) {
        let lies = |level| self.against.iter().any(|e| e.level == level && excluded.contains(e.index));
        let entries = self.entries(|e| e.agent.scope() == Scope::Node && !lies(e.level));
        let mut trail = self.trail(Action::Probe, None);
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
        let reading = decided.unwrap_or(PowerReading::Unknown);
        let evidence = match reading {
            PowerReading::Off { .. } => trail.close(Verdict::Confirmed, &reading.to_string(), false),
            // Nothing was sent and nothing proven: no matter for the journal.
            PowerReading::On | PowerReading::Unknown => trail.forget(),
        };
        (reading, evidence)
    }

    /// The highest token in any store; `None` when one of them could not be asked.
    pub async fn highest(&self) -> Option<Token> {
        let stores = self.takers();
        let mut trail = self.trail(Action::Probe, None);
        let answers =
            self.each(&stores, &mut trail, |entry, attempt| async move { entry.agent.highest(&attempt).await }).await;
        trail.forget();
        answers.into_iter().try_fold(Token::NONE, |highest, answer| Some(highest.max(answer?)))
    }

    /// Takes at every store; `Taken` only if all of them gave it.
    pub async fn take(&self, take: Take) -> (TakeResult, Vec<Evidence>) {
        let mut trail = self.trail(Action::Take, Some(take.new));
        let result = self.take_along(take, AgentSet::EMPTY, &mut trail).await;
        let verdict = match result {
            TakeResult::Taken => Verdict::Confirmed,
            TakeResult::Refused { .. } => Verdict::Refused,
            TakeResult::Unknown => Verdict::Unknown,
        };
        (result, trail.close(verdict, &result.to_string(), false))
    }

    /// Lets this node in again wherever the peer may have revoked it. `true` when every such place reads it in.
    pub async fn ensure_access(&self, token: Token) -> bool {
        let entries: Vec<_> = self.own.iter().filter(|e| !e.agent.takes()).cloned().collect();
        let mut trail = self.trail(Action::Access, Some(token));
        let outcomes =
            self.each(&entries, &mut trail, move |entry, attempt| async move {
                Some(entry.agent.on(token, &attempt).await)
            })
            .await;
        let assured = outcomes.iter().all(|o| *o == Some(Outcome::Confirmed));
        let evidence = match assured {
            true => trail.close(Verdict::Confirmed, "this node's own access is verified", false),
            false => trail.close(Verdict::Unknown, "this node's own access is not verified", false),
        };
        if !assured {
            evidence.iter().for_each(|e| {
                tracing::warn!(agent = e.agent, sent = e.sent, read = e.read, "own access is not verified");
            });
        }
        assured
    }

    /// Switches the fenced peer on: outlets of later levels first, since a BMC may hang on them.
    pub async fn power_on(&self, token: Token) -> (Outcome, Vec<Evidence>) {
        let entries = self.entries(|e| e.agent.scope() == Scope::Node);
        let mut trail = self.trail(Action::On, Some(token));
        let mut outcome = Outcome::Unknown;
        for level in levels_of(&entries).into_iter().rev() {
            let of_level: Vec<_> = entries.iter().filter(|e| e.level == level).cloned().collect();
            let outcomes = self
                .each(&of_level, &mut trail, move |entry, attempt| async move {
                    Some(entry.agent.on(token, &attempt).await)
                })
                .await;
            // One that ran out of time does not know: it is not as good as not asked.
            let known = outcomes.into_iter().map(|o| o.unwrap_or(Outcome::Unknown));
            outcome = known.fold(Outcome::Confirmed, |so_far, o| if so_far == Outcome::Confirmed { o } else { so_far });
        }
        let (verdict, text) = match outcome {
            Outcome::Confirmed => (Verdict::Confirmed, "it reads on again"),
            Outcome::Refused { .. } => (Verdict::Refused, "the device said no to switching it on"),
            Outcome::Unknown => (Verdict::Unknown, "nobody could say whether it is on again"),
        };
        (outcome, trail.close(verdict, text, false))
    }

    /// The story of an attempt that begins.
    fn trail(&self, action: Action, token: Option<Token>) -> Trail {
        let [peer, me] = &self.names;
        let target = match action {
            Action::Access => me,
            Action::Off | Action::Drill | Action::Probe | Action::Take | Action::On | Action::Damage => peer,
        };
        Trail::new(action, target, token, self.stamp, self.journal.clone())
    }

    async fn levels(&self, order: &Order, trail: &mut Trail) -> FenceResult {
        let needs_node = self.against.iter().any(|e| e.agent.scope() == Scope::Node);
        let token = order.token;
        let mut verified_by = AgentSet::EMPTY;
        for level in levels_of(&self.against) {
            let entries = self.entries(|e| e.level == level);
            if let Some(liar) = entries.iter().find(|e| order.excluded.contains(e.index)) {
                trail.skip(liar);
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

    /// Every agent lets go of what it holds at its device, all side by side. The caller bounds it.
    pub async fn close(&self) {
        let mut tasks = JoinSet::new();
        for entry in self.all() {
            let agent = entry.agent.clone();
            tasks.spawn(async move { agent.close().await });
        }
        while tasks.join_next().await.is_some() {}
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
            let attempt = trail.begin(entry, self.expected(entry));
            let turn = self.turns.attempt(entry.index);
            let job = work(entry.clone(), attempt.clone());
            let limit = entry.limit;
            tasks.spawn(async move {
                let _until_it_ends = turn;
                (place, within(limit, job, &attempt).await)
            });
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
            attempt.give_up(limit.into());
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

fn levels_of(entries: &[Entry]) -> BTreeSet<u32> {
    entries.iter().map(|e| e.level).collect()
}

pub(super) fn build(config: &Config, agent: &Configured, me: NodeId) -> Result<Arc<dyn Agent>, FenceError> {
    let (target, caller) = (&config.node(agent.target).name, &config.node(me).name);
    let setup = Setup { name: &agent.name, scope: agent.scope, limit: agent.timeout, target, caller, me };
    Ok(match &agent.kind {
        AgentKind::Ipmi(ipmi) => Arc::new(Ipmi::new(&agent.name, agent.scope, agent.timeout, ipmi)?),
        AgentKind::Redfish(redfish) => Arc::new(Redfish::new(setup, redfish)?),
        AgentKind::FenceAgent(program) => Arc::new(FenceAgent::new(setup, program)?),
        AgentKind::Ec2Power(power) => Arc::new(Ec2Power::new(setup, power)?),
        AgentKind::Ec2Volume(volume) => Arc::new(Ec2Volume::new(setup, volume)?),
        AgentKind::OpenstackPower(power) => Arc::new(OpenstackPower::new(setup, power)?),
        AgentKind::OpenstackVolume(volume) => Arc::new(OpenstackVolume::new(setup, volume)?),
        AgentKind::NfsExport(export) => Arc::new(GateAgent::new(setup, export)?),
        AgentKind::IscsiAcl(acl) => Arc::new(GateAgent::new(setup, acl)?),
        AgentKind::ScsiPr(reservation) => Arc::new(ScsiPr::new(setup, reservation)?),
        AgentKind::Exec(exec) => Arc::new(Exec::new(&agent.name, agent.scope, agent.timeout, exec, target, caller)?),
        AgentKind::Manual => Arc::new(Manual::new(agent.scope, target)),
    })
}
