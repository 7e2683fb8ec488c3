//! Services that misbehave, one row each: the right outcome, its time limit, its words, and how often it was posted to.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use leasehold::config::{Login, RedfishAgent, Trust};
use leasehold::fence::Outcome;
use serde_json::json;
use tokio::task::JoinSet;

use super::fake::{Act, Fake, Machine, Request, Script, Show, Types, World, machine, power};
use super::{MAIN, PASSWORD, WITNESS, agent_with, attempt, off, pass, settings, told, two};

const UNKNOWN: Outcome = Outcome::Unknown;
const REFUSED: Outcome = Outcome::Refused { highest: None };
const CONFIRMED: Outcome = Outcome::Confirmed;
/// What an attempt may take beyond its limit on a loaded machine: it is dropped at its limit by a timer.
const GRACE: Duration = Duration::from_secs(5);

struct Row {
    name: &'static str,
    machines: Vec<Machine>,
    script: Script,
    limit_ms: u64,
    want: Outcome,
    /// Each stands in the evidence.
    words: &'static [&'static str],
    posts: RangeInclusive<u32>,
    stable_reads: u32,
    prepare: fn(&mut World),
    login: Login,
}

fn row(name: &'static str, want: Outcome, words: &'static [&'static str], posts: RangeInclusive<u32>) -> Row {
    // What is confirmed is confirmed as soon as it is; what is not takes all its time.
    let limit_ms = if want == CONFIRMED { 15_000 } else { 900 };
    Row {
        name,
        machines: two(),
        script: pass(),
        limit_ms,
        want,
        words,
        posts,
        stable_reads: 2,
        prepare: |_| {},
        login: Login::Session,
    }
}

fn main_is(change: Machine) -> Vec<Machine> {
    vec![machine("Witness", WITNESS), change]
}

fn main_then(after: Vec<(u64, Show)>) -> Vec<Machine> {
    main_is(Machine { after, ..machine("Main", MAIN) })
}

fn always(method: &'static str, end: &'static str, act: Act) -> Script {
    Box::new(move |request, _| if request.is(method, end) { act.clone() } else { Act::Pass })
}

fn times(mut left: u32, method: &'static str, end: &'static str, act: Act) -> Script {
    Box::new(move |request: &Request, _: &mut World| {
        let hit = left > 0 && request.is(method, end);
        left -= u32::from(hit);
        if hit { act.clone() } else { Act::Pass }
    })
}

fn html() -> Act {
    Act::Answer(200, "<html><body>Off</body></html>".to_owned())
}

/// Power: what is said and what is so.
fn states() -> Vec<Row> {
    let task = || Machine { accepts: (202, Some("/redfish/v1/Tasks/7")), ..machine("Main", MAIN) };
    let slowly = vec![(0, power("On")), (200, power("PoweringOff")), (700, Show::Answer(200, "")), (900, power("Off"))];
    let shows = |show: Show| main_then(vec![(0, show)]);
    vec![
        Row { machines: main_then(vec![]), ..row("says OK and stays on", UNKNOWN, &["204", "PowerState On"], 1..=1) },
        Row {
            machines: main_then(vec![(0, power("On")), (400, power("Off"))]),
            ..row("off late", CONFIRMED, &["PowerState On", "PowerState Off"], 1..=1)
        },
        Row {
            machines: main_then(vec![(0, power("Off")), (50, power("On"))]),
            stable_reads: 5,
            ..row("flips back on", UNKNOWN, &["PowerState Off", "PowerState On"], 1..=20)
        },
        Row {
            machines: main_is(Machine { accepts: (409, None), ..machine("Main", MAIN) }),
            ..row("refuses because it is off already", CONFIRMED, &["409", "Not now.", "PowerState Off"], 1..=1)
        },
        Row {
            machines: main_is(Machine { before: power("Off"), ..machine("Main", MAIN) }),
            ..row("is off already", CONFIRMED, &["PowerState Off"], 0..=0)
        },
        Row {
            script: always("POST", "/ComputerSystem.Reset", Act::Answer(400, "no".to_owned())),
            ..row("refuses and stays on", REFUSED, &["400", "PowerState On"], 0..=0)
        },
        Row {
            script: always("POST", "/ComputerSystem.Reset", Act::Answer(403, "no".to_owned())),
            ..row("has not the privilege", REFUSED, &["403"], 0..=0)
        },
        Row {
            machines: main_is(Machine { after: slowly.clone(), ..task() }),
            prepare: |w| {
                w.task = vec![
                    json!({ "TaskState": "Running" }),
                    json!({ "TaskState": "Running" }),
                    json!({ "TaskState": "Completed" }),
                ];
            },
            ..row(
                "accepted, task, in between, empty, off",
                CONFIRMED,
                &["202", "Running", "Completed", "PoweringOff", "an empty body", "PowerState Off"],
                1..=1,
            )
        },
        Row {
            machines: main_is(Machine { after: slowly, ..task() }),
            prepare: |w| w.task = vec![json!({ "TaskState": "Exception", "Messages": [{ "Message": "It broke." }] })],
            ..row("task failed and off all the same", CONFIRMED, &["Exception: It broke."], 1..=1)
        },
        Row {
            machines: main_is(Machine { after: vec![], ..task() }),
            prepare: |w| w.task = vec![json!({ "TaskState": "Exception", "Messages": [{ "Message": "It broke." }] })],
            ..row("task failed and still on", REFUSED, &["Exception: It broke.", "PowerState On"], 1..=1)
        },
        Row {
            machines: main_is(Machine { accepts: (202, Some("/redfish/v1/Gone")), ..machine("Main", MAIN) }),
            ..row("a task that is not there", CONFIRMED, &["202"], 1..=1)
        },
        Row {
            machines: shows(Show::Power(json!(null))),
            ..row("PowerState null", UNKNOWN, &["PowerState null"], 1..=1)
        },
        Row { machines: shows(power("Paused")), ..row("paused", UNKNOWN, &["PowerState Paused"], 1..=1) },
        Row {
            machines: shows(power("Offloading")),
            ..row("a word from the future", UNKNOWN, &["Offloading", "means nothing"], 1..=1)
        },
        Row { machines: shows(Show::Answer(200, "[1,2")), ..row("broken JSON", UNKNOWN, &["no JSON"], 1..=1) },
        Row { machines: shows(Show::Answer(200, "\"Off\"")), ..row("no object", UNKNOWN, &["no JSON object"], 1..=1) },
    ]
}

/// What the system takes, and how.
fn commands() -> Vec<Row> {
    let takes = |types| main_is(Machine { types, ..machine("Main", MAIN) });
    vec![
        Row {
            machines: takes(Types::Inline(&["On", "GracefulShutdown"])),
            ..row("takes no ForceOff", REFUSED, &["takes no ForceOff", "GracefulShutdown", "nothing is sent"], 0..=0)
        },
        Row {
            machines: takes(Types::Info(&["On"])),
            ..row("takes no ForceOff by its ActionInfo", REFUSED, &["takes no ForceOff"], 0..=0)
        },
        Row {
            machines: takes(Types::Info(&["ForceOff"])),
            ..row("told by ActionInfo", CONFIRMED, &["ForceOff"], 1..=1)
        },
        Row { machines: takes(Types::Untold), ..row("does not tell what it takes", CONFIRMED, &["ForceOff"], 1..=1) },
        Row {
            machines: main_is(Machine { etag: Some("\"e1\""), ..machine("Main", MAIN) }),
            ..row("demands the ETag", CONFIRMED, &["204"], 1..=1)
        },
        Row {
            machines: main_is(Machine {
                target: Some("/redfish/v1/Systems/Witness/Actions/ComputerSystem.Reset"),
                ..machine("Main", MAIN)
            }),
            ..row("names another system's reset", REFUSED, &["nothing is sent"], 0..=0)
        },
        Row {
            script: times(1, "POST", "/ComputerSystem.Reset", Act::Answer(412, String::new())),
            machines: main_is(Machine { etag: Some("\"e1\""), ..machine("Main", MAIN) }),
            ..row("takes no ETag", REFUSED, &["412", "428"], 1..=3)
        },
        Row {
            script: times(2, "POST", "/ComputerSystem.Reset", Act::Answer(503, "busy".to_owned())),
            ..row("is busy twice", CONFIRMED, &["503", "busy", "204"], 1..=1)
        },
        Row {
            script: times(1, "POST", "/ComputerSystem.Reset", Act::Hang),
            limit_ms: 3_000,
            ..row("hangs at the first post", CONFIRMED, &["no whole answer in time"], 1..=1)
        },
        Row {
            script: always("POST", "/ComputerSystem.Reset", Act::Cut(30)),
            ..row("does it and breaks off", CONFIRMED, &["ForceOff", "PowerState Off"], 1..=1)
        },
    ]
}

/// The way there.
fn ways() -> Vec<Row> {
    vec![
        Row {
            script: Box::new(|_, _| Act::Hang),
            ..row("never answers", UNKNOWN, &["no whole answer in time"], 0..=0)
        },
        Row {
            script: always("GET", "/Main", Act::Hang),
            ..row("hangs at the status", UNKNOWN, &["no whole answer in time"], 0..=0)
        },
        Row {
            script: always("POST", "/Sessions", Act::Hang),
            limit_ms: 3_000,
            ..row("hangs at the login", CONFIRMED, &["no whole answer in time", "Basic login is used"], 1..=1)
        },
        Row { script: always("GET", "/Main", Act::Cut(70)), ..row("half an answer", UNKNOWN, &["broke off"], 0..=0) },
        Row { script: always("GET", "/Main", Act::Cut(0)), ..row("no answer", UNKNOWN, &["GET"], 0..=0) },
        Row {
            script: always("GET", "/Main", Act::Endless),
            ..row("endless answer", UNKNOWN, &["longer than 524288 bytes"], 0..=0)
        },
        Row { script: always("GET", "/Main", html()), ..row("garbage", UNKNOWN, &["no JSON"], 0..=0) },
        Row {
            script: Box::new(|_, _| Act::Raw(b"\x16\x03\x01 SSH-2.0-x\r\n\r\n".to_vec())),
            ..row("no HTTP at all", UNKNOWN, &["no usable answer"], 0..=0)
        },
        Row {
            script: always("GET", "/Main", Act::Of("/redfish/v1/Systems/Witness")),
            prepare: |w| w.machines[0].before = power("Off"),
            ..row("answers an earlier request", UNKNOWN, &["another resource answers", "Witness"], 0..=0)
        },
        Row {
            script: Box::new(|request, _| match request.path.ends_with("/Main") {
                true => Act::Raw(
                    b"HTTP/1.1 302 Found\r\nLocation: /redfish/v1/Systems/Witness\r\nContent-Length: 0\r\n\r\n"
                        .to_vec(),
                ),
                false => Act::Pass,
            }),
            ..row("points elsewhere", UNKNOWN, &["302"], 0..=0)
        },
        Row {
            script: Box::new(|_, _| Act::Late(Duration::from_millis(100))),
            ..row("slow but right", CONFIRMED, &["PowerState Off"], 1..=1)
        },
        Row {
            script: Box::new(|_, world| match world.machines[1].posts {
                0 => Act::Pass,
                _ => Act::Raw(Vec::new()),
            }),
            ..row("dies in the middle", UNKNOWN, &["204", "no usable answer"], 1..=1)
        },
        Row {
            prepare: |w| w.password = "another".to_owned(),
            ..row("wrong password", UNKNOWN, &["refuses user and password", "3 times"], 0..=0)
        },
        Row {
            prepare: |w| w.password = "another".to_owned(),
            login: Login::Basic,
            ..row("wrong password by Basic", UNKNOWN, &["refuses user and password", "3 times"], 0..=0)
        },
        Row {
            prepare: |w| w.machines[1].uuid = WITNESS,
            ..row("wrong identity", REFUSED, &["another machine", WITNESS, MAIN, "nothing is sent"], 0..=0)
        },
        Row {
            script: always("GET", "/Main", Act::Answer(404, String::new())),
            ..row("no such system", UNKNOWN, &["no such system"], 0..=0)
        },
        Row {
            script: always("POST", "/Sessions", Act::Answer(404, String::new())),
            ..row("has no sessions", CONFIRMED, &["no sessions", "Basic login is used"], 1..=1)
        },
        Row {
            prepare: |w| w.slots = 0,
            ..row("has no session left", CONFIRMED, &["503", "All sessions are in use", "Basic login is used"], 1..=1)
        },
        Row {
            script: always("GET", "/v1/", html()),
            ..row("has a root that is a web page", CONFIRMED, &["PowerState Off"], 1..=1)
        },
    ]
}

async fn run(row: Row) -> (Row, Result<(), String>) {
    let fake = Fake::plain(row.machines.clone(), PASSWORD, Box::new(|_, _| Act::Pass));
    (row.prepare)(&mut fake.world());
    let Row { script, .. } = row;
    let row = Row { script: pass(), ..row };
    fake.world().replace_script(script);
    let config = RedfishAgent {
        stable_reads: row.stable_reads,
        login: row.login,
        ..settings(&fake.url(), Some("Main"), Trust::Plaintext)
    };
    let (limit, attempt) = (Duration::from_millis(row.limit_ms), attempt());
    let agent = agent_with(config, PASSWORD.as_bytes(), limit);
    let begun = Instant::now();
    let outcome = off(&agent, limit, &attempt).await;
    let (took, told) = (begun.elapsed(), told(&attempt));
    let missing: Vec<_> = row.words.iter().filter(|word| !told.contains(**word)).collect();
    let posts = fake.posts("Main");
    let right = outcome == row.want
        && missing.is_empty()
        && row.posts.contains(&posts)
        && fake.posts("Witness") == 0
        && fake.world().refused <= 3
        && took <= limit + GRACE;
    let wrong = format!("{}: {outcome:?} after {took:?}, {posts} posts, missing {missing:?}\n{told}", row.name);
    (row, right.then_some(()).ok_or(wrong))
}

#[tokio::test]
async fn every_service_gets_the_right_verdict_within_its_time() {
    let mut rows = JoinSet::new();
    for row in states().into_iter().chain(commands()).chain(ways()) {
        rows.spawn(run(row));
    }
    let (mut wrong, mut count) = (Vec::new(), 0);
    while let Some(ended) = rows.join_next().await {
        let (_, verdict) = ended.expect("a row does not panic");
        count += 1;
        wrong.extend(verdict.err());
    }
    assert!(wrong.is_empty(), "{} of {count} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
