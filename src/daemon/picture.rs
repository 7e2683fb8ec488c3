//! The public picture of this node: the core's snapshot, the links, and what the loop remembers for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::config::Config;
use crate::control::{
    self, Alarm, Blocked, CanFailOver, Clients, Contact, Evidence, FenceJournal, Figures, Flow, Incident, Lease,
    LeaseKind, Me, Peer, Progress, Proof, Reason, Record, RecordState, Rejecting, Resource, ResourceState, Said,
    Verdict, Version,
};
use crate::core::{AgentSet, Event, Instant, Node, NodeId, Presence, ProofKind, Role, Severity, Span, Status, Token};
use crate::fence::{self, journal::News};
use crate::os::clock;
use crate::os::links::Link;
use crate::resource::{self, Group};

use super::drills::Drills;
use super::heartbeat::{Heartbeats, Refused};
use super::lateness::Watched;
use super::note::Told;
use super::past::{Past, Stops};
use super::proofs::Proofs;

/// Lines of evidence kept for an incident: an operator reads the newest.
const EVIDENCE_KEPT: usize = 40;
/// A refused datagram older than this is history.
const REFUSED_FRESH: Span = Span::from_secs(10);

/// What the loop remembers beside the core.
#[derive(Debug)]
pub struct Picture {
    config: Config,
    me: NodeId,
    started: Instant,
    version: Version,
    resources: Vec<Resource>,
    /// Says what they are doing now.
    group: Arc<Group>,
    evidence: Vec<Evidence>,
    proof: Option<Proof>,
    drills: Drills,
    alarms: Vec<Alarm>,
    waiting_since: Option<Instant>,
    writing_since: Option<Instant>,
    slowest_write: Span,
    write_error: Option<String>,
    not_ready: Option<String>,
    clients: Clients,
    past: Past,
    proofs: Proofs,
    /// The peer is in contact since then.
    heard_since: Option<Instant>,
    fence_journal: FenceJournal,
}

impl Picture {
    pub fn new(config: Config, me: NodeId, version: Version, group: Arc<Group>, past: Past, now: Instant) -> Picture {
        let state = ResourceState::Stopped;
        let unknown = |name: &String| Resource { name: name.clone(), state, detail: None, progress: None };
        let resources = config.resources.iter().map(|r| unknown(&r.name)).collect();
        let drills = Drills::load(&config.paths.state);
        let proofs = Proofs::new(&config, me, now);
        Picture {
            config,
            me,
            proofs,
            heard_since: None,
            fence_journal: FenceJournal::default(),
            started: now,
            version,
            resources,
            group,
            evidence: Vec::new(),
            proof: None,
            drills,
            alarms: Vec::new(),
            waiting_since: None,
            writing_since: None,
            slowest_write: Span::ZERO,
            write_error: None,
            not_ready: None,
            clients: Clients::default(),
            past,
        }
    }

    // --- what happens ------------------------------------------------------------------------------------------

    pub fn note_evidence(&mut self, evidence: Vec<fence::Evidence>) {
        self.evidence.extend(evidence.into_iter().map(|e| Evidence {
            at: e.at.parse().unwrap_or_else(|_| clock::wall()),
            agent: e.agent,
            text: format!("{} → {}{}", e.sent, e.read, times(e.times)),
        }));
        let excess = self.evidence.len().saturating_sub(EVIDENCE_KEPT);
        self.evidence.drain(..excess);
    }

    pub fn note_resource(&mut self, name: &str, state: ResourceState, detail: Option<String>) {
        if let Some(resource) = self.resources.iter_mut().find(|r| r.name == name) {
            resource.state = state;
            resource.detail = detail;
        }
    }

    pub fn note_not_ready(&mut self, why: Option<String>) {
        self.not_ready = why;
    }

    pub fn note_clients(&mut self, clients: Clients) {
        self.clients = clients;
    }

    pub fn note_writing(&mut self, now: Instant) {
        self.writing_since = Some(now);
    }

    pub fn note_written(&mut self, took: Span, error: Option<String>) {
        self.writing_since = None;
        self.slowest_write = self.slowest_write.max(took);
        self.write_error = error.or(self.write_error.take());
    }

    /// Agents of which the record says that they once lied.
    pub fn distrust(&mut self, liars: AgentSet) {
        self.proofs.distrust(liars);
    }

    /// Gives what an operator has to hear of it.
    pub fn note_probed(&mut self, probed: fence::Probed, now: Instant) -> Vec<Told> {
        self.proofs.note(probed, self.heard_since, now)
    }

    /// Gives what an operator has to hear of it: of a journal that fails, the first time only.
    pub fn note_journal(&mut self, news: News) -> Option<Told> {
        match news {
            News::Written { number, .. } => {
                self.fence_journal = FenceJournal { entries: number, missed: 0, error: None };
                None
            }
            News::Told(text) => Some(Told::new(Severity::Warning, "fence-journal-damaged", text)),
            News::Failed { error, missed } => {
                let first = self.fence_journal.error.is_none();
                let text = format!("fencing goes on, but its journal does not: {error}");
                self.fence_journal = FenceJournal { missed, error: Some(error), ..self.fence_journal };
                first.then(|| Told::new(Severity::Warning, "fence-journal-failed", text))
            }
        }
    }

    /// What the daemon itself found: an alarm waits for `clear-alarms`, unless its end is seen.
    pub fn note_told(&mut self, told: &Told) {
        match told.kind {
            "cannot-fence" | "can-fence" => {}
            _ if told.severity == Severity::Alarm => self.note_alarm(told.kind.to_owned(), &told.text),
            _ => {}
        }
    }

    /// What the agents answered last.
    pub fn last_words(&self) -> &str {
        self.evidence.last().map_or("", |evidence| evidence.text.as_str())
    }

    /// Keeps what `status` shows of an event: alarms, the last proof, since when something is waited for.
    pub fn note_event(&mut self, event: &Event, text: &str) {
        self.drills.note(event, &self.config.node(self.me.peer()).name, clock::now());
        match event {
            Event::ContactMade { .. } | Event::ContactRegained => self.heard_since = Some(clock::now()),
            Event::PeerLost { .. } => self.heard_since = None,
            Event::DeviceLied { agents, .. } => self.proofs.distrust(*agents),
            Event::AlarmsCleared => self.proofs.trust_all(),
            _ => {}
        }
        match event {
            Event::PeerLost { .. } => self.evidence.clear(),
            Event::Waiting { .. } | Event::AttemptFailed { .. } => {
                self.waiting_since.get_or_insert_with(clock::now);
            }
            Event::Promoted { proof, token } => self.note_proof(*proof, *token),
            Event::BecameStandby { .. } | Event::ContactRegained => self.waiting_since = None,
            Event::AlarmsCleared => self.alarms.clear(),
            _ => {}
        }
        match event {
            // The lost peer is shown as such; the others end when their cause does.
            Event::PeerLost { .. } => {}
            Event::DigestAgrees => self.clear_alarm(&Event::DigestDiffers),
            Event::BecameStandby { .. } => self.clear_alarm(&Event::StopStuck),
            _ if event.severity() == Severity::Alarm => self.note_alarm(event.kind(), text),
            _ => {}
        }
    }

    fn clear_alarm(&mut self, event: &Event) {
        let kind = event.kind();
        self.alarms.retain(|a| a.kind != kind);
    }

    fn note_alarm(&mut self, kind: String, text: &str) {
        self.alarms.retain(|a| a.kind != kind);
        self.alarms.push(Alarm { kind, text: text.to_owned(), since: clock::wall() });
    }

    fn note_proof(&mut self, kind: ProofKind, token: Token) {
        self.waiting_since = None;
        let evidence = std::mem::take(&mut self.evidence);
        self.proof = Some(Proof { kind: kind.into(), token: token.0, at: Some(clock::wall()), evidence });
    }

    /// How long a clean stop may take: stop the group, then leave.
    pub fn longest_stop(&self) -> Span {
        let timing = &self.config.timing;
        timing.stop_budget.plus(timing.leave_timeout).plus(timing.dead_after.times(4))
    }

    pub fn token(&self, node: &Node) -> Token {
        node.status(clock::now()).token
    }

    // --- the picture ---------------------------------------------------------------------------------------------

    pub fn take(&self, node: &Node, beats: &Heartbeats, watched: Watched<'_>, now: Instant) -> control::Status {
        let status = node.status(now);
        let at = clock::wall();
        control::Status {
            cluster: self.config.cluster.clone(),
            at,
            version: self.version.clone(),
            uptime_ms: now.since(self.started).as_ms(),
            me: self.me(&status),
            peer: self.peer(&status, beats),
            lease: self.lease(&status, node, at, now),
            can_fail_over: self.can_fail_over(&status, now),
            can_fence: self.proofs.can_fence(now),
            fencing: self.proofs.shown(now),
            fence_journal: self.fence_journal.clone(),
            blocked: self.blocked(&status, now),
            incident: self.incident(&status),
            frozen: status.frozen,
            alarms: self.alarms.clone(),
            resources: self.resources(),
            clients: self.clients.clone(),
            links: self.links(beats, now),
            last_proof: self.proof.clone().or_else(|| former_proof(&status)),
            last_drill: self.drills.last(),
            record: self.record(&status, now),
            stalls: watched.stalls(self.config.timing.pause),
            stops: self.stops(),
            control: Figures::default(),
        }
    }

    fn name(&self, id: NodeId) -> String {
        self.config.node(id).name.clone()
    }

    fn me(&self, status: &Status) -> Me {
        let acts = matches!(status.role, Role::Primary | Role::Demoting);
        Me {
            name: self.name(self.me),
            role: status.role.into(),
            token: acts.then_some(status.token.0),
            highest_token: status.record.highest_token.0,
            standing: status.standing.into(),
            ready: status.ready,
            not_ready: self.not_ready.clone(),
            admitted: status.admitted,
        }
    }

    fn peer(&self, status: &Status, beats: &Heartbeats) -> Peer {
        let contact = match (status.presence, &status.peer) {
            (_, None) => Contact::Never,
            (Presence::Present, Some(_)) => Contact::Present,
            (Presence::Doubtful, Some(_)) => Contact::Doubtful,
            (Presence::Lost, Some(_)) => Contact::Lost,
        };
        let silence_ms = status.peer.map(|_| status.silence.as_ms());
        let uuid = beats.heard.map(|(datagram, _)| datagram.uuid).filter(|uuid| uuid.0 != [0; 16]);
        Peer {
            name: self.name(self.me.peer()),
            contact,
            silence_ms,
            said: self.said(status, beats),
            uuid: uuid.map(|uuid| uuid.to_string()),
        }
    }

    /// The newest authentic datagram, also one that does not count: it tells a one-way link from a silent peer.
    fn said(&self, status: &Status, beats: &Heartbeats) -> Option<Said> {
        let (datagram, _) = beats.heard?;
        Some(Said {
            role: datagram.role.into(),
            token: datagram.holding.then_some(datagram.held_token.0),
            standing: datagram.standing.into(),
            ready: datagram.ready,
            hears_us: beats.peer_hears_us(self.config.timing.dead_after),
            config_differs: status.digest_differs || datagram.digest != self.config.digest,
            leaving: datagram.notices.leave,
            cannot_fence: datagram.notices.cannot_fence,
        })
    }

    fn lease(&self, status: &Status, node: &Node, at: Timestamp, now: Instant) -> Lease {
        let kind = match (status.role, status.sole) {
            (Role::Primary, true) => LeaseKind::Sole,
            (Role::Primary, false) => LeaseKind::Granted,
            (Role::Joining | Role::Standby | Role::TakingOver | Role::Demoting, _) => LeaseKind::None,
        };
        let left = status.lease_left.filter(|_| kind != LeaseKind::None);
        let deadline = left.and_then(|left| at.checked_add(std::time::Duration::from(left)).ok());
        let promised = node.promised_until().since(now);
        let promised_ms = (kind == LeaseKind::None).then_some(promised.as_ms());
        Lease { kind, left_ms: left.map(Span::as_ms), deadline, promised_ms }
    }

    fn blocked(&self, status: &Status, now: Instant) -> Option<Blocked> {
        let reason = match (status.waiting_for, status.blocked) {
            (Some(because), _) => Reason::from(because),
            (None, true) => self.failed_attempt(status),
            (None, false) => return None,
        };
        Some(Blocked {
            reason,
            since_ms: self.waiting_since.map_or(0, |since| now.since(since).as_ms()),
            attempts: status.attempts,
            retry_in_ms: status.retry_in.map(Span::as_ms),
        })
    }

    /// The last words of the agents say why: they name the device and what it answered.
    fn failed_attempt(&self, status: &Status) -> Reason {
        let result = status.last_attempt.map_or_else(String::new, |r| r.to_string());
        let last = self.evidence.last().map_or_else(String::new, |e| format!(" ({}: {})", e.agent, e.text));
        let peer = self.name(self.me.peer());
        Reason {
            text: format!("fencing {peer} is not proven: {result}{last}"),
            remedy: Some(format!(
                "mend the fence device; or, if you saw that {peer} is down, `leasehold confirm-fenced`"
            )),
        }
    }

    fn can_fail_over(&self, status: &Status, now: Instant) -> CanFailOver {
        let mut reasons: Vec<Reason> = status.hindrances.iter().copied().map(Reason::from).collect();
        let peer = self.name(self.me.peer());
        if status.role == Role::TakingOver {
            let text = format!("a take-over is under way: {peer} has not been proven harmless yet");
            reasons.push(Reason { text, remedy: None });
        }
        if status.role == Role::Joining {
            reasons.push(Reason {
                text: "this node has just started, and is neither primary nor standby yet".to_owned(),
                remedy: Some("look again in some seconds; `leasehold why` if it lasts".to_owned()),
            });
        }
        reasons.extend(self.proofs.hindrance(status.role, now));
        reasons.extend(self.peer_cannot_fence(status));
        let answer = if reasons.is_empty() { Verdict::Yes } else { Verdict::No };
        CanFailOver { answer, reasons }
    }

    pub fn cannot_fence(&self, now: Instant) -> bool {
        self.proofs.cannot_fence(now).is_some()
    }

    /// Whoever looks at the primary alone would otherwise learn it when the standby stands there and cannot take over.
    fn peer_cannot_fence(&self, status: &Status) -> Option<Reason> {
        let said = status.peer.as_ref().filter(|peer| peer.notices.cannot_fence)?;
        let heard = status.presence != Presence::Lost && said.role != Role::Primary && status.role == Role::Primary;
        let (me, peer) = (self.name(self.me), self.name(self.me.peer()));
        heard.then(|| Reason {
            text: format!("{peer} cannot fence {me}: if {me} fails, {peer} does not take over"),
            remedy: Some(format!(
                "`leasehold status` on {peer} names the agent and why. A planned `leasehold failover` needs no fencing \
                 and would still go"
            )),
        })
    }

    fn incident(&self, status: &Status) -> Option<Incident> {
        (status.presence == Presence::Lost).then(|| Incident {
            id: status.incident,
            since_ms: status.silence.as_ms(),
            evidence: self.evidence.clone(),
        })
    }

    fn links(&self, beats: &Heartbeats, now: Instant) -> Vec<control::Link> {
        let hears_us = beats.peer_hears_us(self.config.timing.dead_after);
        let sides = self.config.links.iter().zip(&beats.links).zip(&beats.refused);
        sides.map(|((configured, link), refused)| self.link(configured, link, *refused, hears_us, now)).collect()
    }

    fn link(
        &self,
        configured: &crate::config::Link,
        link: &Link,
        refused: Option<Refused>,
        hears_us: bool,
        now: Instant,
    ) -> control::Link {
        let counters = link.counters();
        let heard = counters.last_authentic.map(|at| now.since(at));
        let fresh = heard.is_some_and(|age| age <= self.config.timing.dead_after);
        let flow = match (fresh, hears_us) {
            (true, true) => Flow::Both,
            (true, false) => Flow::InOnly,
            (false, _) => Flow::Silent,
        };
        let rejecting = refused.filter(|r| now.since(r.at) <= REFUSED_FRESH).map(|r| Rejecting {
            kind: r.why.kind().to_owned(),
            text: r.why.to_string(),
            ago_ms: now.since(r.at).as_ms(),
        });
        let down = match link.state_now() {
            crate::os::links::LinkState::Up => None,
            crate::os::links::LinkState::Down { because } => Some(because),
        };
        let rejected: BTreeMap<String, u64> = counters.rejected.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect();
        control::Link {
            name: configured.name.clone(),
            local: configured.addresses[self.me.index()].to_string(),
            remote: configured.addresses[self.me.peer().index()].to_string(),
            flow,
            heard_ms: heard.map(Span::as_ms),
            loss_permille: counters.loss_per_mille.unwrap_or(0),
            round_trip_us: counters.round_trip.map(|r| r.smoothed.0 / 1000),
            rejected,
            rejecting,
            send_error: down,
        }
    }

    fn resources(&self) -> Vec<Resource> {
        let mut doing: BTreeMap<String, resource::Progress> = self.group.progress().into_iter().collect();
        let with_progress = |r: &Resource| Resource { progress: doing.remove(&r.name).map(shown), ..r.clone() };
        self.resources.iter().map(with_progress).collect()
    }

    fn record(&self, status: &Status, now: Instant) -> Record {
        let state = match status {
            Status { record_failed: true, .. } => RecordState::Unwritable,
            Status { rolled_back: true, .. } => RecordState::RolledBack,
            Status { recordless: true, .. } => RecordState::Missing,
            Status { .. } => RecordState::Ok,
        };
        Record {
            state,
            writing_ms: self.writing_since.map(|since| now.since(since).as_ms()),
            slowest_ms: self.slowest_write.as_ms(),
            detail: self.write_error.clone(),
        }
    }

    fn stops(&self) -> control::Stops {
        let Stops { count, last_ms, longest_ms } = self.past.stops();
        control::Stops { count, last_ms, longest_ms, budget_ms: self.config.timing.stop_budget.as_ms() }
    }
}

fn shown(progress: resource::Progress) -> Progress {
    Progress {
        text: progress.to_string(),
        step: progress.step.map(str::to_owned),
        percent: progress.done.map(|done| done.percent),
        done_bytes: progress.done.map(|done| done.done_bytes),
        total_bytes: progress.done.map(|done| done.total_bytes),
    }
}

/// Of an earlier life of this daemon: kind and token are in the record.
fn former_proof(status: &Status) -> Option<Proof> {
    let kind = status.record.held_proof?.into();
    Some(Proof { kind, token: status.record.held_token.0, at: None, evidence: Vec::new() })
}

fn times(n: u32) -> String {
    if n > 1 { format!(" ({n} times)") } else { String::new() }
}
