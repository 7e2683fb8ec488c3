//! What is known of every fence agent: when it was last proven, what is wrong with it, and whether this node could
//! fence its peer at all. Pure.

use std::collections::BTreeMap;

use crate::config::{AgentKind, Config};
use crate::control::{Fencing, FencingState, Reason};
use crate::core::{AgentSet, Instant, NodeId, Plan, Role, Scope, Severity, Span};
use crate::fence::{Identity, Probed, Reading};

use super::note::Told;

/// A proof counts for so many intervals: one look may be lost, or give way to an attempt, without an alarm.
const GOOD_FOR: u64 = 3;

/// What is said of an agent whose word does not count any more.
const LIED: &str = "it once confirmed what was not so; mend it, then `leasehold clear-alarms`";

/// All agents that this node runs, with their proofs.
#[derive(Debug)]
pub struct Proofs {
    interval: Span,
    plan: Plan,
    started: Instant,
    peer: String,
    aims: Vec<Aim>,
    liars: AgentSet,
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
            liars: AgentSet::EMPTY,
            told_cannot: false,
        }
    }

    /// Agents that once confirmed what was not so prove nothing until an operator clears them.
    pub fn distrust(&mut self, liars: AgentSet) {
        self.liars = self.liars.union(liars);
    }

    /// An operator has cleared them.
    pub fn trust_all(&mut self) {
        self.liars = AgentSet::EMPTY;
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
        let hopeful =
            |aim: &&Aim| !self.liars.contains(aim.index) && aim.may_be_good(self.started, self.good_for(), now);
        if levels.is_empty() || levels.values().any(|level| level.iter().all(hopeful)) {
            return None;
        }
        let acting = levels.into_values().flatten().filter(|aim| !aim.manual && !hopeful(aim));
        let why: Vec<String> = acting.map(|aim| self.trouble(aim, now)).collect();
        Some(format!("no level of its plan is proven ({})", why.join("; ")))
    }

    fn trouble(&self, aim: &Aim, now: Instant) -> String {
        if self.liars.contains(aim.index) { format!("{}: {LIED}", aim.name) } else { aim.trouble(now) }
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
        let show = |aim: &Aim| {
            let mut shown = aim.shown(self.good_for(), now);
            if self.liars.contains(aim.index) {
                shown.state = FencingState::Failing;
                shown.faults.push(LIED.to_owned());
            }
            shown
        };
        self.aims.iter().map(show).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Health;

    const BMC: usize = 0;
    const SUPPLIES: [usize; 2] = [1, 2];

    fn at(seconds: u64) -> Instant {
        Instant(0).after(Span::from_secs(1000 + seconds))
    }

    fn aim(index: usize, level: u32) -> Aim {
        Aim {
            index,
            name: format!("agent{index}"),
            target: "heron".to_owned(),
            at_peer: true,
            kind: "exec",
            level,
            scope: Scope::Node,
            manual: false,
            last: None,
            good_at: None,
            told: FencingState::Never,
        }
    }

    /// A BMC, then both supplies, looked at every ten seconds.
    fn proofs() -> Proofs {
        Proofs {
            interval: Span::from_secs(10),
            plan: Plan::Node { access: false },
            started: at(0),
            peer: "heron".to_owned(),
            aims: vec![aim(BMC, 1), aim(SUPPLIES[0], 2), aim(SUPPLIES[1], 2)],
            liars: AgentSet::EMPTY,
            told_cannot: false,
        }
    }

    fn look(proofs: &mut Proofs, index: usize, health: Health, seconds: u64) -> Vec<&'static str> {
        let (identity, named, evidence) = (Identity::Unknown, None, Vec::new());
        let probed = Probed { index, health, identity, named, evidence };
        proofs.note(probed, Some(at(0)), at(seconds)).into_iter().map(|told| told.kind).collect()
    }

    fn good() -> Health {
        Health::of(Reading::On)
    }

    fn bad() -> Health {
        Health::of(Reading::Unknown)
    }

    #[test]
    fn nothing_is_said_before_the_first_look_and_one_whole_level_is_enough() {
        let mut proofs = proofs();
        assert_eq!((proofs.can_fence(at(0)), proofs.cannot_fence(at(0))), (None, None));
        assert_eq!(look(&mut proofs, BMC, bad(), 1), ["agent-failing"]);
        assert_eq!(look(&mut proofs, SUPPLIES[0], good(), 1), ["agent-proven"]);
        assert_eq!(proofs.can_fence(at(1)), None, "the other supply was not looked at yet");
        assert_eq!(look(&mut proofs, SUPPLIES[1], good(), 1), ["agent-proven"]);
        assert_eq!(proofs.can_fence(at(1)), Some(true));
    }

    #[test]
    fn half_a_level_is_none() {
        let mut proofs = proofs();
        look(&mut proofs, BMC, bad(), 1);
        look(&mut proofs, SUPPLIES[0], good(), 1);
        assert_eq!(look(&mut proofs, SUPPLIES[1], bad(), 1), ["agent-failing", "cannot-fence"]);
        let why = proofs.cannot_fence(at(1)).unwrap();
        assert!(why.contains("agent0") && why.contains("agent2") && !why.contains("agent1"), "{why}");
    }

    #[test]
    fn a_lost_look_is_forgiven_for_three_intervals_and_told_once() {
        let mut proofs = proofs();
        proofs.aims.truncate(1);
        look(&mut proofs, BMC, good(), 1);
        assert_eq!(look(&mut proofs, BMC, bad(), 11), ["agent-failing"]);
        assert_eq!((proofs.can_fence(at(31)), look(&mut proofs, BMC, bad(), 31)), (Some(true), Vec::new()));
        assert_eq!(look(&mut proofs, BMC, bad(), 32), ["cannot-fence"]);
        assert_eq!(look(&mut proofs, BMC, bad(), 42), Vec::<&str>::new());
        assert_eq!(look(&mut proofs, BMC, good(), 52), ["agent-proven", "can-fence"]);
    }

    #[test]
    fn a_look_that_never_ends_is_no_proof_either() {
        let mut proofs = proofs();
        proofs.aims.truncate(1);
        assert_eq!(proofs.can_fence(at(31)), Some(false), "never looked at");
        look(&mut proofs, BMC, good(), 31);
        assert_eq!((proofs.can_fence(at(61)), proofs.can_fence(at(62))), (Some(true), Some(false)));
        assert_eq!(proofs.shown(at(62))[0].state, FencingState::Failing);
    }

    #[test]
    fn a_device_that_reads_off_what_is_heard_looks_at_another_machine() {
        let mut proofs = proofs();
        proofs.aims.truncate(1);
        assert_eq!(look(&mut proofs, BMC, Health::of(Reading::Off), 5), ["agent-proven"], "it may just have booted");
        assert_eq!(look(&mut proofs, BMC, Health::of(Reading::Off), 15), ["agent-failing"]);
        assert!(proofs.shown(at(15))[0].faults[0].contains("another machine"));
    }

    #[test]
    fn neither_a_person_nor_a_liar_proves_anything() {
        let mut proofs = proofs();
        proofs.aims = vec![aim(BMC, 1), Aim { manual: true, ..aim(9, 2) }];
        look(&mut proofs, BMC, good(), 1);
        assert_eq!(proofs.can_fence(at(1)), Some(true));
        proofs.distrust(AgentSet::EMPTY.with(BMC));
        assert_eq!(proofs.can_fence(at(1)), Some(false));
        assert!(proofs.cannot_fence(at(1)).unwrap().contains("clear-alarms"));
        proofs.trust_all();
        assert_eq!(proofs.can_fence(at(1)), Some(true));
        proofs.aims.remove(0);
        assert_eq!(proofs.can_fence(at(1)), Some(false), "only a person is left");
    }

    #[test]
    fn each_role_is_told_what_it_means_for_it() {
        let mut proofs = proofs();
        proofs.aims.truncate(1);
        look(&mut proofs, BMC, bad(), 1);
        let says = |proofs: &Proofs, role| proofs.hindrance(role, at(1)).map(|reason| reason.text);
        assert!(says(&proofs, Role::Standby).unwrap().contains("if heron fails, this node does not take over"));
        assert!(says(&proofs, Role::Primary).unwrap().contains("the service stops here when the lease ends"));
        proofs.plan = Plan::Yielding;
        assert_eq!(says(&proofs, Role::Primary), None, "a primary never shoots there");
        assert!(says(&proofs, Role::Standby).is_some());
    }
}
