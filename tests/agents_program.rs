//! Any ClusterLabs program as a fence agent: a table of programs that misbehave, the real `fence_ipmilan` against a real
//! BMC simulator, and the real reader of the agents' library for passwords (casebook C01, C02, C05, C34).

#[path = "program/stand_in.rs"]
mod stand_in;

mod common;
#[path = "common/need.rs"]
mod need;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::ipmi::{Bmc, PASSWORD, USER};
use leasehold::config;
use leasehold::core::{AgentSet, FenceResult, PowerReading, Scope, Span};
use leasehold::fence::{Agent, Attempt, Entry, FenceAgent, FenceError, FencePlan, Reading};
use stand_in::{CONFIRMED, LONG, MARKER, Program, agent, metadata, order, plan, secret_file, setup, told};

const UNPROVEN: FenceResult = FenceResult::Unknown;

/// A program that misbehaves, and what must come of it.
struct Row {
    name: &'static str,
    /// Runs with `$action` set; `is on`, `is off` and `fail WORDS` answer and end.
    script: &'static str,
    limit: Span,
    result: FenceResult,
    /// What the evidence must say.
    words: &'static [&'static str],
    /// How often it was told to switch off: at least and at most.
    commands: (usize, usize),
}

/// Leaves a call of a small script the time that it may need on a loaded machine.
const SHORT: Span = Span::from_secs(6);
/// For what burns a whole processor until it is killed.
const BRIEF: Span = Span::from_secs(2);

const ROWS: &[Row] = &[
    Row {
        name: "says OK and stays on",
        script: "[ $action = status ] && is on; echo 'Success: Powered OFF'",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 0: Status: ON", "exit 0: Success: Powered OFF", "given up after its limit of 6s"],
        commands: (1, 1),
    },
    Row {
        name: "off late",
        script: "[ $action = status ] && { since 1000 && is off || is on; }; echo 'Success: Powered OFF'",
        limit: LONG,
        result: CONFIRMED,
        words: &["exit 2: Status: OFF"],
        commands: (1, 1),
    },
    Row {
        name: "flips back on",
        script: "[ $action = status ] && { [ -e off ] && [ ! -e flipped ] && { touch flipped; is off; }; is on; }; exit 0",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 2: Status: OFF"],
        commands: (1, 3),
    },
    Row {
        name: "off already, and would refuse",
        script: "[ $action = status ] && is off; fail 'Failed: not possible in this state'",
        limit: LONG,
        result: CONFIRMED,
        words: &["exit 2: Status: OFF"],
        commands: (0, 0),
    },
    Row {
        name: "a hand was faster, and the device refuses",
        script: "[ $action = status ] && { [ -e off ] && is off || is on; }; fail 'Failed: not possible in this state'",
        limit: LONG,
        result: CONFIRMED,
        words: &["exit 1: ERROR: Failed: not possible in this state"],
        commands: (1, 1),
    },
    Row {
        name: "refuses and stays on",
        script: "[ $action = status ] && is on; fail 'Failed: The user does not have the correct privileges'",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 1: ERROR: Failed: The user does not have the correct privileges"],
        commands: (1, 40),
    },
    Row {
        name: "hangs in the status",
        script: "exec sleep 300",
        limit: SHORT,
        result: UNPROVEN,
        words: &["status by agent (192.0.2.7) -> ran into its limit and was killed"],
        commands: (0, 0),
    },
    Row {
        name: "hangs after half an answer",
        script: "printf 'Status: O'; sleep 300 & wait",
        limit: SHORT,
        result: UNPROVEN,
        words: &["ran into its limit and was killed: Status: O"],
        commands: (0, 0),
    },
    Row {
        name: "hangs after the whole answer",
        script: "[ $action = status ] && { echo 'Status: OFF'; exec sleep 300; }; exit 0",
        limit: SHORT,
        result: UNPROVEN,
        words: &["ran into its limit and was killed: Status: OFF"],
        commands: (0, 0),
    },
    Row {
        name: "hangs in the command, which was done",
        script: "[ $action = status ] && { [ -e off ] && is off || is on; }; exec sleep 300",
        limit: Span::from_secs(8),
        result: CONFIRMED,
        words: &["off by agent (192.0.2.7) -> ran into its limit and was killed", "exit 2: Status: OFF"],
        commands: (1, 1),
    },
    Row {
        name: "answers without end",
        script: "exec yes 'Status: OFF'",
        limit: BRIEF,
        result: UNPROVEN,
        words: &["ran into its limit and was killed"],
        commands: (0, 0),
    },
    Row {
        name: "wrong password",
        script: "fail 'Failed: Unable to connect/login to fencing device'",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 1: ERROR: Failed: Unable to connect/login to fencing device"],
        commands: (0, 0),
    },
    Row {
        name: "slow but right",
        script: "sleep 0.4; [ $action = status ] && { [ -e off ] && is off || is on; }; exit 0",
        limit: LONG,
        result: CONFIRMED,
        words: &["exit 2: Status: OFF"],
        commands: (1, 1),
    },
    Row {
        name: "dies in the middle",
        script: "echo 'Status: OFF'; kill -KILL $$",
        limit: SHORT,
        result: UNPROVEN,
        words: &["died of signal 9: Status: OFF"],
        commands: (0, 0),
    },
    Row {
        name: "garbage",
        script: "head -c 3000 /dev/urandom; exit 2",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 2"],
        commands: (0, 0),
    },
    Row {
        name: "exit 2 without the word",
        script: "exit 2",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 2"],
        commands: (0, 0),
    },
    Row {
        name: "the word with exit 0",
        script: "echo 'Status: OFF'; exit 0",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 0: Status: OFF"],
        commands: (0, 0),
    },
    Row {
        name: "answers to an earlier request",
        script: "[ $action = off ] && is off; is on",
        limit: SHORT,
        result: UNPROVEN,
        words: &["off by agent (192.0.2.7) -> exit 2: Status: OFF", "exit 0: Status: ON"],
        commands: (1, 40),
    },
    Row {
        name: "cannot be read after it said that it is off",
        script: "[ $action = status ] && { [ -e off ] && fail 'Failed: Connection lost' || is on; }; exit 0",
        limit: SHORT,
        result: UNPROVEN,
        words: &["exit 1: ERROR: Failed: Connection lost"],
        commands: (1, 1),
    },
];

/// Far beyond what the machine needs to kill a program; only an agent without a limit gets there.
const GRACE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn every_misbehaving_program_ends_as_it_must_within_its_limit() {
    let mut rows = tokio::task::JoinSet::new();
    for row in ROWS {
        rows.spawn(async move {
            let program = Program::new(row.script);
            let plan = plan(program.agent(row.limit).expect(row.name), row.limit);
            let ended = tokio::time::timeout(Duration::from(row.limit) + GRACE, plan.off(&order())).await;
            let report = ended.unwrap_or_else(|_| panic!("{}: no end", row.name));
            let told = told(&report.evidence);
            assert_eq!(report.result, row.result, "{}: {told}", row.name);
            row.words.iter().for_each(|words| assert!(told.contains(words), "{}: no {words:?} in {told}", row.name));
            let commands = program.count("off");
            assert!((row.commands.0..=row.commands.1).contains(&commands), "{}: {commands} commands; {told}", row.name);
        });
    }
    while let Some(row) = rows.join_next().await {
        row.expect("a right row");
    }
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_its_children() {
    let program = Program::new("sleep 4321 & echo $! > child; wait");
    let plan = plan(program.agent(SHORT).unwrap(), SHORT);
    assert_eq!(plan.probe(AgentSet::EMPTY).await.0, PowerReading::Unknown);
    let stat = format!("/proc/{}/stat", program.read("child").trim());
    for _ in 0..1000 {
        match fs::read_to_string(&stat) {
            Ok(text) if !text.contains(") Z ") => tokio::time::sleep(Duration::from_millis(10)).await,
            _ => return,
        }
    }
    panic!("its child lives on");
}

#[tokio::test]
async fn options_go_over_stdin_alone_and_a_fenced_machine_is_let_on_again() {
    let program =
        Program::new("[ $action = status ] && { [ -e off ] && is off || is on; }; [ $action = on ] && rm off; exit 0");
    let plan = plan(program.agent(LONG).unwrap(), LONG);
    assert_eq!(plan.off(&order()).await.result, CONFIRMED);
    assert_eq!(program.read("stdin.off"), format!("action=off\nip=192.0.2.7\npassword={MARKER}\nmethod=onoff\n"));
    assert_eq!(program.read("argv").trim_end(), program.path("agent").display().to_string());
    let environment = program.read("environment");
    assert!(environment.contains("LC_ALL=C.UTF-8") && !environment.contains("CARGO"), "{environment}");
    assert_eq!(plan.power_on(leasehold::core::Token(4)).await.0, leasehold::fence::Outcome::Confirmed);
    assert!(program.count("on") == 1);
}

/// The worst that an agent can say: all that it was told, in every spelling (casebook C34).
#[tokio::test]
async fn no_spelling_of_a_secret_leaves_by_evidence_faults_or_debug_output() {
    let program = Program::new(
        "s=$(sed -n 's/^password=//p' stdin); cat stdin; env; { cat stdin; echo \"login failed for $s\"; \
         printf '%s' \"$s\" | base64; printf '%s' \"$s\" | od -An -tx1 | tr -d ' \\n'; env; } >&2; exit 1",
    );
    let agent = program.agent(SHORT).unwrap();
    let attempt = Attempt::new("agent", String::new);
    let health = agent.prove(&attempt).await;
    let debug = format!("{agent:?} {health:?}");
    let plan = plan(agent, SHORT);
    let report = plan.off(&order()).await;
    let seen = [
        debug,
        told(&attempt.evidence()),
        told(&report.evidence),
        format!("{report:?} {plan:?}"),
        program.read("argv"),
        program.read("environment"),
    ];
    for text in seen {
        for marker in ["M4RK", "TTRSSy1rZWxw", "4d34524b"] {
            assert!(!text.contains(marker), "{marker} in {text}");
        }
    }
    assert!(told(&report.evidence).contains("password=<secret>"), "{}", told(&report.evidence));
    assert!(program.read("stdin").contains(MARKER), "it did get the secret");
}

#[tokio::test]
async fn a_proof_tells_what_would_fail_and_changes_nothing() {
    let program = Program::new("case $action in monitor) exit 0 ;; status) is on ;; esac; touch changed");
    let attempt = Attempt::new("agent", String::new);
    let health = program.agent(LONG).unwrap().prove(&attempt).await;
    assert!(health.is_good() && health.reading == Reading::On && !program.path("changed").exists(), "{health:?}");
    let program = Program::new("fail 'Failed: Unable to connect/login to fencing device'");
    let health = program.agent(LONG).unwrap().prove(&attempt).await;
    assert_eq!((health.reading, health.faults.len()), (Reading::Unknown, 2), "{health:?}");
    assert!(
        health.faults[0].contains("monitor by agent (192.0.2.7): exit 1: ERROR: Failed: Unable to connect/login"),
        "{health:?}"
    );
}

fn refused(program: &Program, options: &[(&str, &str)], scope: Scope) -> String {
    match FenceAgent::new(setup(scope, LONG), &agent(&program.path("agent"), options, &[])) {
        Ok(_) => panic!("it is taken"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn an_option_that_the_program_would_ignore_or_miss_makes_it_unusable_at_the_start() {
    let program = Program::new("is off");
    for (options, words) in [
        (&[("ip", "a"), ("usrname", "x")][..], "no option `usrname`; did you mean `username`?"),
        (&[("username", "x")], "the option `ip` of agent is missing"),
        (&[("ip", "a"), ("ipaddr", "b")], "both are given"),
        (&[("ip", "a"), ("method", "cycle")], "`method` must be \"onoff\""),
        (&[("ip", "a"), ("ipport", "six")], "does not understand this value of `ipport`"),
    ] {
        let error = refused(&program, options, Scope::Node);
        assert!(error.contains(words), "{error}");
    }
    let hasty =
        FenceAgent::new(setup(Scope::Node, Span::from_ms(300)), &agent(&program.path("agent"), &[("ip", "a")], &[]));
    assert!(hasty.unwrap_err().to_string().contains("2 · 200ms = 400ms, `timeout` is 300ms"));
    assert_eq!(program.count("off") + program.count("status"), 0);
    assert!(FenceAgent::new(setup(Scope::Node, LONG), &agent(&program.path("agent"), &[("ipaddr", "a")], &[])).is_ok());
}

#[tokio::test]
async fn a_program_that_does_not_describe_itself_or_has_no_status_is_unusable() {
    let silent = Program::described("", "is off");
    assert!(refused(&silent, &[("ip", "a")], Scope::Node).contains("does not describe itself"));
    let blind = Program::described(&metadata("<action name=\"off\"/>"), "is off");
    assert!(refused(&blind, &[("ip", "a")], Scope::Node).contains("no action `status`"));
    let fabric = Program::described(
        &metadata("<action name=\"on\" automatic=\"1\"/><action name=\"off\"/><action name=\"status\"/>"),
        "is off",
    );
    assert!(refused(&fabric, &[("ip", "a")], Scope::Node).contains("does not switch a node off"));
    assert!(FenceAgent::new(setup(Scope::Resource, LONG), &agent(&fabric.path("agent"), &[("ip", "a")], &[])).is_ok());
    let missing = agent(std::path::Path::new("/usr/sbin/fence_no_such"), &[("ip", "a")], &[]);
    assert!(matches!(FenceAgent::new(setup(Scope::Node, LONG), &missing), Err(FenceError::Program { .. })));
}

/// `leasehold check` marks the place in the file, where the program is installed.
#[test]
fn check_compares_the_options_with_the_installed_program() {
    let program = Program::new("is off");
    let path = program.path("agent").display().to_string();
    let agents = ["heron", "plover"].map(|node| {
        format!(
            "[[fence.agent]]\nname = \"outlet-{node}\"\ntarget = \"{node}\"\nkind = \"fence-agent\"\nprogram = \"{path}\"\n\
             power = \"independent\"\noptions = {{ ip = \"{node}.example\", pasword = \"x\" }}\n"
        )
    });
    let case = fs::read_to_string("tests/config/no_password.toml").unwrap();
    let (head, rest) = case.split_once("[[fence.agent]]").unwrap();
    let tail = rest.split_once("[[resource]]").unwrap().1;
    let file = program.path("leasehold.toml");
    fs::write(&file, format!("{head}{}[[resource]]{tail}", agents.concat())).unwrap();
    let mut out = Vec::new();
    leasehold::cli::check::run(&file, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains("error: agent has no option `pasword`") && text.contains("did you mean `password`?"),
        "{text}"
    );
    assert!(text.contains("^^^^^^^ unknown to the agent"), "{text}");
    let right = fs::read_to_string(&file).unwrap().replace(", pasword = \"x\"", "");
    fs::write(&file, right).unwrap();
    let checked = config::load_with(&file, &leasehold::daemon::metadata_of).unwrap();
    assert!(checked.warnings.is_empty(), "{}", checked.warnings);
}

#[test]
fn the_samples_of_the_pages_are_accepted() {
    let case = fs::read_to_string("tests/config/no_password.toml").unwrap();
    let (head, rest) = case.split_once("[[fence.agent]]").unwrap();
    let tail = rest.split_once("[[resource]]").unwrap().1;
    for page in ["docs/agents/fence-agent.md", "docs/agents/ipmi.md"] {
        let page = fs::read_to_string(page).unwrap();
        let sample = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let checked = config::parse("sample", &format!("{head}{sample}[[resource]]{tail}"));
        assert!(checked.is_ok(), "{}", checked.unwrap_err());
    }
}

/// The reader is the one of the agents' own library: what arrives is what it hands to an agent.
#[tokio::test]
async fn c05_passwords_arrive_byte_for_byte_or_are_refused_beforehand() {
    if !need::all(
        "c05_passwords_arrive_byte_for_byte_or_are_refused_beforehand",
        &[need::file("/usr/share/fence/fencing.py")],
    ) {
        return;
    }
    for password in ["twenty-one-bytes-long", "kelp#reef$1 'x", "#sandbar", "a=b=c", "größe"] {
        let program = Program::of_the_library();
        let (_dir, secret) = secret_file(password.as_bytes());
        let config = agent(&program.path("agent"), &[("ip", "a"), ("username", "fence")], &[("password", &secret)]);
        let agent = FenceAgent::new(setup(Scope::Node, LONG), &config).unwrap();
        let attempt = Attempt::new("agent", String::new);
        assert_eq!(agent.status(&attempt).await, Reading::Off, "{password}: {}", told(&attempt.evidence()));
        assert_eq!(fs::read(program.path("password")).unwrap(), password.as_bytes());
    }
    let program = Program::of_the_library();
    for (password, what) in [
        (&b"\"barnacle\""[..], "a pair of double quotes"),
        (b" edge ", "a blank at an edge"),
        (b"two\nlines", "a line break"),
        (b"gr\xf6\xdfe", "not UTF-8"),
    ] {
        let (_dir, secret) = secret_file(password);
        let config = agent(&program.path("agent"), &[("ip", "a"), ("username", "fence")], &[("password", &secret)]);
        let error = FenceAgent::new(setup(Scope::Node, LONG), &config).unwrap_err().to_string();
        assert!(error.contains(what) && !error.contains("barnacle"), "{error}");
    }
    assert!(!program.path("password").exists());
}

fn ipmilan(bmc: &Bmc) -> FenceAgent {
    let port = bmc.port().to_string();
    let options = [
        ("ip", "127.0.0.1"),
        ("ipport", &port),
        ("username", USER),
        // Without a suite each call of it asks for ten seconds which one to take.
        ("lanplus", "1"),
        ("cipher", "3"),
        ("power_wait", "0"),
    ];
    let secrets = [("password", bmc.password_file())];
    let secrets: Vec<_> = secrets.iter().map(|(name, file)| (*name, file.as_path())).collect();
    let config = agent(std::path::Path::new("/usr/sbin/fence_ipmilan"), &options, &secrets);
    FenceAgent::new(setup(Scope::Node, LONG), &config).expect("a usable agent")
}

fn has_ipmilan(test: &str) -> bool {
    need::all(test, &["ipmi_sim", "ipmitool", "fence_ipmilan"].map(need::program))
}

#[tokio::test]
async fn fence_ipmilan_fences_a_machine_behind_a_real_bmc() {
    if !has_ipmilan("fence_ipmilan_fences_a_machine_behind_a_real_bmc") {
        return;
    }
    let mut machine = Command::new("sleep");
    machine.arg("432").process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut machine = machine.spawn().unwrap();
    let bmc = Bmc::start_with(&format!("kill -KILL -{}; echo 0 > power", machine.id()), "echo 1 > power");
    let plan = plan(ipmilan(&bmc), LONG);
    let report = plan.off(&order()).await;
    assert_eq!(report.result, CONFIRMED, "{}", told(&report.evidence));
    assert!(!machine.wait().unwrap().success(), "it was killed");
    assert_eq!(plan.probe(AgentSet::EMPTY).await.0, PowerReading::Off { verified_by: AgentSet(1) });
    let report = plan.off(&order()).await;
    assert_eq!((report.result, told(&report.evidence).contains("off by")), (CONFIRMED, false));
    assert_eq!(plan.power_on(leasehold::core::Token(4)).await.0, leasehold::fence::Outcome::Confirmed);
    assert!(bmc.is_on());
}

#[tokio::test]
async fn fence_ipmilan_with_a_wrong_password_is_unknown_and_says_so_ahead_of_need() {
    if !has_ipmilan("fence_ipmilan_with_a_wrong_password_is_unknown_and_says_so_ahead_of_need") {
        return;
    }
    let bmc = Bmc::start();
    fs::write(bmc.password_file(), "wr0ng-M4RK").unwrap();
    let agent = ipmilan(&bmc);
    let attempt = Attempt::new("lan", String::new);
    let health = agent.prove(&attempt).await;
    assert!(!health.is_good() && health.reading == Reading::Unknown, "{health:?}");
    let text = format!("{health:?} {}", told(&attempt.evidence()));
    assert!(!text.contains("M4RK") && !text.contains(PASSWORD), "{text}");
    assert!(bmc.is_on());
}

#[tokio::test]
async fn both_supplies_by_two_programs_must_read_off() {
    let (first, second) =
        (Program::new("[ $action = status ] && is off; exit 0"), Program::new("[ $action = status ] && is on; exit 0"));
    let entry = |index, program: &Program, limit: Span| {
        let agent = Arc::new(program.agent(limit).unwrap());
        Entry { index, name: format!("outlet{index}"), level: 1, limit: limit.into(), agent }
    };
    let plan = FencePlan::of(vec![entry(0, &first, SHORT), entry(1, &second, SHORT)], Vec::new());
    assert_eq!(plan.off(&order()).await.result, FenceResult::Unknown);
}
