//! The loop: inputs to the core, outputs put into effect in order. It decides nothing, and calls nothing that blocks.
//!
//! ```text
//!  alarm, links, inbox, control ──▶ Node ──▶ links          (datagrams)
//!                                       ├──▶ record thread  (writes)
//!                                       ├──▶ worker thread  (agents, resources)
//!                                       └──▶ journal, log, service manager
//! ```

use std::sync::Arc;

use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender};

use crate::control::{Ask, Call, Decision, Failure, Journal, Outcome, Severity as Loud};
use crate::core::{Command, Datagram, Event, Hindrance, Input, Instant, Node, Output, Severity, Span, Standing};
use crate::fence::journal::News;
use crate::os::clock::{self, Alarm, WallCheck};
use crate::os::generation::GenerationId;
use crate::os::links::{RECEIVE_BUFFER, recv_any};
use crate::os::manager::Ending;
use crate::os::notify::Notifier;
use crate::os::runtime::RunTime;
use crate::os::stall::StallMeter;

use super::armed::Armed;
use super::cut::Cut;
use super::enforcer::Enforcer;
use super::face::Shown;
use super::fencer::FenceWork;
use super::group::GroupOrder;
use super::heartbeat::Heartbeats;
use super::known_peer::KnownPeer;
use super::lateness::{LatenessAlarm, Watched};
use super::note::{Fault, Note, Told};
use super::persister::Persister;
use super::picture::Picture;
use super::thinning::{Thinning, Weight};

/// Everything that the loop owns.
#[derive(Debug)]
pub struct Driver {
    pub node: Node,
    pub heartbeats: Heartbeats,
    pub run_time: RunTime,
    pub persister: Persister,
    pub armed: Arc<Armed>,
    pub enforcer: Arc<Enforcer>,
    pub shown: Shown,
    pub cut: Cut,
    pub fencing: UnboundedSender<FenceWork>,
    pub group: UnboundedSender<GroupOrder>,
    pub journal: Journal,
    pub notifier: Notifier,
    pub picture: Picture,
    pub thinning: Thinning,
    pub known_peer: KnownPeer,
    pub stalls: StallMeter,
    pub lateness: LatenessAlarm,
    /// With `lease.wall_check`: from which jump on.
    pub wall: Option<(WallCheck, Span)>,
    pub links_usable: bool,
    /// What the resources were last told of the record.
    pub told_standing: Option<Standing>,
    /// What they were last told of the way to the other node.
    pub told_handover: Option<Option<Hindrance>>,
    pub told_cannot_fence: bool,
    pub finished: bool,
    pub end: End,
}

/// What the daemon leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing runs here; or the next daemon is about to start.
    InOrder,
    /// The resources are up, as an operator ordered, and no daemon is to be started by itself.
    Kept,
}

/// What the loop waits for beside the clock and the links.
#[derive(Debug)]
pub struct Sources {
    pub inbox: UnboundedReceiver<Note>,
    pub calls: Receiver<Call>,
    pub signals: UnboundedReceiver<Ending>,
    /// `None`: this kernel or sandbox tells nothing of it.
    pub generation: Option<GenerationId>,
}

async fn new_generation(id: Option<&GenerationId>) {
    match id {
        Some(id) => id.changed().await,
        None => std::future::pending().await,
    }
}

impl Driver {
    /// Runs until the core says that the clean stop is over.
    pub async fn run(mut self, mut sources: Sources, alarm: Alarm) -> End {
        let mut buffer = [0u8; RECEIVE_BUFFER];
        let mut turn = 0;
        self.picture.distrust(self.node.status(clock::now()).distrusted);
        self.put_into_effect();
        self.notifier.ready();
        while !self.finished {
            let due = self.node.poll_timeout();
            alarm.set(due);
            // The clock comes first: no flood of datagrams or requests may hold up a deadline.
            tokio::select! {
                biased;
                () = alarm.fired() => self.wake(due),
                () = new_generation(sources.generation.as_ref()) => self.take_new_generation(),
                Some(note) = sources.inbox.recv() => self.take_note(note),
                (link, length) = recv_any(&self.heartbeats.links, &mut buffer, &mut turn) => {
                    self.receive(link, &buffer[..length]);
                }
                Some(call) = sources.calls.recv() => self.answer(call),
                Some(ending) = sources.signals.recv() => match ending {
                    Ending::Stop => self.stop(),
                    Ending::Replaced => self.make_room(),
                },
            }
            self.put_into_effect();
            self.notifier.beat();
            self.enforcer.beat();
        }
        self.end
    }

    fn wake(&mut self, due: Option<Instant>) {
        let now = clock::now();
        if let Some(due) = due {
            self.stalls.note(due, now);
            self.note_lateness(now.since(due), now);
        }
        self.watch_links(now);
        self.watch_wall(now);
        self.node.handle_timeout(now);
    }

    fn take_new_generation(&mut self) {
        tracing::warn!("the generation id of this virtual machine changed: it was restored, copied or moved");
        self.node.handle_input(Input::GenerationIdChanged, clock::now());
    }

    fn watch_wall(&mut self, now: Instant) {
        let Some((check, allowed)) = &mut self.wall else { return };
        let jump = check.jump();
        if jump > *allowed {
            tracing::warn!(%jump, allowed = %*allowed, "the wall clock jumped forward");
            self.node.handle_input(Input::WallClockJumped, now);
        }
    }

    /// Tells when this loop, or the guard, was woken so late that the margin was nearly not enough.
    fn note_lateness(&mut self, late: Span, now: Instant) {
        let guard = self.enforcer.guard(now).map_or(Span::ZERO, |said| said.late.longest);
        let told = self.lateness.weigh(late, guard, now);
        told.into_iter().for_each(|told| self.tell(told));
    }

    fn watch_links(&mut self, now: Instant) {
        let usable = self.heartbeats.any_usable();
        if usable != self.links_usable {
            self.links_usable = usable;
            self.node.handle_input(Input::LinksUsable(usable), now);
        }
    }

    fn receive(&mut self, link: usize, bytes: &[u8]) {
        let now = clock::now();
        if let Some(datagram) = self.heartbeats.open(link, bytes, now) {
            self.node.handle_input(Input::Datagram(datagram), now);
            self.learn_uuid(&datagram, now);
        } else if self.heartbeats.take_last_words() {
            self.tell_last_words();
        }
    }

    /// Only from a datagram that counts: an old one could be replayed.
    fn learn_uuid(&mut self, datagram: &Datagram, now: Instant) {
        if !self.known_peer.is_news(datagram.uuid) {
            return;
        }
        let counted = self.node.status(now).peer.is_some_and(|peer| peer.seq == datagram.seq);
        if let Some(told) = counted.then(|| self.known_peer.learn(datagram.uuid)).flatten() {
            self.tell(told);
        }
    }

    fn take_note(&mut self, note: Note) {
        match note {
            Note::Input(input) => self.take_input(input),
            Note::Fault(fault) => fail(fault),
            Note::Evidence(evidence) => self.picture.note_evidence(evidence),
            Note::Resource { name, state, detail } => self.picture.note_resource(&name, state, detail),
            Note::NotReady(why) => {
                self.shown.could_serve(why.is_none());
                self.picture.note_not_ready(why);
            }
            Note::Clients(clients) => self.picture.note_clients(clients),
            Note::Written { took, error } => self.picture.note_written(took, error),
            Note::Probed(probed) => {
                let told = self.picture.note_probed(probed, clock::now());
                told.into_iter().for_each(|told| self.tell(told));
            }
            Note::Journal(news) => self.note_journal(news),
            Note::Told(told) => self.tell(told),
        }
    }

    fn note_journal(&mut self, news: News) {
        if let News::Written { number, head } = &news {
            // Here a tail that was cut off whole is missed.
            tracing::info!(number, sha256 = head, "fence journal");
        }
        if let Some(told) = self.picture.note_journal(news) {
            self.tell(told);
        }
    }

    /// A verified stop is told to the guard first; one that nobody wants any more says nothing about now.
    fn take_input(&mut self, input: Input) {
        if let Input::ResourcesStopped(epoch) = input
            && self.armed.is_wanted(epoch)
        {
            self.enforcer.stopped();
        }
        self.node.handle_input(input, clock::now());
    }

    fn answer(&mut self, call: Call) {
        let now = clock::now();
        let outcome = match call.ask {
            Ask::Status => {
                let watched = Watched { meter: &self.stalls, guard: self.enforcer.guard(now) };
                Outcome::Status(Box::new(self.picture.take(&self.node, &self.heartbeats, watched, now)))
            }
            Ask::Command(command) => match self.node.command(command, now) {
                Ok(()) => Outcome::Accepted,
                Err(refusal) => Outcome::Failed(Failure::from(refusal)),
            },
        };
        // A client that went away is no matter.
        let _ = call.reply.send(outcome);
    }

    /// The next daemon of this node is about to start: it finds lease and resources as they are, and goes on.
    fn make_room(&mut self) {
        tracing::info!(role = %self.node.role(), "replaced by the next daemon: resources and lease stay");
        self.notifier.stopping();
        self.finished = true;
    }

    /// SIGTERM, SIGINT: the clean stop. A second one changes nothing: the service manager has its own limit.
    fn stop(&mut self) {
        self.notifier.stopping();
        self.notifier.extend_timeout(self.picture.longest_stop());
        if let Err(refusal) = self.node.command(Command::Stop, clock::now()) {
            tracing::info!(%refusal, "asked to stop again");
        }
    }

    fn put_into_effect(&mut self) {
        self.tell_standing();
        self.tell_handover();
        self.tell_fencing();
        while let Some(output) = self.node.poll_output() {
            self.perform(output);
        }
        self.shown.is(self.node.role());
    }

    /// Before any order to the resources that relies on it.
    fn tell_standing(&mut self) {
        let standing = self.node.standing();
        if self.told_standing.replace(standing) != Some(standing) {
            self.order(GroupOrder::Standing(standing));
        }
    }

    /// Before what is up here, or about to be, needs it.
    fn tell_handover(&mut self) {
        let hindrance = self.node.status(clock::now()).hindrances.first().copied();
        if self.told_handover.replace(hindrance) != Some(hindrance) {
            self.order(GroupOrder::Handover(hindrance));
        }
    }

    /// For the operator of the peer, which would wait for this node to take over.
    fn tell_fencing(&mut self) {
        let now = clock::now();
        let cannot = self.picture.cannot_fence(now);
        if self.told_cannot_fence != cannot {
            self.told_cannot_fence = cannot;
            self.node.handle_input(Input::CannotFence(cannot), now);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send(datagram) => self.heartbeats.send(&datagram),
            Output::Persist { generation, record } => {
                self.picture.note_writing(clock::now());
                self.persister.write(generation, record);
            }
            Output::StartProbe { job, excluded } => self.fence(FenceWork::Probe { job, excluded }),
            Output::StartFence { job, token, take, excluded, deadline } => {
                let deadline_after = deadline.since(clock::now()).into();
                let order = crate::fence::Order { token, take, excluded, deadline_after };
                self.fence(match self.node.is_drill(job) {
                    true => FenceWork::Drill { job, order },
                    false => FenceWork::Off { job, order },
                });
            }
            Output::CancelJob(job) => self.fence(FenceWork::Cancel(job)),
            Output::ReadHighest { job } => self.fence(FenceWork::Highest { job }),
            Output::Take { job, take } => self.fence(FenceWork::Take { job, take }),
            Output::EnsureAccess { job, token } => self.fence(FenceWork::Access { job, token }),
            Output::PowerOn { .. } => self.fence(FenceWork::PowerOn { token: self.picture.token(&self.node) }),
            Output::ArmLease { deadline, token, sole } => self.arm(deadline, token, sole),
            Output::DisarmLease { deadline } => self.disarm(deadline),
            Output::CutClients => {
                self.cut.cut();
                self.order(GroupOrder::Cut);
            }
            Output::StartResources { epoch, token, proof } => {
                self.armed.want(epoch);
                self.cut.lift();
                self.enforcer.may_be_up();
                self.order(GroupOrder::Start { epoch, token, proof });
            }
            Output::AdoptResources { epoch, token } => {
                self.armed.want(epoch);
                self.adopt();
                self.cut.lift();
                self.order(GroupOrder::Adopt { epoch, token });
            }
            Output::StopResources { epoch, reason } => {
                self.armed.want(epoch);
                self.order(GroupOrder::Stop { epoch, reason });
            }
            Output::TokenChanged { token } => self.order(GroupOrder::TokenChanged { token }),
            Output::NoteContact => self.warn_if(|run_time| run_time.note_contact()),
            Output::Report(event) => self.report(event),
            Output::Finished => {
                if self.end == End::InOrder {
                    self.cut.remove();
                }
                self.finished = true;
            }
        }
    }

    fn arm(&mut self, deadline: Instant, token: crate::core::Token, sole: bool) {
        self.enforcer.arm(deadline, token);
        self.armed.arm(deadline);
        self.shown.acts(token, deadline);
        self.warn_if(|run_time| run_time.arm(token, deadline, sole));
    }

    fn disarm(&mut self, deadline: Instant) {
        self.enforcer.disarm(deadline);
        self.armed.arm(deadline);
        self.shown.acts_no_more();
        self.warn_if(RunTime::disarm);
    }

    /// The lease of the daemon before this one goes on, which may have been one that told no guard.
    fn adopt(&mut self) {
        if let Some(lease) = self.run_time.load().lease {
            self.enforcer.adopt(lease.deadline, lease.token);
            self.armed.arm(lease.deadline);
        }
        self.enforcer.may_be_up();
    }

    /// The run-time directory lies in memory; what fails there is told, and a restart then stops the service.
    fn warn_if<E: std::fmt::Display>(&mut self, write: impl FnOnce(&mut RunTime) -> Result<(), E>) {
        if let Err(error) = write(&mut self.run_time) {
            tracing::error!(%error, "the run-time record could not be written");
        }
    }

    fn fence(&self, work: FenceWork) {
        self.fencing.send(work).expect("the worker thread lives as long as the loop");
    }

    fn order(&self, order: GroupOrder) {
        self.group.send(order).expect("the worker thread lives as long as the loop");
    }

    /// For people alone: nothing is decided by it.
    fn tell_last_words(&self) {
        let text = "the peer's guard resets its node: a lease ran out there, and its resources were not seen to stop";
        tracing::warn!("{text}");
        self.journal.publish(Decision {
            number: 0,
            at: clock::wall(),
            severity: Severity::Warning.into(),
            role: self.node.role().into(),
            kind: "peer-last-words".into(),
            text: text.to_owned(),
        });
    }

    /// What follows from a decision beside the loop.
    fn heed(&self, event: &Event) {
        match event {
            Event::AlarmsCleared => self.order(GroupOrder::Forgive),
            Event::Serving { .. } | Event::LeaseAdopted { .. } => self.shown.serves(),
            _ => {}
        }
    }

    fn report(&mut self, event: Event) {
        self.heed(&event);
        if let Event::KeepsResources { .. } = event {
            self.end = End::Kept;
        }
        let text = event.to_string();
        let weight = self.thinning.weigh(&event, self.picture.last_words(), clock::now());
        self.picture.note_event(&event, &text);
        match weight {
            Weight::Hold => {}
            Weight::Tell => self.publish(event.severity(), event.kind(), text),
            Weight::TellWith(count) => self.publish(event.severity(), event.kind(), text + &count),
        }
    }

    fn tell(&mut self, told: Told) {
        self.picture.note_told(&told);
        self.publish(told.severity, told.kind.to_owned(), told.text);
    }

    fn publish(&mut self, severity: Severity, kind: String, text: String) {
        match severity {
            Severity::Info => tracing::debug!("{text}"),
            Severity::Notice => tracing::info!("{text}"),
            Severity::Warning => tracing::warn!("{text}"),
            Severity::Alarm => tracing::error!("{text}"),
        }
        let role = self.node.role();
        self.notifier.status(&format!("{role}: {text}"));
        let (at, severity) = (clock::wall(), Loud::from(severity));
        self.journal.publish(Decision { number: 0, at, severity, role: role.into(), kind, text });
    }
}

/// A loop that fails in one of the ways that nobody plans.
fn fail(fault: Fault) {
    match fault {
        Fault::Panic => panic!("a test asked for this panic"),
        Fault::Hang => loop {
            std::thread::park();
        },
    }
}
