//! `docs/CONTROL.md` is the contract of the control socket: what it says is what the program does.

#[path = "common/status.rs"]
mod fixture;

use leasehold::control::{Answer, OPS, Reply, Request, VERSION};

const DOCUMENT: &str = include_str!("../docs/CONTROL.md");

/// The bodies of the fenced blocks of this kind.
fn examples(kind: &str) -> Vec<&'static str> {
    let opening = format!("```json {kind}\n");
    DOCUMENT.split(opening.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// The rows of the table of operations: name, arguments, who.
fn operations() -> Vec<(&'static str, &'static str, &'static str)> {
    let table = DOCUMENT.split("## Operations").nth(1).unwrap().split("\n\n").nth(1).unwrap();
    let rows = table.lines().skip(2).map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    rows.map(|cells| (cells[1].trim_matches('`'), cells[2], cells[3])).collect()
}

#[test]
fn the_documented_operations_are_those_of_the_program() {
    let documented: Vec<&str> = operations().iter().map(|(name, ..)| *name).collect();
    let known: Vec<&str> = OPS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(documented, known);
    for ((name, arguments, who), (_, reads, wanted)) in operations().into_iter().zip(OPS) {
        assert_eq!(who, if reads { "read" } else { "command" }, "{name}");
        let named: Vec<&str> = arguments.split('`').skip(1).step_by(2).collect();
        assert_eq!(named, wanted, "{name}");
    }
}

#[test]
fn the_documented_requests_are_taken() {
    assert!(!examples("request").is_empty());
    for example in examples("request") {
        let request = Request::parse(example.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), example);
    }
}

#[test]
fn the_documented_replies_are_what_the_program_writes() {
    for example in examples("reply") {
        let reply: Reply = serde_json::from_str(example).unwrap_or_else(|error| panic!("{error}: {example}"));
        let written: serde_json::Value = serde_json::to_value(&reply).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(example).unwrap());
        assert_eq!(reply.v, VERSION);
    }
}

/// `UPDATE_GOLDEN=1` writes the example anew.
#[test]
fn the_documented_status_shows_every_field() {
    let (before, rest) = DOCUMENT.split_once("## Status\n").unwrap();
    let (intro, rest) = rest.split_once("```json reply\n").unwrap();
    let (shown, after) = rest.split_once("\n```").unwrap();
    let wanted = serde_json::to_string_pretty(&documented()).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let text = format!("{before}## Status\n{intro}```json reply\n{wanted}\n```{after}");
        std::fs::write("docs/CONTROL.md", text).unwrap();
    }
    assert_eq!(shown, wanted);
}

/// A picture with every part filled in.
fn documented() -> Reply {
    use leasehold::control::{Alarm, Blocked, Clients, ClientsState, Incident, Reason, Rejecting};

    let mut status = fixture::healthy();
    status.links.truncate(1);
    status.resources.truncate(1);
    status.resources[0].progress = Some(fixture::rewinding());
    status.fencing.truncate(1);
    status.fencing[0].state = leasehold::control::FencingState::Failing;
    status.fencing[0].faults.push("login refused: the password is wrong".into());
    status.fencing[0].notes.push("cipher suite 3".into());
    status.links[0].rejected.insert("wrong-key".into(), 3);
    status.links[0].rejecting =
        Some(Rejecting { kind: "wrong-key".into(), text: "sealed with another key".into(), ago_ms: 90 });
    status.blocked = Some(Blocked {
        reason: Reason { text: "the peer's power could not be read".into(), remedy: None },
        since_ms: 39_500,
        attempts: 4,
        retry_in_ms: Some(3_200),
    });
    status.clients = Clients {
        state: ClientsState::Open,
        refused_us: Some(95),
        reset_us: Some(2_400),
        reset: Some(12),
        detail: None,
    };
    let evidence = vec![fixture::evidence("03:12:03", "bmc-plover", "no answer from 10.1.1.11")];
    status.incident = Some(Incident { id: 7, since_ms: 42_000, evidence });
    status.alarms.push(Alarm {
        kind: "device-lied".into(),
        text: "a fence device lied".into(),
        since: fixture::at("02:00:00"),
    });
    Reply { v: VERSION, id: Some(1), ok: Some(Answer::Status(Box::new(status))), error: None, event: None }
}
