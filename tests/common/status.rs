//! A healthy pair as its primary sees it: tests change what they are about.

use std::collections::BTreeMap;

use jiff::Timestamp;
use leasehold::control::{
    CanFailOver, Clients, Contact, Drill, DrillState, Evidence, FenceJournal, Fencing, FencingState, Figures, Flow,
    Late, Lateness, Lease, LeaseKind, Link, Me, Peer, Progress, Proof, ProofKind, Record, RecordState, Resource,
    ResourceState, Role, Said, Stalls, Standing, Status, Stops, Verdict, Version,
};

/// The peer's machine.
const UUID: &str = "4c4c4544-0042-3510-8052-b4c04f4d5831";

pub fn at(time: &str) -> Timestamp {
    format!("2026-11-30T{time}Z").parse().expect("a time of day")
}

pub fn evidence(time: &str, agent: &str, text: &str) -> Evidence {
    Evidence { at: at(time), agent: agent.into(), text: text.into() }
}

/// In the last hour as since the start.
fn lateness(count: u64, p50_us: u64, longest_us: u64) -> Lateness {
    let late = Late { count, p50_us, p99_9_us: 20 * p50_us, longest_us };
    Lateness { since_start: late, last_hour: late }
}

/// Of a database that is made a standby again.
#[allow(dead_code)] // not each test program shows one
pub fn rewinding() -> Progress {
    Progress {
        step: Some("rewind".into()),
        text: "rewinding its data, 41 % (38.0 of 92.0 MB)".into(),
        percent: Some(41),
        done_bytes: Some(38_912 << 10),
        total_bytes: Some(94_208 << 10),
    }
}

pub fn healthy() -> Status {
    Status {
        cluster: "shop".into(),
        at: at("03:12:44"),
        version: Version { program: "0.1.0".into(), control: 1, wire: 1 },
        uptime_ms: 273_600_000,
        me: Me {
            name: "heron".into(),
            role: Role::Primary,
            token: Some(6),
            highest_token: 6,
            standing: Standing::Paired,
            ready: true,
            not_ready: None,
            admitted: true,
        },
        peer: Peer {
            name: "plover".into(),
            contact: Contact::Present,
            silence_ms: Some(120),
            said: Some(standby()),
            uuid: Some(UUID.into()),
        },
        lease: Lease {
            kind: LeaseKind::Granted,
            left_ms: Some(4_100),
            deadline: Some(at("03:12:48.1")),
            promised_ms: None,
        },
        can_fail_over: CanFailOver { answer: Verdict::Yes, reasons: Vec::new() },
        can_fence: Some(true),
        fencing: vec![agent("bmc-plover", 1), agent("pdu-plover", 2)],
        fence_journal: FenceJournal { entries: 12, missed: 0, error: None },
        blocked: None,
        incident: None,
        frozen: false,
        alarms: Vec::new(),
        resources: vec![resource("disk"), resource("postgres")],
        clients: Clients::default(),
        links: vec![link("lan", "10.0.0"), link("cross", "10.9.0")],
        last_proof: Some(Proof {
            kind: ProofKind::Fenced,
            token: 6,
            at: Some(at("01:02:03")),
            evidence: vec![evidence("01:02:03", "bmc-plover", "chassis power reads off, 3 times in a row")],
        }),
        last_drill: Some(Drill {
            node: "plover".into(),
            at: "2026-11-18T03:00:00Z".parse().expect("a time"),
            state: DrillState::Ready,
            off_ms: Some(1_400),
            on_ms: Some(6_400),
            contact_ms: Some(46_900),
            ready_ms: Some(48_000),
        }),
        record: Record { state: RecordState::Ok, writing_ms: None, slowest_ms: 12, detail: None },
        stalls: Stalls {
            longest_ms: 31,
            allowed_ms: 1000,
            long: 0,
            daemon: lateness(42_000, 61, 31_200),
            guard: Some(lateness(9000, 48, 2100)),
        },
        stops: Stops { count: 3, last_ms: 1_200, longest_ms: 2_900, budget_ms: 10_000 },
        control: Figures { connections: 1, requests: 9, ..Figures::default() },
    }
}

fn standby() -> Said {
    Said {
        role: Role::Standby,
        token: None,
        standing: Standing::Paired,
        ready: true,
        hears_us: true,
        config_differs: false,
        leaving: false,
        cannot_fence: false,
    }
}

/// A proven agent.
pub fn agent(name: &str, level: u32) -> Fencing {
    Fencing {
        agent: name.into(),
        target: "plover".into(),
        kind: if level == 1 { "ipmi" } else { "exec" }.into(),
        level,
        scope: "node".into(),
        state: FencingState::Proven,
        age_ms: Some(23_000),
        looked_ms: Some(23_000),
        faults: Vec::new(),
        notes: Vec::new(),
        identity: if level == 1 { "proven" } else { "unknown" }.into(),
    }
}

fn resource(name: &str) -> Resource {
    Resource { name: name.into(), state: ResourceState::Up, detail: None, progress: None }
}

pub fn link(name: &str, net: &str) -> Link {
    Link {
        name: name.into(),
        local: format!("{net}.1:7400"),
        remote: format!("{net}.2:7400"),
        flow: Flow::Both,
        heard_ms: Some(120),
        loss_permille: 0,
        round_trip_us: Some(312),
        rejected: BTreeMap::new(),
        rejecting: None,
        send_error: None,
    }
}
