//! What is known of every fence agent: when it was last proven, what is wrong with it, and whether this node could
//! fence its peer at all. Pure.

use std::collections::BTreeMap;

use crate::config::{AgentKind, Config};
use crate::control::{Fencing, FencingState, Reason};
use crate::core::{Instant, NodeId, Plan, Role, Scope, Severity, Span};
use crate::fence::{Identity, Probed, Reading};

use super::note::Told;

/// A proof counts for so many intervals: one look may be lost, or give way to an attempt, without an alarm.
const GOOD_FOR: u64 = 3;

/// All agents that this node runs, with their proofs.
#[derive(Debug)]
pub struct Proofs {
    interval: Span,
    plan: Plan,
    started: Instant,
    peer: String,
    aims: Vec<Aim>,
    told_cannot: bool,
}

/// One agent, aimed at one node.
#[derive(Debug)]
struct Aim {
    index: usize,
    name: String,
    target: String,
    at_peer: bool,
    kind: &'static str,
    level: u32,
    scope: Scope,
    /// A person, whom nobody wakes to see whether they would come.
    manual: bool,
    last: Option<Look>,
    good_at: Option<Instant>,
    told: FencingState,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    faults: Vec<String>,
    notes: Vec<String>,
    identity: Identity,
}

impl Proofs {
    pub fn new(config: &Config, me: NodeId, now: Instant) -> Proofs {
        let runs_here = |agent: &crate::config::Agent| agent.target != me || agent.scope == Scope::Resource;
        let agents = config.fence.agents.iter().enumerate().filter(|(_, agent)| runs_here(agent));
        let aims = agents.map(|(index, agent)| Aim {
            index,
            name: agent.name.clone(),
            target: config.node(agent.target).name.clone(),
            at_peer: agent.target != me,
            kind: agent.kind.word(),
            level: agent.level,
            scope: agent.scope,
            manual: matches!(agent.kind, AgentKind::Manual),
            last: None,
            good_at: None,
            told: FencingState::Never,
        });
        Proofs {
            interval: config.fence.probe_interval,
            plan: config.fence.plan,
            started: now,
            peer: config.node(me.peer()).name.clone(),
            aims: aims.collect(),
            told_cannot: false,
        }
    }

    /// Takes note of a look. `heard_since`: the peer is in contact since then. Gives what an operator has to hear.
    pub fn note(&mut self, probed: Probed, heard_since: Option<Instant>, now: Instant) -> Vec<Told> {
        let good_for = self.good_for();
        let Some(aim) = self.aims.iter_mut().find(|aim| aim.index == probed.index) else { return Vec::new() };
        let long_heard = heard_since.is_some_and(|since| now.since(since) > self.interval);
        aim.take(probed, long_heard, now);
        let mut told: Vec<Told> = aim.change(good_for, now).into_iter().collect();
        told.extend(self.change(now));
        told
    }

    fn good_for(&self) -> Span {
        self.interval.times(GOOD_FOR)
    }

    /// Said once, not at each look.
    fn change(&mut self, now: Instant) -> Option<Told> {
        let cannot = self.cannot_fence(now);
        if cannot.is_some() == self.told_cannot {
            return None;
        }
        self.told_cannot = cannot.is_some();
        let peer = &self.peer;
        Some(match cannot {
            Some(why) => Told::new(Severity::Alarm, "cannot-fence", format!("this node cannot fence {peer}: {why}")),
            None => Told::new(Severity::Notice, "can-fence", format!("this node can fence {peer} again")),
        })
    }

    /// Why no level of the plan against the peer is proven. `None`: one is, or it is too early to say, or only a
    /// person's word was ever to fence it.
    pub fn cannot_fence(&self, now: Instant) -> Option<String> {
        let mut levels: BTreeMap<u32, Vec<&Aim>> = BTreeMap::new();
        let against = self.aims.iter().filter(|aim| aim.at_peer);
        against.for_each(|aim| levels.entry(aim.level).or_default().push(aim));
        let hopeful = |aim: &&Aim| aim.may_be_good(self.started, self.good_for(), now);
        if levels.is_empty() || levels.values().any(|level| level.iter().all(hopeful)) {
            return None;
        }
        let acting = levels.into_values().flatten().filter(|aim| !aim.manual && !hopeful(aim));
        let why: Vec<String> = acting.map(|aim| aim.trouble(now)).collect();
        Some(format!("no level of its plan is proven ({})", why.join("; ")))
    }

    /// What "cannot fence" means for this node in its role.
    pub fn hindrance(&self, role: Role, now: Instant) -> Option<Reason> {
        let why = self.cannot_fence(now)?;
        let (peer, every) = (&self.peer, self.interval);
        let mend = format!("mend what is named; each agent is looked at every {every}");
        let (means, remedy) = match role {
            // With a yielding plan only a standby ever shoots.
            Role::Primary if self.plan == Plan::Yielding => return None,
            Role::Primary => (
                format!("if {peer} falls silent, the service stops here when the lease ends"),
                format!("{mend}. A planned `leasehold failover` needs no fencing and would still go"),
            ),
            Role::Joining | Role::Standby | Role::TakingOver | Role::Demoting => (
                format!("if {peer} fails, this node does not take over"),
                format!(
                    "{mend}. Until then the service moves only by a planned `leasehold failover` on {peer}, or, once you \
                     saw that {peer} is down, by `leasehold confirm-fenced`"
                ),
            ),
        };
        Some(Reason { text: format!("this node cannot fence {peer}: {means}: {why}"), remedy: Some(remedy) })
    }

    /// `None` where nothing is known yet, and where no agent is aimed at the peer.
    pub fn can_fence(&self, now: Instant) -> Option<bool> {
        let known = |aim: &Aim| aim.at_peer && (aim.last.is_some() || aim.manual);
        let any = self.aims.iter().any(|aim| aim.at_peer && !aim.manual);
        let all_known = self.aims.iter().filter(|aim| aim.at_peer).all(known);
        match self.cannot_fence(now) {
            Some(_) => Some(false),
            None => (any && all_known).then_some(true),
        }
    }

    pub fn shown(&self, now: Instant) -> Vec<Fencing> {
        self.aims.iter().map(|aim| aim.shown(self.good_for(), now)).collect()
    }
}

impl Aim {
    fn take(&mut self, probed: Probed, peer_is_heard: bool, now: Instant) {
        let Probed { health, identity, .. } = probed;
        let (mut faults, mut notes) = (health.faults, health.notes);
        match (self.at_peer, self.scope, health.reading) {
            (true, Scope::Node, Reading::Off) if peer_is_heard => faults.push(format!(
                "it reads {} as off, and {} is heard: it looks at another machine, or does not tell the truth",
                self.target, self.target
            )),
            (false, _, Reading::Off) => {
                notes.push("this node is locked out; it lets itself in again before a start".to_owned());
            }
            (_, _, Reading::Off | Reading::On | Reading::Unknown) => {}
        }
        if faults.is_empty() {
            self.good_at = Some(now);
        }
        self.last = Some(Look { at: now, faults, notes, identity });
    }

    fn state(&self, good_for: Span, now: Instant) -> FencingState {
        match &self.last {
            None => FencingState::Never,
            Some(look) if look.faults.is_empty() && now.since(look.at) <= good_for => FencingState::Proven,
            Some(_) => FencingState::Failing,
        }
    }

    /// Proven not long ago; or just begun, and not looked at yet.
    fn may_be_good(&self, started: Instant, good_for: Span, now: Instant) -> bool {
        match (&self.last, self.good_at) {
            _ if self.manual => false,
            (None, _) => now.since(started) <= good_for,
            (Some(_), good_at) => good_at.is_some_and(|at| now.since(at) <= good_for),
        }
    }

    fn change(&mut self, good_for: Span, now: Instant) -> Option<Told> {
        let state = self.state(good_for, now);
        let before = std::mem::replace(&mut self.told, state);
        let (name, target) = (&self.name, &self.target);
        match (before, state) {
            (FencingState::Never, FencingState::Proven) => Some(Told::new(
                Severity::Info,
                "agent-proven",
                format!("{name} is proven: it could fence {target} now"),
            )),
            (FencingState::Failing, FencingState::Proven) => {
                let text = format!("{name} is proven again: it could fence {target} now");
                Some(Told::new(Severity::Notice, "agent-proven", text))
            }
            (FencingState::Never | FencingState::Proven, FencingState::Failing) => {
                let text = format!("an agent against {target} is not proven: {}", self.trouble(now));
                Some(Told::new(Severity::Warning, "agent-failing", text))
            }
            (FencingState::Never | FencingState::Proven | FencingState::Failing, _) => None,
        }
    }

    /// The agent with what is wrong with it.
    fn trouble(&self, now: Instant) -> String {
        let name = &self.name;
        let faults = match &self.last {
            None => "was never looked at".to_owned(),
            Some(look) if look.faults.is_empty() => format!("was last looked at {} ago", ago(look.at, now)),
            Some(look) => look.faults.join(", "),
        };
        match self.good_at {
            None => format!("{name}: {faults}"),
            Some(at) => format!("{name}: {faults}; last proven {} ago", ago(at, now)),
        }
    }

    fn shown(&self, good_for: Span, now: Instant) -> Fencing {
        let look = self.last.as_ref();
        let mut notes = look.map_or_else(Vec::new, |look| look.notes.clone());
        if self.manual {
            notes.push("a person is asked when it is needed: nothing to prove".to_owned());
        }
        Fencing {
            agent: self.name.clone(),
            target: self.target.clone(),
            kind: self.kind.to_owned(),
            level: self.level,
            scope: self.scope.to_string(),
            state: self.state(good_for, now),
            age_ms: self.good_at.map(|at| now.since(at).as_ms()),
            looked_ms: look.map(|look| now.since(look.at).as_ms()),
            faults: look.map_or_else(Vec::new, |look| look.faults.clone()),
            notes,
            identity: look.map_or(Identity::Unknown, |look| look.identity).word().to_owned(),
        }
    }
}

/// In whole seconds: nobody asks for more.
fn ago(then: Instant, now: Instant) -> Span {
    Span::from_secs(now.since(then).as_ms() / 1000)
}
