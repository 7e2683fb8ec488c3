//! One node of the pair: dispatch only. Each role decides in its own file.
//!
//! ```text
//! input ──▶ enforce the lease ──▶ note what happened ──▶ step of the role, until it rests ──▶ flush ──▶ check
//! ```
//! Steps are level-triggered: they look at what is so now, act, and set the timers for what may become so later.

use std::collections::VecDeque;

use super::demoting::Demoting;
use super::detector::{Detector, Presence};
use super::drill::Drill;
use super::durable::Durable;
use super::fencing::Fencing;
use super::ids::{NodeId, Seq, Token};
use super::invariants;
use super::io::{Command, Epoch, Event, Hindrance, Input, Job, Output, Refusal, StopReason};
use super::joining::Joining;
use super::lease::Promise;
use super::message::{Datagram, Role, Standing};
use super::mutant::{self, Mutant};
use super::peer::Peer;
use super::primary::Primary;
use super::record::Record;
use super::settings::{Identity, Plan, Settings};
use super::standby::Standby;
use super::takeover::TakingOver;
use super::time::{Instant, Span, Timer, Timers};

/// What a former daemon of this boot left in the run-time directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunTime {
    /// Any daemon of this boot has heard the peer.
    pub had_contact: bool,
    pub lease: Option<RunTimeLease>,
}

/// A lease under which a former daemon of this boot acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunTimeLease {
    pub token: Token,
    pub deadline: Instant,
    pub sole: bool,
}

/// The role with what belongs to it alone.
#[derive(Debug, Clone, Hash)]
pub(super) enum RoleState {
    Joining(Joining),
    Standby(Standby),
    TakingOver(TakingOver),
    Primary(Primary),
    Demoting(Demoting),
}

/// What runs of the service here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Resources {
    /// Verified: nothing.
    Stopped,
    Starting(Epoch),
    Up(Epoch),
    /// Being stopped, or never verified since this daemon started.
    Stopping(Epoch),
}

/// A token under which this node asks to start by `Agreed`.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct Claim {
    pub token: Token,
    /// The first datagram that showed it without a break: an older grant does not count (K2).
    pub since: Option<Seq>,
}

/// A release that is shown, and when its showing began.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct Release {
    pub token: Token,
    pub since: Instant,
}

/// The protocol machine of one node.
#[derive(Debug, Clone)]
pub struct Node {
    pub(super) settings: Settings,
    pub(super) identity: Identity,
    pub(super) role: RoleState,
    pub(super) record: Durable,
    /// This node never had a record, and has not met its peer yet.
    pub(super) recordless: bool,
    pub(super) peer: Peer,
    pub(super) detector: Detector,
    pub(super) promise: Promise,
    pub(super) fencing: Fencing,
    pub(super) resources: Resources,
    pub(super) readiness: bool,
    /// Ready, and not backing off after a failed start.
    pub(super) is_ready: bool,
    pub(super) links_usable: bool,
    pub(super) cannot_fence: bool,
    pub(super) had_contact_this_boot: bool,
    /// Until when this node may act; for `Sole` what was last armed.
    pub(super) right_until: Option<Instant>,
    pub(super) claim: Option<Claim>,
    pub(super) release: Option<Release>,
    /// The release that this node cannot use.
    pub(super) cannot: Option<Token>,
    /// The first datagram that showed this node holding nothing: a settlement builds on an echo of it.
    pub(super) idle_since: Option<Seq>,
    /// The first datagram that showed this node as primary: what the peer says of itself before it has heard that is old.
    pub(super) acting_since: Option<Seq>,
    /// The first datagram with the wish to be admitted, sent after `Out` was written (K17).
    pub(super) wish_since: Option<Seq>,
    /// A `Paired` primary named this incarnation, and it has neither claimed, been primary nor been `Out` since.
    pub(super) named: bool,
    pub(super) thaw_asked: bool,
    pub(super) freeze_asked: bool,
    pub(super) stopping: Option<Instant>,
    /// The first datagram that said leave.
    pub(super) leave_since: Option<Seq>,
    pub(super) finished: bool,
    pub(super) backoff_until: Option<Instant>,
    /// No `off` may land any more after this.
    pub(super) settle_until: Option<Instant>,
    /// When the proof by a fence came: what the peer sent before is no lie of the device.
    pub(super) fenced_at: Option<Instant>,
    /// The last time that this machine was called, and since when it has been called in time.
    pub(super) called: Instant,
    pub(super) attentive_since: Instant,
    /// A peer that acts under an older token was told of.
    pub(super) told_stale: Option<Token>,
    pub(super) powered_on: u32,
    pub(super) power_on_due: bool,
    pub(super) drill: Option<Drill>,
    pub(super) peer_record_is_old: bool,
    /// Rises with each loss of contact: what an operator confirms is one of these.
    pub(super) incident: u64,
    pub(super) presence: Presence,
    pub(super) digest_differs: bool,
    /// A voided proof takes its writes back: no datagram leaves before that is durable.
    pub(super) taking_back: bool,
    pub(super) told_waiting: Option<Hindrance>,
    pub(super) random: u64,
    pub(super) next_job: u64,
    pub(super) next_epoch: u64,
    pub(super) timers: Timers,
    pub(super) send_now: bool,
    pub(super) again: bool,
    pub(super) outputs: VecDeque<Output>,
}

impl Node {
    /// A daemon starts. `record` is what the disk holds (a damaged one never comes here), `run_time` what a
    /// former daemon of this boot left.
    pub fn new(
        s: Settings,
        identity: Identity,
        record: Option<Record>,
        run_time: Option<RunTime>,
        now: Instant,
    ) -> Node {
        let loaded = record.unwrap_or_else(Record::missing);
        let mut node = Node {
            settings: s,
            identity,
            role: RoleState::Joining(Joining::default()),
            record: Durable::new(loaded),
            recordless: record.is_none(),
            peer: Peer::new(s.me, identity.incarnation),
            detector: Detector::new(now),
            promise: Promise::new(now),
            fencing: Fencing::default(),
            resources: Resources::Stopping(Epoch(0)),
            readiness: false,
            is_ready: false,
            links_usable: true,
            cannot_fence: false,
            had_contact_this_boot: run_time.is_some_and(|r| r.had_contact),
            right_until: None,
            claim: None,
            release: None,
            cannot: None,
            idle_since: None,
            acting_since: None,
            wish_since: None,
            named: false,
            thaw_asked: false,
            freeze_asked: false,
            stopping: None,
            leave_since: None,
            finished: false,
            backoff_until: None,
            settle_until: None,
            fenced_at: None,
            called: now,
            attentive_since: now,
            told_stale: None,
            powered_on: 0,
            power_on_due: false,
            drill: None,
            peer_record_is_old: false,
            incident: 1,
            presence: Presence::Lost,
            digest_differs: false,
            taking_back: false,
            told_waiting: None,
            random: identity.seed,
            next_job: 0,
            next_epoch: 0,
            timers: Timers::default(),
            send_now: true,
            again: false,
            outputs: VecDeque::new(),
        };
        node.report(Event::Started { record_found: record.is_some() });
        node.record.change(|r| r.longest_term = r.longest_term.max(s.term));
        node.begin(run_time.and_then(|r| r.lease), now);
        node.settle_down(now);
        node
    }

    /// Something happened.
    pub fn handle_input(&mut self, input: Input, now: Instant) {
        self.attend(now);
        self.note(input, now);
        self.settle_down(now);
    }

    /// Some timer of [`Node::poll_timeout`] has passed (or not: an early call is harmless).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.attend(now);
        self.settle_down(now);
    }

    /// An operator asks. `Ok` means begun; what comes of it is reported.
    pub fn command(&mut self, command: Command, now: Instant) -> Result<(), Refusal> {
        self.attend(now);
        let answer = self.begin_command(command, now);
        self.settle_down(now);
        answer
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Node::handle_timeout`] at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The clock comes before everything else: after any gap the first act is the comparison with the deadline.
    fn attend(&mut self, now: Instant) {
        self.enforce_lease(now);
        // There is a heartbeat to send in every interval: whoever missed two has stood still.
        if now.since(self.called) > self.settings.interval.times(2) {
            self.attentive_since = now;
        }
        self.called = now;
    }

    pub(super) fn enforce_lease(&mut self, now: Instant) {
        if self.right_has_ended(now) && matches!(self.role, RoleState::Primary(_)) {
            let reason = match self.resources {
                Resources::Starting(_) => StopReason::LostLeaseDuringStart,
                Resources::Stopped | Resources::Up(_) | Resources::Stopping(_) => StopReason::LeaseEnded,
            };
            self.become_demoting(reason, now);
        }
    }

    fn note(&mut self, input: Input, now: Instant) {
        match input {
            Input::Datagram(datagram) => self.note_datagram(&datagram, now),
            Input::Persisted(generation) => self.note_persisted(generation),
            Input::PersistFailed(generation) => self.note_persist_failed(generation),
            Input::ProbeDone { job, reading } => self.note_probe(job, reading, now),
            Input::FenceDone { job, result } => self.note_fence(job, result, now),
            Input::HighestRead { job, highest } => self.note_highest(job, highest, now),
            Input::TakeDone { job, result } => self.note_take(job, result, now),
            Input::AccessDone { job, assured } => self.note_access(job, assured, now),
            Input::ResourcesStarted(epoch) => self.note_started(epoch),
            Input::ResourcesFailed(epoch) => self.note_failed(epoch, now),
            Input::ResourcesStopped(epoch) => self.note_stopped(epoch),
            Input::StopStuck(epoch) => self.note_stop_stuck(epoch),
            Input::Readiness(ready) => self.readiness = ready,
            Input::CannotFence(cannot) => self.cannot_fence = cannot,
            Input::GenerationIdChanged => self.note_displaced(StopReason::GenerationIdChanged, now),
            Input::WallClockJumped => self.note_displaced(StopReason::WallClockJumped, now),
            Input::LinksUsable(usable) => self.links_usable = usable,
        }
    }

    /// Steps until nothing changes any more, then lets out what is due.
    fn settle_down(&mut self, now: Instant) {
        self.watch_presence(now);
        self.watch_readiness(now);
        // Each round changes role or stage, and no chain of changes is longer than the promotion pipeline.
        for _ in 0..16 {
            self.again = false;
            self.step(now);
            if !self.again {
                break;
            }
        }
        assert!(!self.again, "the machine must come to rest: {:?}", self.role);
        self.flush(now);
        invariants::check(self, now);
    }

    fn watch_readiness(&mut self, now: Instant) {
        self.backoff_until = self.backoff_until.filter(|until| now < *until);
        self.is_ready = self.readiness && self.backoff_until.is_none();
    }

    fn step(&mut self, now: Instant) {
        self.timers.clear_all_but_heartbeat();
        if let Some(until) = self.backoff_until {
            self.wake(Timer::StartBackoff, until, now);
        }
        self.step_order(now);
        match self.role {
            RoleState::Joining(_) => self.step_joining(now),
            RoleState::Standby(_) => self.step_standby(now),
            RoleState::TakingOver(_) => self.step_taking_over(now),
            RoleState::Primary(_) => self.step_primary(now),
            RoleState::Demoting(_) => self.step_demoting(now),
        }
    }

    fn flush(&mut self, now: Instant) {
        self.check_mute();
        if !self.recordless
            && let Some((generation, record)) = self.record.next_write()
        {
            self.outputs.push_back(Output::Persist { generation, record });
        }
        if self.timers.get(Timer::Heartbeat).is_none_or(|due| due <= now) || self.send_now {
            self.send_now = false;
            self.timers.set(Timer::Heartbeat, now.after(self.settings.interval));
            self.rearm_sole(now);
            self.send(now);
        }
    }

    // --- getters -------------------------------------------------------------------------------------------

    pub fn role(&self) -> Role {
        match self.role {
            RoleState::Joining(_) => Role::Joining,
            RoleState::Standby(_) => Role::Standby,
            RoleState::TakingOver(_) => Role::TakingOver,
            RoleState::Primary(_) => Role::Primary,
            RoleState::Demoting(_) => Role::Demoting,
        }
    }

    /// This node holds its token: as primary until it has stopped, or written with a proof.
    pub(super) fn holding(&self) -> bool {
        match &self.role {
            RoleState::Primary(_) | RoleState::Demoting(_) => true,
            RoleState::TakingOver(t) => t.has_written(),
            RoleState::Joining(_) | RoleState::Standby(_) => false,
        }
    }

    pub(super) fn in_contact(&self) -> bool {
        self.presence != Presence::Lost
    }

    /// What the peer last said, while it is in contact.
    pub(super) fn hears(&self) -> Option<&Datagram> {
        if self.in_contact() { self.peer.said() } else { None }
    }

    pub(super) fn leaving(&self) -> bool {
        self.stopping.is_some()
    }

    pub(super) fn frozen(&self) -> bool {
        self.record.wanted().frozen || self.record.written().frozen
    }

    /// The standing that is safe to act on: `Out` as soon as wanted, anything else only when written.
    pub fn standing(&self) -> Standing {
        match (self.record.wanted().standing, self.record.written().standing) {
            (Standing::Out, _) => Standing::Out,
            (_, written) => written,
        }
    }

    pub(super) fn promise_end(&self) -> Instant {
        self.promise.end(self.record.written().longest_term, self.settings.term)
    }

    pub(super) fn right_has_ended(&self, now: Instant) -> bool {
        self.right_until.is_none_or(|until| now >= until) && !mutant::on(Mutant::LeaseNotEnforced)
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.settings.plan == Plan::Exclusive
    }

    // --- small tools ---------------------------------------------------------------------------------------

    pub(super) fn report(&mut self, event: Event) {
        self.outputs.push_back(Output::Report(event));
    }

    pub(super) fn out(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// Sets a timer, if it lies ahead: what is due already has been seen by this step.
    pub(super) fn wake(&mut self, timer: Timer, at: Instant, now: Instant) {
        if at > now && self.timers.get(timer).is_none_or(|set| at < set) {
            self.timers.set(timer, at);
        }
    }

    /// Says once per hindrance what this node waits for.
    pub(super) fn wait_for(&mut self, because: Hindrance) {
        if self.told_waiting != Some(because) {
            self.told_waiting = Some(because);
            self.report(Event::Waiting { because });
        }
    }

    pub(super) fn new_job(&mut self) -> Job {
        self.next_job += 1;
        Job(self.next_job)
    }

    pub(super) fn new_epoch(&mut self) -> Epoch {
        self.next_epoch += 1;
        Epoch(self.next_epoch)
    }

    /// A span between zero and `most` (splitmix64; only spreads retries, nothing rests on it).
    pub(super) fn random_up_to(&mut self, most: Span) -> Span {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Span((z ^ (z >> 31)) % (most.0 + 1))
    }

    /// Mints above everything seen and wants it durable; the caller waits until it is.
    pub(super) fn mint(&mut self) -> Option<Token> {
        let minter = if mutant::on(Mutant::SameParity) { NodeId::First } else { self.settings.me };
        let record = self.record.wanted();
        let own_only = mutant::on(Mutant::MintBelowSeen);
        let token = Token::mint_above(minter, if own_only { record.held_token } else { record.highest_token })?;
        self.record.change(|r| r.highest_token = token);
        Some(token)
    }

    /// A higher token was seen.
    pub(super) fn see_token(&mut self, token: Token) {
        self.record.change(|r| r.highest_token = r.highest_token.max(token));
    }

    pub(super) fn is_minted(&self, token: Token) -> bool {
        self.record.written().highest_token >= token
    }

    pub(super) fn want_standing(&mut self, to: Standing) {
        let from = self.record.wanted().standing;
        if from != to {
            self.record.change(|r| r.standing = to);
            self.report(Event::StandingChanged { from, to });
        }
        if to == Standing::Out {
            self.named = false;
            self.wish_since = None;
        }
    }
}
