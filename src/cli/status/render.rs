//! The screen itself. Pure: a status, a width and whether to colour go in, text comes out.

use super::findings::{Finding, Level, can_fail_over, findings, server};
use crate::cli::page::{Page, Paint, age, short};
use crate::control::{
    ClientsState, Contact, DrillState, Fencing, FencingState, Flow, Lateness, LeaseKind, Link, RecordState,
    ResourceState, Role, Status,
};

/// One screen: the verdict, what is wrong, whether a failover would work now; then nodes, links, resources, figures.
pub fn render(status: &Status, width: usize, colour: bool) -> String {
    let mut page = Page::new(width, colour);
    let found = findings(status);
    heading(&mut page, status, &found);
    wrong(&mut page, &found);
    fail_over(&mut page, status, &found);
    page.blank();
    page.table(&nodes(status));
    page.blank();
    page.table(&links(status));
    page.blank();
    page.list(&figures(status));
    page.into_text()
}

fn heading(page: &mut Page, status: &Status, found: &[Finding]) {
    let serves = server(status);
    let (word, paint) = match found.first().map(|finding| finding.level) {
        None | Some(Level::Note) => ("healthy", Paint::Green),
        Some(_) if serves.is_none() => ("NO PRIMARY KNOWN", Paint::Red),
        Some(Level::Bad) => ("IN DANGER", Paint::Red),
        Some(Level::Warn) => ("DEGRADED", Paint::Yellow),
    };
    let serves = serves.map_or(String::new(), |name| format!(", {name} serves"));
    let seen = format!("seen from {}, {}", status.me.name, status.at.strftime("%Y-%m-%d %H:%M:%S UTC"));
    page.both_ends(&format!("{}: {word}{serves}", status.cluster), paint, &seen);
}

fn wrong(page: &mut Page, found: &[Finding]) {
    if !found.is_empty() {
        page.blank();
    }
    for finding in found {
        let (mark, paint) = match finding.level {
            Level::Bad => ("X ", Paint::Red),
            Level::Warn => ("! ", Paint::Yellow),
            Level::Note => ("- ", Paint::Plain),
        };
        page.wrapped(mark, &finding.text, paint);
        if let Some(remedy) = &finding.remedy {
            page.wrapped("  -> ", remedy, Paint::Bold);
        }
    }
}

fn fail_over(page: &mut Page, status: &Status, found: &[Finding]) {
    page.blank();
    if server(status).is_none() && can_fail_over(status) {
        return page.wrapped("", "Can I fail over now? There is nothing to hand over yet.", Paint::Yellow);
    }
    if can_fail_over(status) {
        let to = if status.me.role == Role::Primary { &status.peer.name } else { &status.me.name };
        return page.wrapped("", &format!("Can I fail over now? Yes, to {to}."), Paint::Green);
    }
    let paint = if status.can_fence == Some(false) { Paint::Red } else { Paint::Yellow };
    page.wrapped("", "Can I fail over now? NO:", paint);
    for reason in &status.can_fail_over.reasons {
        page.wrapped("  - ", &reason.text, Paint::Plain);
        let said_above = found.iter().any(|finding| finding.remedy == reason.remedy);
        if let Some(remedy) = reason.remedy.as_ref().filter(|_| !said_above) {
            page.wrapped("    -> ", remedy, Paint::Bold);
        }
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

fn nodes(status: &Status) -> Vec<Vec<String>> {
    let me = &status.me;
    let mine = vec![
        format!("{} (here)", me.name),
        me.role.to_string(),
        number(me.token),
        me.standing.to_string(),
        yes_no(me.ready),
        right(status),
    ];
    vec![row(["node", "role", "token", "standing", "ready", ""]), mine, peer(status)]
}

fn peer(status: &Status) -> Vec<String> {
    let peer = &status.peer;
    let heard = match (peer.contact, peer.silence_ms) {
        (Contact::Never, _) | (_, None) => "never heard".to_owned(),
        (Contact::Present, Some(ms)) => format!("heard {} ago", age(ms)),
        (Contact::Doubtful | Contact::Lost, Some(ms)) => format!("silent for {}", age(ms)),
    };
    let Some(said) = &peer.said else {
        return vec![peer.name.clone(), "?".into(), "?".into(), "?".into(), "?".into(), heard];
    };
    let leaving = if said.leaving { ", leaving" } else { "" };
    let cannot = if said.cannot_fence { ", cannot fence" } else { "" };
    vec![
        peer.name.clone(),
        match peer.contact {
            Contact::Present | Contact::Doubtful => said.role.to_string(),
            Contact::Never | Contact::Lost => format!("was {}", said.role),
        },
        number(said.token),
        said.standing.to_string(),
        yes_no(said.ready),
        format!("{heard}{leaving}{cannot}"),
    ]
}

/// By what right this node acts, or what it has promised.
fn right(status: &Status) -> String {
    let lease = &status.lease;
    match (lease.kind, lease.left_ms, lease.promised_ms) {
        (LeaseKind::Granted, Some(ms), _) => format!("lease ends in {}", age(ms)),
        (LeaseKind::Granted, None, _) => "lease ended".to_owned(),
        (LeaseKind::Sole, ..) => "acts without a lease".to_owned(),
        (LeaseKind::None, _, Some(ms)) if status.peer.contact == Contact::Lost => {
            format!("peer may act {} more", age(ms))
        }
        (LeaseKind::None, ..) => String::new(),
    }
}

fn links(status: &Status) -> Vec<Vec<String>> {
    let mut rows = vec![row(["link", "flow", "heard", "loss", "round trip", "refused", "address"])];
    rows.extend(status.links.iter().map(link));
    rows
}

fn link(link: &Link) -> Vec<String> {
    let flow = match link.flow {
        Flow::Both => "both ways",
        Flow::InOnly => "in only",
        Flow::OutOnly => "out only",
        Flow::Silent => "silent",
    };
    let refused: u64 = link.rejected.values().sum();
    vec![
        link.name.clone(),
        flow.to_owned(),
        link.heard_ms.map_or("never".into(), |ms| format!("{} ago", age(ms))),
        format!("{}.{} %", link.loss_permille / 10, link.loss_permille % 10),
        link.round_trip_us.map_or("-".into(), |us| format!("{}.{:02} ms", us / 1000, us % 1000 / 10)),
        refused.to_string(),
        link.remote.clone(),
    ]
}

fn figures(status: &Status) -> Vec<Vec<String>> {
    let states: Vec<String> = status.resources.iter().map(|r| format!("{} {}", r.name, state(r.state))).collect();
    let proof = status.last_proof.as_ref().map_or("none yet".into(), |proof| {
        let at = proof.at.map_or(String::new(), |at| at.strftime(", %Y-%m-%d %H:%M:%S UTC").to_string());
        format!("{} for token {}{at}", proof.kind, proof.token)
    });
    let evidence = status.last_proof.iter().flat_map(|proof| &proof.evidence).next_back();
    let stalls = &status.stalls;
    let stops = &status.stops;
    let drill = drill(status);
    let agents: Vec<String> = status.fencing.iter().map(agent).collect();
    let mut rows = vec![vec!["resources".into(), if states.is_empty() { "none".into() } else { states.join(", ") }]];
    rows.extend(status.resources.iter().filter_map(|r| {
        let progress = r.progress.as_ref()?;
        Some(vec![String::new(), format!("{}: {}", r.name, progress.text)])
    }));
    rows.extend([
        vec!["fencing".into(), if agents.is_empty() { "by an operator only".into() } else { agents.join(", ") }],
        vec!["last proof".into(), proof],
    ]);
    rows.extend(evidence.map(|evidence| vec![String::new(), format!("{}: {}", evidence.agent, evidence.text)]));
    rows.extend(clients(status).map(|text| vec!["clients".into(), text]));
    rows.extend([
        vec!["last drill".into(), drill],
        vec!["record".into(), format!("{}, slowest write {}", record(status), short(status.record.slowest_ms))],
        vec![
            "standstill".into(),
            format!("{} at most, of {} allowed", short(stalls.longest_ms), short(stalls.allowed_ms)),
        ],
        vec!["woken late".into(), format!("daemon {}", woken_late(&stalls.daemon))],
    ]);
    rows.extend(stalls.guard.map(|guard| vec![String::new(), format!("guard {}", woken_late(&guard))]));
    rows.extend([
        vec![
            "stop".into(),
            match stops.count {
                0 => format!("not measured yet, S = {} allowed", short(stops.budget_ms)),
                _ => format!("{} at most, of S = {} allowed", short(stops.longest_ms), short(stops.budget_ms)),
            },
        ],
        vec!["daemon".into(), format!("{}, up {}", status.version.program, age(status.uptime_ms))],
    ]);
    rows
}

/// The last hour, and the worst since the start, beside it.
pub fn woken_late(lateness: &Lateness) -> String {
    let Lateness { since_start, last_hour } = lateness;
    let ms = |us: u64| format!("{}.{:02}", us / 1000, us % 1000 / 10);
    let [p50, p99_9, longest] = [last_hour.p50_us, last_hour.p99_9_us, last_hour.longest_us].map(ms);
    format!("p50 {p50}, p99.9 {p99_9}, max {longest} ms (1 h); {} ms ever", ms(since_start.longest_us))
}

/// Whether clients get through, where something to cut is configured.
fn clients(status: &Status) -> Option<String> {
    let clients = &status.clients;
    let reset = clients.reset.zip(clients.reset_us).map_or(String::new(), |(count, us)| {
        format!(", {count} reset {}.{} ms after the decision", us / 1000, us % 1000 / 100)
    });
    Some(match clients.state {
        ClientsState::None => return None,
        ClientsState::Open => "get through; the cut is prepared".to_owned(),
        ClientsState::Cut => format!("CUT until the next start{reset}"),
        ClientsState::Unable => "get through, and CANNOT BE CUT".to_owned(),
    })
}

/// When this node last fenced its standby to see that it can, and how that went.
fn drill(status: &Status) -> String {
    let Some(drill) = &status.last_drill else { return "never drilled from here".to_owned() };
    let since = status.at.duration_since(drill.at).as_millis();
    let ago = age(u64::try_from(since).unwrap_or_default());
    let node = &drill.node;
    match (drill.state, drill.off_ms, drill.ready_ms) {
        (DrillState::Running, ..) => format!("under way for {ago}, with {node}"),
        (DrillState::Ready, Some(off), Some(ready)) => {
            format!("{ago} ago: {node} off in {}, ready after {}", short(off), short(ready))
        }
        (DrillState::Failed, Some(off), _) => format!("{ago} ago: {node} off in {}, not brought back", short(off)),
        (DrillState::Ready | DrillState::Failed, ..) => format!("{ago} ago: FAILED, {node} was not verified to be off"),
    }
}

fn agent(agent: &Fencing) -> String {
    let name = &agent.agent;
    match (agent.state, agent.age_ms) {
        (FencingState::Proven, Some(ms)) => format!("{name} proven {} ago", age(ms)),
        (FencingState::Failing, _) => format!("{name} FAILING"),
        (FencingState::Proven | FencingState::Never, _) if agent.kind == "manual" => format!("{name} asks a person"),
        (FencingState::Proven | FencingState::Never, _) => format!("{name} not proven yet"),
    }
}

fn state(state: ResourceState) -> &'static str {
    match state {
        ResourceState::Stopped => "stopped",
        ResourceState::Starting => "starting",
        ResourceState::Up => "up",
        ResourceState::Stopping => "stopping",
        ResourceState::Failed => "FAILED",
        ResourceState::Stuck => "STUCK",
    }
}

fn record(status: &Status) -> &'static str {
    match status.record.state {
        RecordState::Ok => "durable",
        RecordState::Missing => "missing",
        RecordState::RolledBack => "ROLLED BACK",
        RecordState::Unwritable => "UNWRITABLE",
    }
}

fn number(token: Option<u64>) -> String {
    token.map_or("-".into(), |token| token.to_string())
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}
