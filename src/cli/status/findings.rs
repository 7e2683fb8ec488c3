//! What is wrong, in the order in which it matters. Pure.

use crate::cli::explain::assumptions::{DISK_HONEST, PAUSES};
use crate::cli::page::age;
use crate::control::{
    ClientsState, Contact, Fencing, FencingState, Flow, Link, Peer, RecordState, ResourceState, Role, Standing, Status,
    Verdict,
};

/// A link that loses so much is ill: one in ten, where a healthy LAN loses none.
const LOSSY_PERMILLE: u32 = 100;

/// How much a finding wants a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The service is down, or data is at risk.
    Bad,
    /// The service is up, but less protected than it should be.
    Warn,
    /// Worth knowing.
    Note,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    pub text: String,
    pub remedy: Option<String>,
}

impl Finding {
    fn new(level: Level, text: impl Into<String>) -> Finding {
        Finding { level, text: text.into(), remedy: None }
    }

    fn remedy(self, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..self }
    }
}

/// Everything that is wrong, worst first.
pub fn findings(status: &Status) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(nobody_serves(status));
    found.extend(blocked(status));
    found.extend(status.alarms.iter().map(|alarm| Finding::new(Level::Bad, &alarm.text)));
    found.extend(resources(status));
    found.extend(clients(status));
    found.extend(record(status));
    found.extend(status.links.iter().filter_map(|link| refused(link, &status.peer)));
    found.extend(contact(status));
    found.extend(fencing(status));
    found.extend(configuration(&status.peer));
    found.extend(status.links.iter().flat_map(link));
    found.extend(standings(status));
    found.extend(frozen(status));
    found.extend(stalls(status));
    found.sort_by_key(|finding| finding.level);
    found
}

/// The node that serves, as far as this one knows.
pub fn server(status: &Status) -> Option<&str> {
    let peer = status.peer.said.as_ref().filter(|_| in_contact(&status.peer));
    match (status.me.role, peer) {
        (Role::Primary, _) => Some(&status.me.name),
        (_, Some(said)) if said.role == Role::Primary => Some(&status.peer.name),
        _ => None,
    }
}

fn in_contact(peer: &Peer) -> bool {
    matches!(peer.contact, Contact::Present | Contact::Doubtful)
}

fn nobody_serves(status: &Status) -> Option<Finding> {
    if server(status).is_some() {
        return None;
    }
    let was_primary = status.peer.said.as_ref().is_some_and(|said| said.role == Role::Primary);
    if status.me.role == Role::Joining && in_contact(&status.peer) {
        let text = "nobody serves yet: this node has just started, and settles with its peer who begins";
        return Some(Finding::new(Level::Bad, text).remedy("look again in some seconds; `leasehold why` if it lasts"));
    }
    let text = match (status.me.role, was_primary) {
        (Role::TakingOver, _) => format!("{} is taking over and does not serve yet", status.me.name),
        (_, true) => format!("nobody is known to serve: {} was primary when last heard", status.peer.name),
        (_, false) => "nobody is known to serve".to_owned(),
    };
    Some(Finding::new(Level::Bad, text))
}

fn blocked(status: &Status) -> Option<Finding> {
    let blocked = status.blocked.as_ref()?;
    let what = match status.me.role {
        Role::TakingOver => "the take-over is blocked",
        Role::Joining | Role::Standby | Role::Primary | Role::Demoting => "this node waits",
    };
    let mut text = format!("{what}, {} so far: {}", age(blocked.since_ms), blocked.reason.text);
    if blocked.attempts > 0 {
        text += &format!(" ({} attempts", blocked.attempts);
        text += &blocked.retry_in_ms.map_or(")".into(), |ms| format!(", next in {})", age(ms)));
    }
    Some(Finding { level: Level::Bad, text, remedy: blocked.reason.remedy.clone() })
}

fn resources(status: &Status) -> impl Iterator<Item = Finding> {
    status.resources.iter().filter_map(|resource| {
        let detail = resource.detail.as_deref().unwrap_or("see the journal");
        let text = match resource.state {
            ResourceState::Failed => format!("resource {} failed: {detail}", resource.name),
            ResourceState::Stuck => format!("resource {} cannot be stopped: {detail}", resource.name),
            ResourceState::Stopped | ResourceState::Starting | ResourceState::Up | ResourceState::Stopping => {
                return None;
            }
        };
        Some(Finding::new(Level::Bad, text))
    })
}

fn clients(status: &Status) -> Option<Finding> {
    let clients = &status.clients;
    let detail = clients.detail.as_deref().unwrap_or("see the journal");
    Some(match (clients.state, status.me.role) {
        (ClientsState::Cut, Role::Primary) => Finding::new(Level::Bad, "clients are cut although this node is primary")
            .remedy("see the journal: the kernel says why"),
        (ClientsState::Unable, _) => Finding::new(Level::Warn, format!("clients cannot be cut at once: {detail}"))
            .remedy("mend that (docs/cut.md); until then they are served for as long as the service takes to stop"),
        (ClientsState::Open | ClientsState::Cut, _) if clients.detail.is_some() => {
            Finding::new(Level::Note, format!("clients that wait in silence learn late of a cut: {detail}"))
        }
        (ClientsState::None | ClientsState::Open | ClientsState::Cut, _) => return None,
    })
}

fn record(status: &Status) -> Option<Finding> {
    let detail = status.record.detail.as_deref().map_or(String::new(), |detail| format!(": {detail}"));
    Some(match status.record.state {
        RecordState::Ok => return None,
        RecordState::Missing => Finding::new(Level::Warn, "this node has no record: it promotes only after contact")
            .remedy("start the peer; only for a new pair `leasehold init-record`"),
        RecordState::RolledBack => {
            Finding::new(Level::Bad, format!("{DISK_HONEST} not met: this node's record was rolled back{detail}"))
                .remedy("check that its data is current, then `leasehold clear-alarms`")
        }
        RecordState::Unwritable => Finding::new(Level::Bad, format!("this node's record cannot be written{detail}"))
            .remedy("mend the disk under the state directory, then restart this daemon"),
    })
}

fn contact(status: &Status) -> Option<Finding> {
    let peer = &status.peer;
    let silence = age(peer.silence_ms.unwrap_or(0));
    let level = if status.me.role == Role::Primary { Level::Warn } else { Level::Bad };
    // What it said last may be long ago: only a link on which it is heard now shows that it does not hear us.
    let deaf = status.links.iter().any(|link| link.flow == Flow::InOnly);
    Some(match peer.contact {
        Contact::Never => Finding::new(level, format!("{} was never heard by this daemon", peer.name)),
        Contact::Lost if deaf => Finding::new(level, format!("we hear {}, it does not hear us: no contact", peer.name)),
        Contact::Lost => Finding::new(level, format!("{} is silent for {silence}", peer.name)),
        Contact::Doubtful => Finding::new(Level::Warn, format!("{} is doubtful: silent for {silence}", peer.name)),
        Contact::Present => return None,
    })
}

/// That nothing could fence comes before which agent fails: the one is a danger, the other a hole in a plan that holds.
fn fencing(status: &Status) -> Vec<Finding> {
    let cannot = status.can_fence == Some(false);
    let level = if cannot { Level::Bad } else { Level::Warn };
    let mut found = Vec::new();
    if cannot {
        let (me, peer) = (&status.me.name, &status.peer.name);
        found.push(Finding::new(level, format!("{me} cannot fence {peer}: no level of its plan is proven")));
    }
    let failing = status.fencing.iter().filter(|agent| agent.state == FencingState::Failing);
    found.extend(failing.map(|agent| Finding::new(level, not_proven(agent))));
    if let Some(error) = &status.fence_journal.error {
        let text = format!("fence attempts are not recorded ({} missed): {error}", status.fence_journal.missed);
        found.push(Finding::new(Level::Warn, text).remedy("make room on, or mend, the disk of the state directory"));
    }
    found
}

fn not_proven(agent: &Fencing) -> String {
    let last = agent.age_ms.map_or("never proven".to_owned(), |ms| format!("last proven {} ago", age(ms)));
    let stale = || format!("not looked at for {}", age(agent.looked_ms.unwrap_or(0)));
    let why = if agent.faults.is_empty() { stale() } else { agent.faults.join("; ") };
    format!("fence agent {} (level {}, {last}): {why}", agent.agent, agent.level)
}

fn configuration(peer: &Peer) -> Option<Finding> {
    peer.said.as_ref().filter(|said| said.config_differs).map(|_| {
        Finding::new(Level::Bad, format!("{} runs another configuration: nobody takes over", peer.name))
            .remedy("install the same file on both nodes, `leasehold check` it, restart the daemons")
    })
}

fn link(link: &Link) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut warn = |text: String| found.push(Finding::new(Level::Warn, format!("link {}: {text}", link.name)));
    if let Some(error) = &link.send_error {
        warn(format!("cannot send: {error}"));
    }
    match link.flow {
        Flow::Both => {}
        Flow::InOnly => warn("we hear it, it does not hear us".into()),
        Flow::OutOnly => warn("it hears us, we do not hear it".into()),
        Flow::Silent if link.rejecting.is_some() => {}
        Flow::Silent => warn(format!("nothing arrives from {}", link.remote)),
    }
    if link.loss_permille >= LOSSY_PERMILLE && link.flow == Flow::Both {
        warn(format!("loses {} % of the peer's packets", link.loss_permille / 10));
    }
    found
}

/// Told apart from silence, and, while there is no contact, ahead of it: it is the likely cause.
fn refused(link: &Link, peer: &Peer) -> Option<Finding> {
    let rejecting = link.rejecting.as_ref()?;
    let level = if in_contact(peer) { Level::Warn } else { Level::Bad };
    let kind = refused_kind(&rejecting.kind);
    let text = format!("link {}: packets from this address arrive and are refused: {kind}", link.name);
    Some(Finding::new(level, format!("{text} ({})", rejecting.text)))
}

/// The one word that tells an operator where to look.
fn refused_kind(kind: &str) -> &str {
    match kind {
        "wrong-key" | "unknown-key" => "key",
        "other-version" => "version",
        "too-short" | "foreign" | "malformed" => "not of leasehold",
        "not-from-peer" => "sender",
        other => other,
    }
}

fn standings(status: &Status) -> Option<Finding> {
    // While frozen, `out` and `sole` are what the freeze is made of.
    if status.frozen {
        return None;
    }
    let peer = status.peer.said.as_ref().filter(|_| in_contact(&status.peer));
    if status.me.role == Role::Standby && status.me.standing == Standing::Out {
        return Some(Finding::new(
            Level::Warn,
            standby_out(&status.me.name, status.me.ready, status.me.not_ready.as_deref()),
        ));
    }
    match (status.me.role, status.me.standing, peer) {
        (Role::Primary, _, Some(said)) if said.standing == Standing::Out => {
            Some(Finding::new(Level::Warn, standby_out(&status.peer.name, said.ready, None)))
        }
        (Role::Primary, Standing::Sole, _) => {
            Some(Finding::new(Level::Warn, format!("{} acts alone: it has no standby", status.me.name)))
        }
        _ => None,
    }
}

fn standby_out(name: &str, ready: bool, not_ready: Option<&str>) -> String {
    let why = match (ready, not_ready) {
        (true, _) => "it has not been admitted yet",
        (false, Some(why)) => why,
        (false, None) => "its resources say that it could not serve",
    };
    format!("the standby {name} is out, and would not take over by itself: {why}")
}

fn frozen(status: &Status) -> Option<Finding> {
    status.frozen.then(|| {
        Finding::new(Level::Warn, "frozen: if the primary fails, nobody takes over").remedy("`leasehold thaw` ends it")
    })
}

fn stalls(status: &Status) -> Option<Finding> {
    let stalls = &status.stalls;
    (stalls.longest_ms > stalls.allowed_ms).then(|| {
        let (longest, allowed) = (age(stalls.longest_ms), age(stalls.allowed_ms));
        Finding::new(
            Level::Warn,
            format!("{PAUSES} not met: this daemon stood still for {longest}; the margin allows {allowed}"),
        )
        .remedy("raise lease.pause, or find what stops it: suspend, hypervisor, memory pressure")
    })
}

/// The answer of the daemon, as a plain yes.
pub fn can_fail_over(status: &Status) -> bool {
    status.can_fail_over.answer == Verdict::Yes
}
