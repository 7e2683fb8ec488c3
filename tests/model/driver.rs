//! What the daemon's driver does with the core's outputs: puts them into effect in order, and decides nothing.

use std::rc::Rc;

use leasehold::core::{
    Epoch, Input, NodeId, Output, Plan, PromoteAfter, ProofKind, Role, RunTimeLease, Standing, Token,
};

use super::judge::Violation;
use super::machine::Doing;
use super::world::{Fresh, Step, World};

impl World {
    pub fn put_into_effect(&mut self, id: NodeId) -> Step {
        while let Some(daemon) = &mut self.machines[id.index()].daemon
            && let Some(output) = Rc::make_mut(daemon).poll_output()
        {
            self.perform(id, output)?;
        }
        Ok(())
    }

    fn perform(&mut self, id: NodeId, output: Output) -> Step {
        if let Some((job, request, excluded)) = self.requested(&output) {
            self.say(|| format!("  {id} asks {request:?}"));
            self.launch(id, job, request, excluded)?;
            self.fresh.push_back(Fresh::Job(id, job));
            return Ok(());
        }
        match output {
            Output::Send(datagram) => self.send(id, datagram),
            Output::Persist { generation, record } => {
                self.machines[id.index()].writing = Some((generation, record));
                self.fresh.push_back(Fresh::Write(id));
                Ok(())
            }
            Output::CancelJob(job) => {
                self.cancel(id, job);
                Ok(())
            }
            Output::ArmLease { deadline, token, sole } => {
                let machine = &mut self.machines[id.index()];
                machine.run_time.lease = Some(RunTimeLease { token, deadline, sole });
                machine.deadline = Some(deadline);
                machine.sole = sole;
                self.judge_sole(id)
            }
            Output::DisarmLease { deadline } => {
                let machine = &mut self.machines[id.index()];
                machine.run_time.lease = None;
                machine.deadline = Some(deadline);
                Ok(())
            }
            Output::StartResources { epoch, token, proof } => self.start(id, epoch, token, proof),
            Output::AdoptResources { epoch, token } => self.adopt(id, epoch, token),
            Output::StopResources { epoch, .. } => {
                self.machines[id.index()].service.doing = Doing::Stopping(epoch);
                self.fresh.push_back(Fresh::Stop(id));
                Ok(())
            }
            Output::TokenChanged { token } => {
                self.machines[id.index()].service.token = token;
                self.judge.use_token(id, token)
            }
            Output::NoteContact => {
                self.machines[id.index()].run_time.had_contact = true;
                Ok(())
            }
            Output::Report(event) => {
                self.judge.report(id, &event);
                self.say(|| format!("  {id}: {event}"));
                Ok(())
            }
            Output::Finished => {
                self.machines[id.index()].end_daemon(true);
                self.orphan(id);
                Ok(())
            }
            Output::CutClients | Output::PowerOn { .. } => Ok(()),
            Output::StartProbe { .. }
            | Output::StartFence { .. }
            | Output::ReadHighest { .. }
            | Output::Take { .. }
            | Output::EnsureAccess { .. } => Ok(()),
        }
    }

    fn send(&mut self, id: NodeId, said: leasehold::core::Datagram) -> Step {
        self.judge.sent(&said, self.machines[id.index()].disk.as_ref())?;
        let lost = self.cut[id.index()] || self.machines[id.peer().index()].daemon.is_none();
        self.say(|| {
            let grant = said.grant.map(|g| (g.token.0, g.seq.0));
            let echo = said.echo.map(|e| (e.incarnation.0, e.seq.0));
            format!(
                "  {id} sends {}{}: {:?} {:?} held {}{} claim {:?} grant {grant:?} release {:?} admitted {:?} {:?} {}{}{}echo {echo:?}",
                said.seq,
                if lost { " (lost)" } else { "" },
                said.role,
                said.standing,
                said.held_token,
                if said.holding { "!" } else { "" },
                said.claim.map(|t| t.0),
                said.release.map(|t| t.0),
                said.admitted.map(|i| i.0),
                said.activity,
                if said.wish { "wish " } else { "" },
                if said.resources_up { "up " } else { "" },
                if said.notices.leave { "leave " } else if said.notices.freeze { "freeze " } else { "" },
            )
        });
        if !lost {
            self.fresh.push_back(Fresh::Message(said));
        }
        Ok(())
    }

    /// In a yielding pair nobody shoots a standby: beside one that may shoot nobody acts without a lease (K3, K11).
    fn judge_sole(&self, id: NodeId) -> Step {
        let (me, peer) = (&self.machines[id.index()], &self.machines[id.peer().index()]);
        let status = peer.daemon.as_ref().map(|d| d.status(self.now));
        let trusts = status.is_some_and(|s| s.role == Role::Standby && s.standing == Standing::Paired && s.admitted);
        let broken = self.setup.plan == Plan::Yielding && me.sole && trusts;
        if broken { Err(Violation(format!("K11: {id} acts as sole primary beside a paired standby"))) } else { Ok(()) }
    }

    fn start(&mut self, id: NodeId, epoch: Epoch, token: Token, proof: ProofKind) -> Step {
        let machine = &mut self.machines[id.index()];
        self.judge.start(id, token, proof, machine.disk.as_ref())?;
        let takes_back = machine.service.token != Token::NONE && proof == ProofKind::Agreed;
        machine.service.active = true;
        machine.service.whole = false;
        machine.service.doing = Doing::Starting(epoch);
        machine.service.epoch = epoch;
        machine.service.token = token;
        self.fresh.push_back(Fresh::Start(id));
        if self.setup.in_turn && takes_back {
            return Err(Violation(format!("K23: {id} takes back what it released")));
        }
        let peer = &self.machines[id.peer().index()];
        if peer.service.active {
            // S2: after a lie, only a start that waited for the lease of a primary bound by one is judged.
            let waited = self.setup.promote_after == PromoteAfter::FenceAndLease && !peer.sole;
            return self.judge.both_act(self.judge.void && !waited);
        }
        Ok(())
    }

    fn adopt(&mut self, id: NodeId, epoch: Epoch, token: Token) -> Step {
        let service = &mut self.machines[id.index()].service;
        service.epoch = epoch;
        if !service.active || !service.whole {
            return self.tell(id, Input::ResourcesFailed(epoch));
        }
        // Its record may have become newer than what the former daemon told the service: it is told now.
        if std::mem::replace(&mut service.token, token) != token {
            return self.judge.use_token(id, token);
        }
        Ok(())
    }

    pub fn started(&mut self, id: NodeId) -> Step {
        let service = &mut self.machines[id.index()].service;
        let Doing::Starting(epoch) = service.doing else { return Ok(()) };
        service.doing = Doing::Nothing;
        service.whole = true;
        self.tell(id, Input::ResourcesStarted(epoch))
    }

    pub fn stopped(&mut self, id: NodeId) -> Step {
        let service = &mut self.machines[id.index()].service;
        let Doing::Stopping(epoch) = service.doing else { return Ok(()) };
        service.doing = Doing::Nothing;
        service.active = false;
        service.whole = false;
        self.tell(id, Input::ResourcesStopped(epoch))
    }
}
