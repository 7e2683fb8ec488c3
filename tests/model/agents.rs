//! Fence devices and the storage, outside the machines: a job goes on when its caller is dead.

use leasehold::core::{
    AgentSet, FenceResult, FirstShooter, Input, Instant, Job, NodeId, Output, Plan, PowerReading, Scope, Seen, Span,
    Take, TakeResult, Token,
};

use super::judge::Violation;
use super::machine::Doing;
use super::setup::{Ask, H};
use super::world::{Step, World};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    Probe,
    Off,
    Revoke,
    FenceTake(Take),
    Take(Take),
    Access,
    Highest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Has not taken effect yet.
    Sent,
    /// Has, and this is what it saw.
    Landed(Effect),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    Power(bool),
    Done,
    /// Only that, where power off was asked for.
    Revoked,
    Taken(TakeResult),
    Highest(Token),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub caller: NodeId,
    pub life: u8,
    pub job: Job,
    pub request: Request,
    pub stage: Stage,
    /// When it gives up, or, nobody waiting any more, when it can no longer take effect.
    pub limit: Instant,
    /// Nobody waits for the answer.
    pub cancelled: bool,
    excluded: bool,
}

/// A job as a state sees it: not by its number, but by its distance from the newest of its caller.
#[derive(Debug, Clone, Copy, Hash)]
pub struct SeenWork(NodeId, bool, Request, Stage, Instant, bool, bool);

/// The shared storage of an exclusive or yielding pair.
#[derive(Debug, Clone, Hash, Default)]
pub struct Store {
    pub token: Token,
    pub revoked: [bool; 2],
}

impl Store {
    /// The one atomic operation of an exclusive agent (protocol section 1).
    fn take(&mut self, caller: NodeId, take: Take) -> TakeResult {
        let known = match take.seen {
            Seen::Whatever => true,
            Seen::AtMost(seen) => self.token <= seen || self.token.minter() == Some(caller),
        };
        if take.new <= self.token || !known {
            return TakeResult::Refused { highest: self.token };
        }
        self.token = take.new;
        self.revoked[caller.peer().index()] = true;
        self.revoked[caller.index()] = false;
        TakeResult::Taken
    }
}

impl Work {
    pub fn can_lie(&self) -> bool {
        self.request == Request::Off
    }

    pub fn seen_from(&self, world: &World) -> SeenWork {
        let current = self.life == world.machines[self.caller.index()].lives;
        SeenWork(self.caller, current, self.request, self.stage, self.limit, self.cancelled, self.excluded)
    }

    /// The answer when nobody knows.
    pub fn unknown(&self) -> Input {
        let job = self.job;
        match self.request {
            Request::Probe => Input::ProbeDone { job, reading: PowerReading::Unknown },
            Request::Off | Request::Revoke | Request::FenceTake(_) => {
                Input::FenceDone { job, result: FenceResult::Unknown }
            }
            Request::Take(_) => Input::TakeDone { job, result: TakeResult::Unknown },
            Request::Access => Input::AccessDone { job, assured: false },
            Request::Highest => Input::HighestRead { job, highest: None },
        }
    }

    /// The answer of a device that says off.
    pub fn lied(&self) -> Input {
        self.confirmed(Scope::Node)
    }

    fn confirmed(&self, scope: Scope) -> Input {
        let verified_by = AgentSet::EMPTY.with(0);
        let result = if self.excluded { FenceResult::Unknown } else { FenceResult::Confirmed { scope, verified_by } };
        Input::FenceDone { job: self.job, result }
    }

    fn told(&self, effect: Effect) -> Input {
        let job = self.job;
        match (self.request, effect) {
            (Request::Probe, Effect::Power(true)) if !self.excluded => {
                Input::ProbeDone { job, reading: PowerReading::Off { verified_by: AgentSet::EMPTY.with(0) } }
            }
            (Request::Probe, Effect::Power(false)) => Input::ProbeDone { job, reading: PowerReading::On },
            (Request::Off, Effect::Done) => self.confirmed(Scope::Node),
            (Request::Off, Effect::Revoked)
            | (Request::Revoke, Effect::Done)
            | (Request::FenceTake(_), Effect::Taken(TakeResult::Taken)) => self.confirmed(Scope::Resource),
            (Request::FenceTake(_), Effect::Taken(TakeResult::Refused { highest })) => {
                Input::FenceDone { job, result: FenceResult::Refused { highest: Some(highest) } }
            }
            (Request::Take(_), Effect::Taken(result)) => Input::TakeDone { job, result },
            (Request::Access, Effect::Done) => Input::AccessDone { job, assured: true },
            (Request::Highest, Effect::Highest(token)) => Input::HighestRead { job, highest: Some(token) },
            _ => self.unknown(),
        }
    }
}

impl World {
    /// The request of an output that asks an agent.
    pub fn requested(&self, output: &Output) -> Option<(Job, Request, AgentSet)> {
        Some(match *output {
            Output::StartProbe { job, excluded } => (job, Request::Probe, excluded),
            Output::StartFence { job, take, excluded, .. } => {
                let request = match (take, self.setup.plan) {
                    (Some(take), _) => Request::FenceTake(take),
                    (None, Plan::Yielding) => Request::Revoke,
                    (None, _) => Request::Off,
                };
                (job, request, excluded)
            }
            Output::ReadHighest { job } => (job, Request::Highest, AgentSet::EMPTY),
            Output::Take { job, take } => (job, Request::Take(take), AgentSet::EMPTY),
            Output::EnsureAccess { job, .. } => (job, Request::Access, AgentSet::EMPTY),
            _ => return None,
        })
    }

    pub fn launch(&mut self, caller: NodeId, job: Job, request: Request, excluded: AgentSet) -> Step {
        self.judge_shot(caller, request)?;
        let life = self.machines[caller.index()].lives;
        let limit = self.now.after(Span(H * self.setup.fence));
        let excluded = !excluded.is_empty();
        self.works.push(Work { caller, life, job, request, stage: Stage::Sent, limit, cancelled: false, excluded });
        Ok(())
    }

    /// Who may shoot at all, and who first.
    fn judge_shot(&self, caller: NodeId, request: Request) -> Step {
        let ordered = self.setup.asks.contains(&Ask::Fence) || self.setup.asks.contains(&Ask::Confirm);
        if ordered || !matches!(request, Request::Off | Request::Revoke | Request::FenceTake(_)) {
            return Ok(());
        }
        let (me, peer) = (&self.machines[caller.index()], &self.machines[caller.peer().index()]);
        let primary_first = self.setup.first == FirstShooter::Primary;
        let second = me.service.active != primary_first && peer.service.active == primary_first;
        let heard_nobody = !me.run_time.had_contact && !self.setup.join_fence;
        let broken = [
            (me.disk.is_some_and(|r| r.frozen) && !me.service.active, "K24: a frozen node shoots"),
            (heard_nobody, "K7: a node that heard nobody shoots"),
            (request == Request::Revoke && me.service.active, "section 1: a yielding primary shoots"),
            (
                self.setup.in_turn && self.setup.asks.is_empty() && second && peer.daemon.is_some(),
                "K12, L: the second shooter shoots first",
            ),
        ];
        let told = broken.into_iter().find(|(so, _)| *so);
        told.map_or(Ok(()), |(_, what)| Err(Violation(format!("{what} ({caller})"))))
    }

    /// The answer is no longer wanted; the effect may still land, for as long as the agents declare.
    pub fn cancel(&mut self, caller: NodeId, job: Job) {
        let now = self.now;
        let life = self.machines[caller.index()].lives;
        for work in self.works.iter_mut().filter(|w| w.caller == caller && w.life == life && w.job == job) {
            work.let_go(now);
        }
        self.works.retain(|w| !(w.cancelled && w.is_spent()));
    }

    /// The caller is dead.
    pub fn orphan(&mut self, caller: NodeId) {
        let now = self.now;
        self.works.iter_mut().filter(|w| w.caller == caller && !w.cancelled).for_each(|w| w.let_go(now));
        self.works.retain(|w| !(w.cancelled && w.is_spent()));
    }

    /// The request takes effect.
    pub fn land(&mut self, i: usize) {
        let Work { caller, life, job, request, stage, .. } = self.works[i];
        if stage != Stage::Sent {
            return;
        }
        let peer = caller.peer();
        let effect = match request {
            Request::Probe => Effect::Power(!self.machines[peer.index()].powered),
            Request::Off if self.setup.weak => Effect::Revoked,
            Request::Off => {
                self.machines[peer.index()].go_down(false, true);
                self.orphan(peer);
                Effect::Done
            }
            Request::Revoke => {
                self.store.revoked[peer.index()] = true;
                Effect::Done
            }
            Request::Access => {
                self.store.revoked[caller.index()] = false;
                Effect::Done
            }
            Request::Take(take) | Request::FenceTake(take) => Effect::Taken(self.store.take(caller, take)),
            Request::Highest => Effect::Highest(self.store.token),
        };
        self.say(|| format!("  {request:?} of {caller}: {effect:?}"));
        // Killing the peer has let go of its jobs: the place of this one may be another.
        let same = |w: &&mut Work| w.caller == caller && w.life == life && w.job == job;
        if let Some(work) = self.works.iter_mut().find(same) {
            work.stage = Stage::Landed(effect);
        }
        self.works.retain(|w| !(w.cancelled && w.is_spent()));
    }

    pub fn answer(&mut self, i: usize) -> Step {
        let Work { caller, life, job, .. } = self.works[i];
        self.land(i);
        let Some(at) = self.works.iter().position(|w| w.caller == caller && w.life == life && w.job == job) else {
            return Ok(());
        };
        let work = self.works.remove(at);
        match work.stage {
            Stage::Landed(effect) => self.reply(&work, work.told(effect)),
            Stage::Sent => Ok(()),
        }
    }

    pub fn reply(&mut self, work: &Work, input: Input) -> Step {
        let current = self.machines[work.caller.index()].lives == work.life;
        if current && !work.cancelled { self.tell(work.caller, input) } else { Ok(()) }
    }

    /// The time of a job is over: nobody knows what became of it, and for a while it may still land.
    pub fn run_out(&mut self, work: Work) -> Step {
        if work.cancelled {
            return Ok(());
        }
        let mut left = work;
        left.let_go(self.now);
        if !left.is_spent() {
            self.works.push(left);
        }
        self.reply(&work, work.unknown())
    }

    /// The guard kills what still runs at the latest moment that the margin allows.
    pub fn guard_kills(&mut self, id: NodeId) -> Result<(), Violation> {
        self.say(|| format!("  the guard kills the service of {id}"));
        let service = &mut self.machines[id.index()].service;
        let doing = std::mem::replace(&mut service.doing, Doing::Nothing);
        service.active = false;
        service.whole = false;
        let epoch = service.epoch;
        match doing {
            Doing::Stopping(epoch) => self.tell(id, Input::ResourcesStopped(epoch)),
            Doing::Starting(epoch) => self.tell(id, Input::ResourcesFailed(epoch)),
            Doing::Nothing => self.tell(id, Input::ResourcesFailed(epoch)),
        }
    }
}

impl Work {
    fn let_go(&mut self, now: Instant) {
        self.cancelled = true;
        self.limit = now.after(Span(H));
    }

    /// It can change nothing any more.
    fn is_spent(&self) -> bool {
        self.stage != Stage::Sent || matches!(self.request, Request::Probe | Request::Highest)
    }
}
