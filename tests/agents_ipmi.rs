//! The IPMI agent: which machine a BMC controls, proof ahead of need, the choice of the cipher suite, and a table of BMCs
//! that misbehave (casebook C01, C02, C04, C08). Beside it, `ipmi_agent.rs` and `fence_fakes.rs`.

mod common;
#[path = "common/ipmitool.rs"]
mod ipmitool;
#[path = "common/need.rs"]
mod need;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use common::ipmi::Bmc;
use ipmitool::{Fake, order};
use leasehold::config::{IdentityCheck, IpmiAgent};
use leasehold::core::{AgentSet, FenceResult, PowerReading, Scope, Span, SystemUuid};
use leasehold::fence::{Agent, Attempt, Entry, Evidence, FencePlan, Health, Ipmi, Reading};

/// Long enough for a loaded machine; a test that passes ends long before.
const LONG: Span = Span::from_secs(40);
/// Leaves a call of a small script the time that it may need on a loaded machine.
const SHORT: Span = Span::from_secs(6);
/// For what burns a whole processor until it is killed.
const BRIEF: Span = Span::from_secs(2);
/// Far beyond what the machine needs to kill a program; only an agent without a limit gets there.
const GRACE: Duration = Duration::from_secs(20);

const CONFIRMED: FenceResult = FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(1) };
const REFUSED: FenceResult = FenceResult::Refused { highest: None };

/// The machine that is meant, as it tells its UUID itself.
const MEANT: SystemUuid =
    SystemUuid([0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
/// The same in the order of SMBIOS, in which most BMCs send it.
const AS_SENT: &str = "00112233445566778899aabbccddeeff";
const STRANGER: &str = "b123456789abcdefa123456789abcdef";

fn plan(agent: Ipmi, limit: Span) -> FencePlan {
    let entry = Entry { index: 0, name: "bmc".to_owned(), level: 1, limit: limit.into(), agent: Arc::new(agent) };
    let plan = FencePlan::of(vec![entry], Vec::new());
    plan.identities().learn(1, MEANT);
    plan
}

fn told(evidence: &[Evidence]) -> String {
    evidence.iter().map(|e| format!("{} -> {} ({}x)\n", e.sent, e.read, e.times)).collect()
}

struct Row {
    name: &'static str,
    /// Goes on where the prelude of the stand-in ends.
    script: &'static str,
    limit: Span,
    result: FenceResult,
    words: &'static [&'static str],
    /// How many commands were sent, at most.
    commands: usize,
}

/// Of a BMC that names the right machine.
const RIGHT: &str = "[ $verb = guid ] && guid 00112233-4455-6677-8899-AABBCCDDEEFF\n";

const ROWS: &[Row] = &[
    Row {
        name: "the right machine",
        script: "[ $verb = status ] && { [ -e commands ] && is off || is on; }; ok",
        limit: LONG,
        result: CONFIRMED,
        words: &["System GUID 00112233-4455-6677-8899-aabbccddeeff", "Chassis Power is off"],
        commands: 1,
    },
    Row {
        name: "says OK and stays on",
        script: "[ $verb = status ] && is on; ok",
        limit: SHORT,
        result: FenceResult::Unknown,
        words: &["Chassis Power Control: Down/Off", "given up after its limit of 6s"],
        commands: 1,
    },
    Row {
        name: "refuses because already off",
        script: "[ $verb = status ] && is off; no 'Command not supported in present state'",
        limit: LONG,
        result: CONFIRMED,
        words: &["Chassis Power is off"],
        commands: 0,
    },
    Row {
        name: "refuses and stays on",
        script: "[ $verb = status ] && is on; no 'Insufficient privilege level'",
        limit: LONG,
        result: REFUSED,
        words: &["Insufficient privilege level"],
        commands: 3,
    },
    Row {
        name: "hangs in the login",
        script: "exec sleep 300",
        limit: SHORT,
        result: FenceResult::Unknown,
        words: &["no answer from this address (ipmitool ran into its limit)"],
        commands: 0,
    },
    Row {
        name: "hangs after half an answer",
        script: "printf 'Chassis Power is o'; exec sleep 300",
        limit: SHORT,
        result: FenceResult::Unknown,
        words: &["ipmitool ran into its limit"],
        commands: 0,
    },
    Row {
        name: "hangs in the command, which was done",
        script: "[ $verb = status ] && { [ -e since ] && is off || is on; }; touch since; echo off >> commands; exec sleep 300",
        limit: LONG,
        result: CONFIRMED,
        words: &["chassis power off to 192.0.2.7 (cipher suite 3) -> 192.0.2.7: no answer"],
        commands: 1,
    },
    Row {
        name: "answers without end",
        script: "exec yes 'Chassis Power is'",
        limit: BRIEF,
        result: FenceResult::Unknown,
        words: &["ipmitool ran into its limit"],
        commands: 0,
    },
    Row {
        name: "wrong password",
        script: "lost '> RAKP 2 HMAC is invalid'",
        limit: SHORT,
        result: FenceResult::Unknown,
        words: &["the BMC refuses the password"],
        commands: 0,
    },
    Row {
        name: "slow but right",
        script: "sleep 0.5; [ $verb = status ] && { [ -e commands ] && is off || is on; }; ok",
        limit: LONG,
        result: CONFIRMED,
        words: &["Chassis Power is off"],
        commands: 1,
    },
    Row {
        name: "dies in the middle",
        script: "printf 'Chassis Power is off'; kill -SEGV $$",
        limit: LONG,
        result: CONFIRMED,
        words: &["Chassis Power is off"],
        commands: 0,
    },
    Row {
        name: "garbage",
        script: "head -c 3000 /dev/urandom",
        limit: SHORT,
        result: FenceResult::Unknown,
        words: &["no usable answer"],
        commands: 0,
    },
    Row {
        name: "answers to an earlier request",
        script: "[ $verb = status ] && { echo 'Chassis Power Control: Down/Off'; exit 0; }; is off",
        limit: SHORT,
        result: FenceResult::Unknown,
        words: &["no usable answer"],
        commands: 0,
    },
];

#[tokio::test]
async fn every_misbehaving_bmc_ends_as_it_must_within_its_limit() {
    let mut rows = tokio::task::JoinSet::new();
    for row in ROWS {
        rows.spawn(async move {
            let fake = Fake::new(&[RIGHT, row.script].concat());
            let plan = plan(fake.with(row.limit, |config| IpmiAgent { poll: Span::from_ms(200), ..config }), row.limit);
            let ended = tokio::time::timeout(Duration::from(row.limit) + GRACE, plan.off(&order())).await;
            let report = ended.unwrap_or_else(|_| panic!("{}: no end", row.name));
            let (told, commands) = (told(&report.evidence), fake.lines("commands"));
            assert_eq!(report.result, row.result, "{}: {told}", row.name);
            row.words.iter().for_each(|words| assert!(told.contains(words), "{}: no {words:?} in {told}", row.name));
            assert!(commands <= row.commands, "{}: {commands} commands; {told}", row.name);
        });
    }
    while let Some(row) = rows.join_next().await {
        row.expect("a right row");
    }
}

/// A cable in the wrong socket, an address given to another machine: whatever its state, it is not what is meant.
#[tokio::test]
async fn a_bmc_of_another_machine_is_sent_nothing_and_its_off_proves_nothing() {
    for (state, result) in [("on", REFUSED), ("off", FenceResult::Unknown)] {
        let fake = Fake::new(&format!("[ $verb = guid ] && guid {STRANGER}; [ $verb = status ] && is {state}; ok"));
        let plan = plan(fake.with(LONG, |config| config), LONG);
        let report = plan.off(&order()).await;
        let text = told(&report.evidence);
        assert_eq!((report.result, fake.lines("commands")), (result, 0), "{text}");
        for words in
            ["b1234567-89ab-cdef-a123-456789abcdef", "33221100-5544-7766-8899-aabbccddeeff", "identity = \"none\""]
        {
            assert!(text.contains(words), "no {words} in {text}");
        }
        assert_eq!(plan.probe(AgentSet::EMPTY).await.0, PowerReading::Unknown);
    }
}

#[tokio::test]
async fn where_identity_is_not_compared_or_not_told_the_bmc_is_not_asked_or_believed() {
    let machine = "[ $verb = status ] && { [ -e commands ] && is off || is on; }; [ $verb = off ] && ok\n";
    let unasked = Fake::new(&format!("{machine} guid {STRANGER}"));
    let plan_of = |fake: &Fake, identity| plan(fake.with(LONG, |config| IpmiAgent { identity, ..config }), LONG);
    assert_eq!(plan_of(&unasked, IdentityCheck::None).off(&order()).await.result, CONFIRMED);
    assert!(!fs::read_to_string(unasked.path("argv")).unwrap().contains("guid"));
    let untold = Fake::new(&format!("{machine} echo 'IPMI command failed: Invalid command' >&2; exit 1"));
    let report = plan_of(&untold, IdentityCheck::Uuid).off(&order()).await;
    assert_eq!(report.result, CONFIRMED, "{}", told(&report.evidence));
    let unset = Fake::new(&format!("{machine} guid 00000000000000000000000000000000"));
    assert_eq!(plan_of(&unset, IdentityCheck::Uuid).off(&order()).await.result, CONFIRMED);
}

/// A BMC that does not answer the question is asked again: an off never goes to a machine that was not asked.
#[tokio::test]
async fn a_bmc_that_is_silent_at_first_is_asked_who_it_is_before_it_is_sent_anything() {
    let fake = Fake::new(&format!(
        "[ $(wc -l < argv) -le 2 ] && lost 'Get Auth Capabilities error'\n[ $verb = guid ] && guid {AS_SENT}\n\
         [ $verb = status ] && {{ [ -e commands ] && is off || is on; }}; ok"
    ));
    let report = plan(fake.with(LONG, |config| config), LONG).off(&order()).await;
    assert_eq!(report.result, CONFIRMED, "{}", told(&report.evidence));
    let argv = fs::read_to_string(fake.path("argv")).unwrap();
    let verbs: Vec<_> = argv.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    let before = verbs.iter().position(|verb| *verb == "off").expect("it is switched off");
    assert!(before >= 4 && verbs[..before].iter().filter(|verb| **verb == "guid").count() >= 2, "{argv}");
}

/// Some BMCs have one session to give: whoever comes second is turned away.
#[tokio::test]
async fn a_bmc_with_a_single_session_is_asked_one_question_after_the_other() {
    let fake = Fake::new(&format!(
        "exec 9> lock; flock -n 9 || lost 'insufficient resources for session'; sleep 0.3\n[ $verb = guid ] && guid \
         {AS_SENT}\n[ $verb = status ] && {{ [ -e commands ] && is off || is on; }}; ok"
    ));
    let report = plan(fake.with(LONG, |config| config), LONG).off(&order()).await;
    assert_eq!((report.result, fake.lines("commands")), (CONFIRMED, 1), "{}", told(&report.evidence));
}

/// Suite 17 is asked for about a second where nothing is known; a slow BMC that knows only that gets its time later.
#[tokio::test]
async fn c04_a_silent_suite_17_costs_a_second_and_a_slow_one_is_found_all_the_same() {
    let machine = "[ $verb = status ] && is off; ok";
    let other = "lost 'Error in open session response message : no matching cipher suite'";
    let fake = Fake::new(&format!("[ $suite = 17 ] || {other}; sleep 2; {machine}"));
    let agent = fake.with(LONG, |config| IpmiAgent { cipher_suite: None, stable_reads: 1, ..config });
    let attempt = Attempt::new("bmc", String::new);
    assert_eq!(agent.status(&attempt).await, Reading::Off, "{}", told(&attempt.evidence()));
    let argv = fs::read_to_string(fake.path("argv")).unwrap();
    let suites: Vec<_> = argv.lines().filter_map(|l| l.split("-C ").nth(1)?.split(' ').next()).collect();
    assert_eq!((suites, agent.cipher_suite()), (vec!["17", "3", "17"], Some(17)));
}

#[tokio::test]
async fn c04_what_worked_last_is_tried_first_and_a_silence_is_not_asked_twice() {
    let fake = Fake::new("[ -e gone ] && lost 'Get Auth Capabilities error'; [ $suite = 3 ] || sleep 9; is off");
    let agent = fake.with(LONG, |config| IpmiAgent { cipher_suite: None, stable_reads: 1, ..config });
    let attempt = Attempt::new("bmc", String::new);
    assert_eq!(agent.status(&attempt).await, Reading::Off);
    assert_eq!((fake.lines("argv"), agent.cipher_suite()), (2, Some(3)));
    assert_eq!(agent.status(&attempt).await, Reading::Off);
    assert_eq!(fake.lines("argv"), 3);
    fs::write(fake.path("gone"), "").unwrap();
    assert_eq!(agent.status(&attempt).await, Reading::Unknown);
    assert_eq!(fake.lines("argv"), 4, "one call tells that nobody answers");
}

async fn prove(agent: &Ipmi, expected: Option<SystemUuid>) -> Health {
    agent.prove(&Attempt::new("bmc", String::new).expecting(expected)).await
}

fn real(bmc: &Bmc, change: impl FnOnce(IpmiAgent) -> IpmiAgent) -> Ipmi {
    Ipmi::new("bmc", Scope::Node, LONG, &change(bmc.agent())).expect("a usable agent")
}

fn available(test: &str) -> bool {
    need::all(test, &[need::program("ipmi_sim"), need::program("ipmitool")])
}

#[tokio::test]
async fn a_real_bmc_is_proven_by_login_privilege_state_identity_and_suite() {
    if !available("a_real_bmc_is_proven_by_login_privilege_state_identity_and_suite") {
        return;
    }
    let mut bmc = Bmc::start();
    bmc.set_guid(AS_SENT);
    let agent = real(&bmc, |config| IpmiAgent { cipher_suite: None, ..config });
    let health = prove(&agent, Some(MEANT)).await;
    assert!(health.is_good() && health.reading == Reading::On, "{health:?}");
    let notes = health.notes.join("\n");
    for words in ["cipher suite 3", "privilege ADMINISTRATOR", "which is that of the node"] {
        assert!(notes.contains(words), "no {words} in {notes}");
    }
    assert!(prove(&agent, None).await.notes.join(" ").contains("has not told its own"));
    let unasked = real(&bmc, |config| IpmiAgent { identity: IdentityCheck::None, ..config });
    assert!(prove(&unasked, Some(MEANT)).await.notes.join(" ").contains("identity is not compared"));
    assert!(bmc.calls().iter().all(|call| call.contains("get power")), "a proof changes nothing: {:?}", bmc.calls());
}

#[tokio::test]
async fn a_real_bmc_of_another_machine_is_told_with_both_uuids_and_gets_no_command() {
    if !available("a_real_bmc_of_another_machine_is_told_with_both_uuids_and_gets_no_command") {
        return;
    }
    let bmc = Bmc::start();
    let health = prove(&real(&bmc, |config| config), Some(MEANT)).await;
    assert_eq!(health.faults.len(), 1, "{health:?}");
    for words in ["33221100-5544-7766-8899-aabbccddeeff", "nothing is sent", "identity = \"none\""] {
        assert!(health.faults[0].contains(words), "no {words} in {health:?}");
    }
    let report = plan(real(&bmc, |config| config), LONG).off(&order()).await;
    assert_eq!(report.result, REFUSED, "{}", told(&report.evidence));
    assert!(bmc.is_on() && bmc.calls().iter().all(|call| call.contains("get power")), "{:?}", bmc.calls());
}

#[tokio::test]
async fn a_real_bmc_that_would_refuse_is_known_ahead_of_need() {
    if !available("a_real_bmc_that_would_refuse_is_known_ahead_of_need") {
        return;
    }
    let mut bmc = Bmc::start();
    let guest = real(&bmc, |config| IpmiAgent { privilege: "USER".to_owned(), ..config });
    let faults = prove(&guest, None).await.faults.join("\n");
    assert!(faults.contains("privilege USER") && faults.contains("needs OPERATOR"), "{faults}");
    let agent = real(&bmc, |config| config);
    fs::write(bmc.password_file(), "wr0ng-M4RK").unwrap();
    let faults = prove(&real(&bmc, |config| config), None).await.faults.join("\n");
    assert!(faults.contains("the BMC refuses the password") && !faults.contains("M4RK"), "{faults}");
    bmc.unplug();
    let faults = prove(&agent, None).await.faults.join("\n");
    for words in ["127.0.0.1: no answer from this address", "its host has lost all power and the BMC with it"] {
        assert!(faults.contains(words), "no {words} in {faults}");
    }
}
