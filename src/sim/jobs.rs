//! Requests to fence devices and to the storage, from their launch to their answer, with what can go wrong on the way.

use crate::core::{AgentSet, Input, Instant, Job as JobId, NodeId, TakeResult};

use super::fence::{DeviceMode, Job, Landing, Request, Stage};
use super::queue::Event;
use super::text::name;
use super::world::{Answer, World};

impl World {
    /// Sends a request of this daemon on its way.
    pub(super) fn launch(
        &mut self,
        caller: NodeId,
        id: JobId,
        request: Request,
        excluded: AgentSet,
        deadline: Option<Instant>,
    ) {
        let Some(life) = self.machines[caller.index()].daemon.as_ref().map(|d| d.life) else { return };
        let limit = self.limit(caller, deadline);
        let mut job = Job { caller, life, id, request, excluded, limit, half: 0, stage: Stage::Sent, cancelled: false };
        let setup = &self.setup;
        let range =
            if job.asks_store() { setup.nodes[caller.index()].store } else { setup.nodes[caller.peer().index()].bmc };
        job.half = self.draw(range) / 2;
        let slot = self.jobs.put(job);
        self.queue.push(self.now + job.half, Event::Job { slot });
    }

    pub(super) fn job_goes_on(&mut self, slot: u32) {
        let Some(job) = self.jobs.get_mut(slot).copied() else { return };
        if job.cancelled || (self.now > job.limit && job.stage == Stage::Polling) {
            self.jobs.take(slot);
        } else if job.asks_store() {
            self.jobs.take(slot);
            self.store_job(job);
        } else {
            self.power_job(slot, job);
        }
    }

    /// The answer travels back; of a cancelled job it reaches nobody.
    fn reply(&mut self, job: &Job, at: u64, input: Option<Input>) {
        let Some(input) = input else { return };
        let answer = Answer { life: job.life, node: job.caller, job: Some(job.id), input };
        self.send_answer(answer, at.max(self.now) - self.now);
    }

    /// The reply that nobody knows, when the plan gives up.
    fn give_up(&mut self, job: &Job) {
        self.reply(job, job.limit, job.unknown());
    }

    fn store_job(&mut self, job: Job) {
        let back = self.now + job.half;
        match self.store.mode[job.caller.index()] {
            DeviceMode::Unreachable | DeviceMode::LosesCommands => self.give_up(&job),
            DeviceMode::Refuses => self.reply(&job, back, job.refused(None)),
            DeviceMode::Late(delay) => {
                let slot = self.landings.put(Landing::Store { caller: job.caller, request: job.request });
                self.queue.push(self.now + delay, Event::Landing { slot });
                self.give_up(&job);
            }
            DeviceMode::LosesAnswers => {
                self.at_store(job.caller, job.request);
                self.give_up(&job);
            }
            DeviceMode::Works | DeviceMode::Lies => {
                let input = match (self.at_store(job.caller, job.request), job.request) {
                    (TakeResult::Refused { highest }, Request::FenceTake(_)) => job.refused(Some(highest)),
                    (result, Request::Take(_)) => Some(Input::TakeDone { job: job.id, result }),
                    (_, Request::Access) => Some(Input::AccessDone { job: job.id, assured: true }),
                    (_, Request::Highest) => Some(Input::HighestRead { job: job.id, highest: Some(self.store.token) }),
                    _ => Some(job.confirmed()),
                };
                self.reply(&job, back, input);
            }
        }
    }

    /// The request takes effect at the storage.
    fn at_store(&mut self, caller: NodeId, request: Request) -> TakeResult {
        let result = match request {
            Request::Take(take) | Request::FenceTake(take) => self.store.take(caller, take),
            Request::Revoke | Request::Off { .. } => {
                self.store.revoked[caller.peer().index()] = true;
                TakeResult::Taken
            }
            Request::Access => {
                self.store.revoked[caller.index()] = false;
                TakeResult::Taken
            }
            Request::Probe | Request::Highest | Request::PowerOn => TakeResult::Taken,
        };
        if !matches!(request, Request::Highest) {
            self.trace.say(self.now, Some(caller), || format!("* storage: {} {result:?}", shown(request)));
        }
        self.judge();
        result
    }

    /// The power controller of the caller's peer gets the request, or is read once more.
    fn power_job(&mut self, slot: u32, job: Job) {
        let target = job.caller.peer();
        let mode = self.bmcs[target.index()].mode;
        let off = !self.machines[target.index()].powered;
        let gone = self.setup.bmc_shares_power && self.machines[target.index()].outage;
        if gone || mode == DeviceMode::Unreachable {
            if job.request == Request::Probe {
                self.jobs.take(slot);
                return self.give_up(&job);
            }
            return self.poll_again(slot, job);
        }
        match job.request {
            Request::Probe => {
                self.jobs.take(slot);
                let lie = mode == DeviceMode::Lies && !off;
                self.lied(lie);
                self.reply(&job, self.now + job.half, Some(job.read(off || lie)));
            }
            Request::PowerOn => {
                self.jobs.take(slot);
                if mode == DeviceMode::Works {
                    self.power_on(target);
                }
            }
            _ if off => self.verified_off(slot, job),
            _ if job.stage == Stage::Polling => self.poll_again(slot, job),
            _ => self.order_off(slot, job, mode),
        }
    }

    /// The off command reaches the controller while the power is on.
    fn order_off(&mut self, slot: u32, job: Job, mode: DeviceMode) {
        let target = job.caller.peer();
        self.bmcs[target.index()].shots += 1;
        self.say(target, || format!("* its power controller is told `off` ({mode:?})"));
        match mode {
            DeviceMode::Refuses => {
                self.jobs.take(slot);
                self.reply(&job, self.now + job.half, job.refused(None));
            }
            DeviceMode::Lies => {
                self.jobs.take(slot);
                self.lied(true);
                self.reply(&job, self.now + job.half, Some(job.confirmed()));
            }
            DeviceMode::LosesAnswers => {
                self.jobs.take(slot);
                self.power_off(target);
                self.give_up(&job);
            }
            DeviceMode::Late(delay) => {
                let landing = self.landings.put(Landing::PowerOff { target, by: job.caller });
                self.queue.push(self.now + delay, Event::Landing { slot: landing });
                self.poll_again(slot, job);
            }
            DeviceMode::LosesCommands | DeviceMode::Unreachable => self.poll_again(slot, job),
            DeviceMode::Works => {
                self.power_off(target);
                self.poll_again(slot, job);
            }
        }
    }

    fn verified_off(&mut self, slot: u32, job: Job) {
        self.jobs.take(slot);
        if job.request == (Request::Off { access: true }) {
            if self.store.mode[job.caller.index()] != DeviceMode::Works {
                return self.give_up(&job);
            }
            self.at_store(job.caller, job.request);
        }
        self.reply(&job, self.now + job.half, Some(job.confirmed()));
    }

    /// Reads the power again a little later, or gives up at the limit.
    fn poll_again(&mut self, slot: u32, job: Job) {
        let next = self.now + self.setup.nodes[job.caller.peer().index()].poll;
        if next > job.limit {
            self.jobs.take(slot);
            return self.give_up(&job);
        }
        if let Some(kept) = self.jobs.get_mut(slot) {
            let told = self.bmcs[job.caller.peer().index()].mode != DeviceMode::Unreachable;
            kept.stage = if told { Stage::Polling } else { kept.stage };
        }
        self.queue.push(next, Event::Job { slot });
    }

    fn lied(&mut self, lied: bool) {
        if lied {
            self.judges.void.s1.get_or_insert("a fence device lied");
        }
    }

    pub(super) fn lands(&mut self, slot: u32) {
        match self.landings.take(slot) {
            Some(Landing::PowerOff { target, by }) => {
                self.say(target, || format!("* the late `off` of {} lands", name(by)));
                self.power_off(target);
            }
            Some(Landing::Store { caller, request }) => {
                self.at_store(caller, request);
            }
            None => {}
        }
    }
}

fn shown(request: Request) -> String {
    match request {
        Request::Take(take) | Request::FenceTake(take) => format!("take {} if {:?}", take.new, take.seen),
        Request::Revoke | Request::Off { .. } => String::from("revoke the peer"),
        Request::Access => String::from("own access"),
        Request::Probe | Request::Highest | Request::PowerOn => String::from("read"),
    }
}
