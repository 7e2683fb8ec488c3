//! The status screen, as operators see it: each picture of a pair has its golden file in `tests/status/`.
//!
//! `UPDATE_GOLDEN=1 cargo test --test status` writes them anew; read the difference before committing it.

#[path = "common/status.rs"]
mod fixture;

use std::path::Path;

use leasehold::cli::status::{Level, findings, render};
use leasehold::control::{
    Alarm, Blocked, CanFailOver, Contact, FencingState, Flow, Incident, LeaseKind, Reason, RecordState, Rejecting,
    ResourceState, Role, Standing, Status, Verdict,
};

use fixture::{at, evidence, healthy, rewinding};

const WIDTH: usize = 80;

fn golden(name: &str, status: &Status) {
    let text = render(status, WIDTH, false);
    assert!(text.lines().count() <= 40, "{name} is no single screen:\n{text}");
    let path = Path::new("tests/status").join(name).with_extension("txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, wanted, "{} differs", path.display());
}

fn no(reasons: &[(&str, Option<&str>)]) -> CanFailOver {
    let reason =
        |(text, remedy): &(&str, Option<&str>)| Reason { text: (*text).into(), remedy: remedy.map(Into::into) };
    CanFailOver { answer: Verdict::No, reasons: reasons.iter().map(reason).collect() }
}

fn silent(mut status: Status, silence_ms: u64) -> Status {
    status.peer.contact = Contact::Lost;
    status.peer.silence_ms = Some(silence_ms);
    for link in &mut status.links {
        link.flow = Flow::Silent;
        link.heard_ms = Some(silence_ms);
    }
    status.can_fail_over = no(&[("the peer is silent", Some("see `leasehold status` on both nodes, and the links"))]);
    status
}

/// The same pair, as its standby sees it.
fn from_standby() -> Status {
    let mut status = healthy();
    status.me.name = "plover".into();
    status.me.role = Role::Standby;
    status.me.token = None;
    status.peer.name = "heron".into();
    let said = status.peer.said.as_mut().unwrap();
    said.role = Role::Primary;
    said.token = Some(6);
    status.lease.kind = LeaseKind::None;
    status.lease.left_ms = None;
    status.lease.promised_ms = Some(11_800);
    status.resources.iter_mut().for_each(|resource| resource.state = ResourceState::Stopped);
    for agent in &mut status.fencing {
        agent.agent = agent.agent.replace("plover", "heron");
        agent.target = "heron".into();
    }
    status
}

#[test]
fn a_healthy_pair_says_so_in_its_first_line() {
    golden("healthy", &healthy());
    assert!(findings(&healthy()).is_empty());
}

#[test]
fn a_healthy_pair_looks_healthy_from_the_standby_too() {
    golden("healthy-from-standby", &from_standby());
}

#[test]
fn a_standby_that_is_out_says_why() {
    let mut status = from_standby();
    status.me.standing = Standing::Out;
    status.me.ready = false;
    status.can_fail_over = no(&[(
        "this node's resources say that it could not serve",
        Some("see this node's `ready` commands in the journal"),
    )]);
    golden("standby-out", &status);
}

/// The old primary comes back: which step, and how far.
#[test]
fn a_rejoin_shows_its_step_and_how_far_it_is() {
    let mut status = from_standby();
    status.me.standing = Standing::Out;
    status.me.ready = false;
    status.resources[0].name = "db".into();
    status.resources[0].progress = Some(rewinding());
    status.me.not_ready = Some("resource \"db\": this node could not run it: its server does not run".into());
    status.can_fail_over = no(&[("this node's resources say that it could not serve", None)]);
    golden("rejoin", &status);
    let json = serde_json::to_value(&status).unwrap();
    let progress = &json["resources"][0]["progress"];
    assert_eq!((&progress["step"], &progress["percent"]), (&"rewind".into(), &41.into()));
}

#[test]
fn a_blocked_take_over_names_the_reason_and_what_ends_it() {
    let mut status = silent(from_standby(), 42_000);
    status.me.role = Role::TakingOver;
    status.blocked = Some(Blocked {
        reason: Reason {
            text: "fence unknown: bmc-heron: RMCP+ session: no answer from 10.1.1.11 since 03:12:03".into(),
            remedy: Some("mend the way to the BMC; if you saw that heron is off, `leasehold confirm-fenced`".into()),
        },
        since_ms: 39_500,
        attempts: 4,
        retry_in_ms: Some(3_200),
    });
    status.incident = Some(Incident {
        id: 7,
        since_ms: 42_000,
        evidence: vec![evidence("03:12:03", "bmc-heron", "no answer from 10.1.1.11")],
    });
    golden("blocked", &status);
}

#[test]
fn a_frozen_pair_says_what_that_costs_and_how_to_end_it() {
    let mut status = healthy();
    status.frozen = true;
    status.me.standing = Standing::Sole;
    status.lease.kind = LeaseKind::Sole;
    status.peer.said.as_mut().unwrap().standing = Standing::Out;
    status.can_fail_over = no(&[("role changes are frozen", Some("`leasehold thaw` ends it"))]);
    golden("frozen", &status);
}

#[test]
fn a_silent_primary_is_shown_as_last_heard() {
    golden("silent-peer", &silent(from_standby(), 2_700));
}

#[test]
fn a_wrong_key_is_told_apart_from_silence() {
    let mut status = silent(from_standby(), 0);
    status.me.role = Role::Joining;
    status.peer.contact = Contact::Never;
    status.peer.silence_ms = None;
    status.peer.said = None;
    for link in &mut status.links {
        link.heard_ms = None;
        link.round_trip_us = None;
        link.rejected.insert("wrong-key".into(), 318);
        let text = "sealed with another key under the same id".into();
        link.rejecting = Some(Rejecting { kind: "wrong-key".into(), text, ago_ms: 90 });
    }
    golden("wrong-key", &status);
}

#[test]
fn a_one_way_link_says_which_way() {
    let mut status = healthy();
    status.links[0].flow = Flow::OutOnly;
    status.links[0].heard_ms = Some(95_000);
    status.links[0].loss_permille = 1000;
    status.links[1].flow = Flow::InOnly;
    golden("one-way-link", &status);
}

/// A peer that was just starting said so in its last words; then its power went.
#[test]
fn a_silent_peer_is_called_silent_whatever_it_said_last() {
    let mut status = silent(healthy(), 90_000);
    status.peer.said.as_mut().unwrap().hears_us = false;
    assert_eq!(findings(&status)[0].text, "plover is silent for 1m 30s");
    status.links[0].flow = Flow::InOnly;
    assert_eq!(findings(&status)[0].text, "we hear plover, it does not hear us: no contact");
}

#[test]
fn different_configurations_block_and_are_shown() {
    let mut status = healthy();
    status.peer.said.as_mut().unwrap().config_differs = true;
    status.can_fail_over = no(&[(
        "the two nodes run different safety-relevant configurations",
        Some("install the same file on both nodes, `leasehold check` it, restart the daemons"),
    )]);
    golden("digest-differs", &status);
}

#[test]
fn a_lone_primary_serves_but_is_degraded() {
    let mut status = silent(healthy(), 190_000);
    status.me.standing = Standing::Sole;
    status.me.admitted = false;
    status.lease.kind = LeaseKind::Sole;
    golden("lone-primary", &status);
}

/// What whoever sets up a pair sees first.
#[test]
fn a_pair_that_has_just_started_is_told_to_be_looked_at_again() {
    let mut status = from_standby();
    status.me.role = Role::Joining;
    let said = status.peer.said.as_mut().unwrap();
    (said.role, said.token) = (Role::Joining, None);
    golden("just-started", &status);
}

#[test]
fn a_joining_node_that_waits_says_for_what() {
    let mut status = from_standby();
    status.me.role = Role::Joining;
    status.me.standing = Standing::Out;
    status.peer.contact = Contact::Never;
    status.peer.silence_ms = None;
    status.peer.said = None;
    status.uptime_ms = 75_000;
    status.last_proof = None;
    status.record.state = RecordState::Missing;
    for link in &mut status.links {
        link.flow = Flow::Silent;
        link.heard_ms = None;
        link.round_trip_us = None;
    }
    let reason = Reason::from(leasehold::core::Hindrance::PoweredOnPeerNeverHeard);
    status.can_fail_over = CanFailOver { answer: Verdict::No, reasons: vec![reason.clone()] };
    status.blocked = Some(Blocked { reason, since_ms: 45_000, attempts: 0, retry_in_ms: None });
    golden("joining-waits", &status);
}

#[test]
fn alarms_failures_and_standstills_come_before_everything_else() {
    let mut status = healthy();
    status.alarms.push(Alarm { kind: "device-lied".into(), text: "a fence device lied".into(), since: at("02:00:00") });
    status.resources[1].state = ResourceState::Failed;
    status.resources[1].detail = Some("exit status 1: could not bind 10.0.0.5:5432".into());
    status.stalls.longest_ms = 2_300;
    status.links[1].loss_permille = 250;
    golden("alarms", &status);
    assert_eq!(findings(&status)[0].level, Level::Bad);
}

fn failing(status: &mut Status, agent: usize, fault: &str, age_ms: Option<u64>) {
    let agent = &mut status.fencing[agent];
    agent.state = FencingState::Failing;
    agent.age_ms = age_ms;
    agent.faults = vec![fault.into()];
}

#[test]
fn an_agent_that_is_not_proven_is_a_warning_while_another_level_is() {
    let mut status = healthy();
    failing(
        &mut status,
        0,
        "login refused: the password is wrong (chassis power status → RAKP 2 HMAC is invalid)",
        Some(312_000),
    );
    assert_eq!(findings(&status).iter().map(|f| f.level).collect::<Vec<_>>(), [Level::Warn]);
    golden("agent-failing", &status);
}

#[test]
fn a_standby_that_cannot_fence_says_that_it_would_not_take_over() {
    let mut status = from_standby();
    failing(&mut status, 0, "login refused: the password is wrong", Some(312_000));
    failing(&mut status, 1, "its state cannot be read (status → no answer from 10.1.1.20)", None);
    status.can_fence = Some(false);
    status.can_fail_over = no(&[(
        "this node cannot fence heron: if heron fails, this node does not take over: no level of its plan is proven \
         (bmc-heron: login refused: the password is wrong; last proven 312s ago; pdu-heron: its state cannot be read)",
        Some("mend what is named; each agent is looked at every 60s"),
    )]);
    golden("cannot-fence", &status);
    assert_eq!(findings(&status)[0].level, Level::Bad);
}

#[test]
fn clients_that_are_cut_or_cannot_be_are_told() {
    use leasehold::control::{Clients, ClientsState};
    let shown = |state, detail: Option<&str>| {
        let (refused_us, reset_us, reset) = (Some(72), Some(2_430), Some(12));
        let clients = Clients { state, refused_us, reset_us, reset, detail: detail.map(str::to_owned) };
        let status = Status { clients, ..from_standby() };
        (render(&status, WIDTH, false), findings(&status))
    };
    let (text, found) = shown(ClientsState::Cut, None);
    assert!(
        text.contains("CUT until the next start, 12 reset 2.4 ms after the decision") && found.is_empty(),
        "{text}"
    );
    let (text, found) = shown(ClientsState::Open, None);
    assert!(text.contains("get through; the cut is prepared") && found.is_empty(), "{text}");
    let (text, found) = shown(ClientsState::Open, Some("this kernel lacks SOCK_DESTROY"));
    assert!(found[0].level == Level::Note && text.contains("healthy"), "{text}");
    let (text, found) = shown(ClientsState::Unable, Some("this daemon lacks CAP_NET_ADMIN"));
    assert!(found[0].level == Level::Warn && text.contains("CANNOT BE CUT"), "{text}");
    let clients = Clients { state: ClientsState::Cut, ..Clients::default() };
    assert_eq!(findings(&Status { clients, ..healthy() })[0].level, Level::Bad, "a primary that serves nobody");
}

#[test]
fn colour_changes_no_letter_and_no_width_breaks_it() {
    let status = silent(from_standby(), 2_700);
    let coloured = render(&status, WIDTH, true);
    let stripped = anstream::adapter::strip_str(&coloured).to_string();
    assert_eq!(stripped, render(&status, WIDTH, false));
    for width in [0, 1, 39, 200, usize::MAX] {
        assert!(render(&status, width, false).contains("Can I fail over now?"));
    }
}

#[test]
fn the_json_is_read_back_as_it_was() {
    for status in [healthy(), silent(from_standby(), 9)] {
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }
}

#[test]
fn the_last_drill_is_told_with_its_age_and_how_it_went() {
    use leasehold::control::DrillState;
    let row = |change: &dyn Fn(&mut Status)| {
        let mut status = healthy();
        change(&mut status);
        let text = render(&status, WIDTH, false);
        text.lines().find(|line| line.starts_with("last drill")).unwrap_or_default().to_owned()
    };
    let drill = |change: &dyn Fn(&mut leasehold::control::Drill)| row(&|s| change(s.last_drill.as_mut().unwrap()));
    assert!(row(&|s| s.last_drill = None).ends_with("never drilled from here"));
    assert!(drill(&|_| {}).ends_with("12d 0h ago: plover off in 1.4s, ready after 48.0s"));
    assert!(drill(&|d| d.state = DrillState::Failed).ends_with("plover off in 1.4s, not brought back"));
    let unverified = drill(&|d| (d.state, d.off_ms) = (DrillState::Failed, None));
    assert!(unverified.ends_with("FAILED, plover was not verified to be off"), "{unverified}");
    assert!(drill(&|d| d.state = DrillState::Running).contains("under way for 12d 0h"));
}
