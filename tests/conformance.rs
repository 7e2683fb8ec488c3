//! The conformance kit of `leasehold fence test`, run against programs that keep the contract and programs that break it.
//!
//! One table: what the program does, what each clause must come out as, and the words. Each row runs with a limit of its
//! own, so that a hang costs seconds. The misbehaving devices of the protocols have tables of the same form where their
//! fakes are: see the files `tests/agents_*.rs`, such as `tests/agents_openstack.rs`, and `tests/fence_fakes.rs` for IPMI.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use leasehold::config::{ExecAgent, SecretSource};
use leasehold::core::{Scope, Span, Token};
use leasehold::fence::conformance::Clause::{
    self, Bounded, Highest, Limit, NoSecret, Off, OffAgain, On, Prove, StaleTake, Status, StaysOff,
};
use leasehold::fence::conformance::Kept::{self, LeftOut, Right, Wrong};
use leasehold::fence::conformance::{Kit, Line, Touch};
use leasehold::fence::{Exec, Secret};
use leasehold::process::PidWatch;
use rustix::process::Pid;

/// Of each step. A call of a program takes some 5 ms here; a hang uses all of it.
const LIMIT: Duration = Duration::from_millis(3000);
/// All steps of a row at their limits, tenfold: only a kit that waits for ever gets there.
const HANGS: Duration = Duration::from_secs(200);
/// Stands in the agent's secret file.
const SECRET: &str = "M4RK-anemone";

/// A node behind a program: `state` holds on or off, `off` and `on` change it.
const HONEST: &str = "case $1 in
    status) cat state; grep -q on state && exit 0; exit 2 ;;
    off|on) echo $1 > state ;;
esac";

/// Compares and swaps, as the contract says. `$above` is the comparison of the tokens.
const STORE: &str = r#"field() { echo "$LEASEHOLD_FENCE" | sed -n "s/.*\"$1\":\(null\|[0-9]*\).*/\1/p"; }
stored=$(cat stored)
case $1 in
    highest) echo "{\"highest\":$stored}" ;;
    status) cat state; grep -q on state && exit 0; exit 2 ;;
    take) new=$(field new)
        if [ $new $above $stored ]; then echo $new > stored; echo off > state; exit 0; fi
        echo "{\"highest\":$named}"; exit 3 ;;
esac"#;

/// A program on its own.
struct Device(tempfile::TempDir);

impl Device {
    fn new(script: &str) -> Device {
        let device = Device(tempfile::tempdir().unwrap());
        let text = format!("#!/bin/bash\ncd \"$(dirname \"$0\")\"\necho \"$1\" >> calls\n{script}\n");
        fs::write(device.path("text"), text).unwrap();
        fs::write(device.path("state"), "on\n").unwrap();
        fs::write(device.path("stored"), "6\n").unwrap();
        fs::write(device.path("secret"), SECRET).unwrap();
        fs::set_permissions(device.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        // Not written by this process: a child forked meanwhile would hold it open, and no one can run such a file.
        let mut install = std::process::Command::new("install");
        let installed = install.args(["-m", "700"]).arg(device.path("text"));
        assert!(installed.arg(device.path("agent")).status().unwrap().success());
        device
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    async fn run(&self, takes: bool, touch: Touch) -> Vec<Line> {
        let scope = if takes { Scope::Resource } else { Scope::Node };
        let config = ExecAgent { program: self.path("agent"), args: Vec::new(), settings: BTreeMap::new(), takes };
        let agent = Exec::new("pdu", scope, Span::from(LIMIT), &config, "heron", "plover").unwrap();
        let secrets = [Secret::read(&SecretSource::File(self.path("secret"))).unwrap()];
        let (agent, limit, token) = (&agent, LIMIT, Token::NONE);
        let kit = Kit { agent, name: "pdu", limit, secrets: &secrets, expected: None, token, touch };
        let mut told = Vec::new();
        let lines = kit.run(&mut |line| told.push(line.clone())).await;
        assert_eq!(lines, told, "each line is told as it is known");
        lines
    }
}

/// What the program does; what is wrong or left out of what a good one keeps, and its words.
struct Row {
    what: &'static str,
    script: String,
    differs: Vec<(Clause, Kept, &'static str)>,
}

fn row(what: &'static str, script: impl Into<String>, differs: &[(Clause, Kept, &'static str)]) -> Row {
    Row { what, script: script.into(), differs: differs.to_vec() }
}

/// Programs that only look and switch, tried with leave to switch.
fn switching() -> Vec<Row> {
    let machine = |instead: &str| format!("{instead}\n{HONEST}");
    let never_off = [(Off, Wrong, ""), (StaysOff, LeftOut, ""), (OffAgain, LeftOut, "")];
    let with = |more: &[(Clause, Kept, &'static str)]| [&never_off[..], more].concat();
    let untouched = [Off, StaysOff, OffAgain, On].map(|clause| (clause, LeftOut, "nothing is switched before"));
    let unreadable = |proof, status| [&[(Prove, Wrong, proof), (Status, Wrong, status)][..], &untouched].concat();
    let says = |words| unreadable("its state cannot be read", words);
    let silent = || {
        let silent = unreadable("no answer within its limit", "no answer within its limit");
        [&silent[..], &[(Limit, Wrong, "proof, status")]].concat()
    };
    vec![
        row("keeps the contract", HONEST, &[]),
        row(
            "says OK and stays on",
            machine("[ $1 = off ] && exit 0"),
            &with(&[(Off, Wrong, "not confirmed within its limit"), (Limit, Wrong, "off")]),
        ),
        row(
            "is off after 41 s",
            machine(
                "[ $1 = off ] && { date +%s > asked; exit 0; }; [ $1 = on ] && rm -f asked
                [ -e asked ] && [ $(( $(date +%s) - $(cat asked) )) -ge 41 ] && echo off > state",
            ),
            &with(&[(Off, Wrong, "not confirmed within its limit"), (Limit, Wrong, "off")]),
        ),
        row(
            "is off late, but in time",
            machine(
                "[ $1 = off ] && { touch asked; exit 0; }; [ $1 = on ] && rm -f asked
                [ -e asked ] && { echo x >> polls; [ $(wc -l < polls) -ge 3 ] && echo off > state; }",
            ),
            &[],
        ),
        row(
            "flips back on",
            machine("[ -e seen ] && [ $(wc -l < seen) = 3 ] && echo on > state; grep -q off state && echo x >> seen"),
            &[
                (StaysOff, Wrong, "confirmed off, then status reads on"),
                (OffAgain, Wrong, "not confirmed within its limit"),
                (Limit, Wrong, "off"),
            ],
        ),
        row(
            "refuses with the target on",
            machine("[ $1 = off ] && { echo 'outlet is locked' >&2; exit 3; }"),
            &with(&[(Off, Wrong, "refused; last: status -> exit status 0: on")]),
        ),
        row(
            "refuses because already off",
            "echo off > state\n[ $1 = off ] && exit 3
            case $1 in status) [ -e on ] && { echo on; exit 0; }; echo off; exit 2 ;; on) touch on ;; esac",
            &[],
        ),
        row(
            "sends off again although it is off",
            "case $1 in
                status) [ \"$(cat commands)\" = off ] || { echo on; exit 0; }
                    echo x >> n; [ $(wc -l < n) = 5 ] && { echo on; exit 0; }; echo off; exit 2 ;;
                off|on) echo $1 > commands ;;
            esac",
            &[(OffAgain, Wrong, "sent again although it was off: off")],
        ),
        row("hangs", "[ $1 = status ] && sleep 432", &silent()),
        row(
            "hangs at off alone",
            machine("[ $1 = off ] && sleep 432"),
            &with(&[(Off, Wrong, "not confirmed within its limit"), (Limit, Wrong, "off")]),
        ),
        row("gives half an answer and dies", "printf o; kill -9 $$", &says("died of signal 9: o")),
        row("never ends its answer", "[ $1 = status ] && yes off", &silent()),
        row("talks too much after its answer", machine("trap 'head -c 3000000 /dev/zero | tr \"\\0\" x' EXIT"), &[]),
        row(
            "talks so much that its off is lost",
            machine("head -c 3000000 /dev/zero | tr '\\0' x; echo"),
            &with(&[(On, Wrong, "exit status 2: xxx"), (Limit, Wrong, "off, on")]),
        ),
        row("garbage", "head -c 300 /dev/urandom; exit 7", &says("exit status 7")),
        row("a syntax error, which exits with 2", "if then", &says("exit status 2")),
        row(
            "tells its secret",
            machine("echo \"logging in with $(cat secret)\" >&2"),
            &[(NoSecret, Wrong, "a secret stands in")],
        ),
        row(
            "tells its secret in base64",
            machine("echo \"Authorization: Basic $(base64 < secret)\" >&2"),
            &[(NoSecret, Wrong, "a secret stands in")],
        ),
        row(
            "answers to an earlier request",
            "case $1 in
                status) cp state now; [ -e answer ] || cp state answer; cat answer; was=$(cat answer); cp now answer
                    [ $was = on ] && exit 0; exit 2 ;;
                off|on) echo $1 > state ;;
            esac",
            &[],
        ),
        row(
            "answers now so, now otherwise",
            "case $1 in
                status) echo x >> n; [ $(( $(wc -l < n) % 3 )) = 1 ] && { echo on; exit 0; }; echo off; exit 2 ;;
            esac",
            &[&[(Status, Wrong, "off at first, then on")][..], &untouched].concat(),
        ),
        row("is slow but right", machine("sleep 0.15"), &[]),
    ]
}

/// Programs that take, tried without leave.
fn taking() -> Vec<Row> {
    let store = |above: &str, named: &str| format!("above={above}; named={named}\n{STORE}");
    let good = store("-gt", "$(cat stored)");
    vec![
        row("compares and swaps", good.clone(), &[]),
        row(
            "takes whatever comes",
            store("-ne", "0"),
            &[(StaleTake, Wrong, "a take with 5 left 5 in the store, not 6")],
        ),
        row(
            "says taken and stores nothing: read back, that is a refusal",
            format!("[ $1 = take ] && exit 0\n{good}"),
            &[],
        ),
        row(
            "cuts off before it compares",
            format!("[ $1 = take ] && echo off > state\n{good}"),
            &[(StaleTake, Wrong, "a take with 5 changed who has access")],
        ),
        row(
            "names another highest",
            store("-gt", "99"),
            &[(StaleTake, Wrong, "the refusal names 99, the store holds 6")],
        ),
        row(
            "refuses without a word",
            format!("[ $1 = take ] && exit 3\n{good}"),
            &[(StaleTake, Wrong, "neither taken nor refused")],
        ),
        row(
            "cannot read its highest",
            format!("[ $1 = highest ] && exit 1\n{good}"),
            &[(Highest, Wrong, "cannot be read"), (StaleTake, LeftOut, "")],
        ),
        row(
            "hangs at a take",
            format!("[ $1 = take ] && sleep 432\n{good}"),
            &[(StaleTake, Wrong, "no answer within its limit"), (Limit, Wrong, "take")],
        ),
        row(
            "was never taken",
            format!("echo 1 > stored\n{good}"),
            &[(StaleTake, LeftOut, "nothing is stale before the second take")],
        ),
    ]
}

/// What a program that keeps the contract comes out with.
fn usual(takes: bool) -> Vec<(Clause, Kept)> {
    let (taking, switching) = if takes { (Right, LeftOut) } else { (LeftOut, Right) };
    let take = [Highest, StaleTake].map(|clause| (clause, taking));
    let switch = [Off, StaysOff, OffAgain, On].map(|clause| (clause, switching));
    let more = [Limit, Bounded, NoSecret].map(|clause| (clause, Right));
    [&[(Prove, Right), (Status, Right)][..], &take, &switch, &more].concat()
}

/// What is wrong with what came out.
async fn judge(row: Row, takes: bool) -> Vec<String> {
    let touch = if takes { Touch::OnlyLook } else { Touch::Really };
    let device = Device::new(&row.script);
    let begun = Instant::now();
    let lines = device.run(takes, touch).await;
    let took = begun.elapsed();
    let text: String = lines.iter().map(|l| format!("  {:?} {} {}\n", l.kept, l.clause, l.why)).collect();
    let mut wrong = Vec::new();
    for (line, (clause, kept)) in lines.iter().zip(usual(takes)) {
        let differs = row.differs.iter().find(|(of, ..)| *of == clause);
        let (kept, words) = differs.map_or((kept, ""), |(_, kept, words)| (*kept, *words));
        if line.clause != clause || line.kept != kept || !line.why.contains(words) {
            wrong.push(format!("{clause} must be {kept:?} with {words:?}"));
        }
    }
    if lines.len() != usual(takes).len() || text.contains("M4RK") || took > HANGS {
        wrong.push(format!("{} lines in {took:?}", lines.len()));
    }
    wrong.into_iter().map(|w| format!("{}: {w}\n{text}", row.what)).collect()
}

#[tokio::test]
async fn every_clause_comes_out_right_for_good_and_bad_programs() {
    let rows = async {
        let mut rows = tokio::task::JoinSet::new();
        switching().into_iter().for_each(|row| drop(rows.spawn_local(judge(row, false))));
        taking().into_iter().for_each(|row| drop(rows.spawn_local(judge(row, true))));
        rows.join_all().await
    };
    let wrong: Vec<String> = tokio::task::LocalSet::new().run_until(rows).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} findings:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn without_leave_nothing_is_sent_but_questions() {
    let device = Device::new(HONEST);
    let lines = device.run(false, Touch::OnlyLook).await;
    assert!(lines.iter().all(|line| line.kept != Wrong), "{lines:?}");
    assert!(device.read("calls").lines().all(|call| call == "status"), "{}", device.read("calls"));
}

#[tokio::test]
async fn a_program_that_hangs_is_killed() {
    let device = Device::new("echo $$ > pid; sleep 432");
    device.run(false, Touch::OnlyLook).await;
    let pid = device.read("pid").trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
    // One that is gone already cannot be watched.
    if let Ok(watch) = PidWatch::of(pid) {
        tokio::time::timeout(Duration::from_secs(60), watch.exited()).await.expect("it was killed");
    }
}

/// A configuration with one exec agent against each node, both the same program.
fn configuration(device: &Device) -> PathBuf {
    let agent = |target: &str| {
        format!(
            "[[fence.agent]]\nname = \"pdu-{target}\"\ntarget = \"{target}\"\nkind = \"exec\"\nscope = \"node\"\n\
             timeout = \"2s\"\nprogram = \"{}\"\nsettings = {{ password_file = \"{}\" }}\n",
            device.path("agent").display(),
            device.path("secret").display()
        )
    };
    let text = format!(
        "[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\n\
         [[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n\
         [[link]]\nname = \"lan\"\naddresses = {{ heron = \"192.0.2.1\", plover = \"192.0.2.2\" }}\n\
         [[link]]\nname = \"direct\"\naddresses = {{ heron = \"198.51.100.1\", plover = \"198.51.100.2\" }}\n\
         [guard]\nwatchdog = \"auto\"\n{}{}\
         [[resource]]\nname = \"gauges\"\nkind = \"exec\"\nstart = [\"/usr/local/bin/gauges\"]\n",
        agent("heron"),
        agent("plover")
    );
    fs::write(device.path("leasehold.toml"), text).unwrap();
    device.path("leasehold.toml")
}

fn fence_test(device: &Device, options: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::cargo_bin("leasehold").unwrap();
    command.args(["fence", "test"]).args(options).arg("--config").arg(configuration(device)).write_stdin(input);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn the_command_prints_a_line_a_clause_and_its_status_tells_the_sum() {
    let good = Device::new(HONEST);
    let (status, text) = fence_test(&good, &["pdu-heron"], "");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.starts_with("pdu-heron: exec, against heron, node scope, limit 2s\n  right  made"), "{text}");
    assert!(
        text.contains("  -    off         only with --really") && text.ends_with("0 wrong, 6 left out\n"),
        "{text}"
    );
    let bad = Device::new(&format!("[ $1 = status ] && echo \"$(cat secret)\" >&2\n{HONEST}"));
    let (status, text) = fence_test(&bad, &["pdu-heron"], "");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("WRONG  no secret") && !text.contains("M4RK"), "{text}");
}

#[test]
fn the_command_touches_the_target_only_when_its_name_is_given() {
    let device = Device::new(HONEST);
    for (options, input) in [(&["--really"][..], "plover\n"), (&["--really"], ""), (&["--yes-really", "plover"], "")] {
        let (status, text) = fence_test(&device, &[&["pdu-heron"], options].concat(), input);
        assert!(status == Some(3) && text.contains("Nothing was tried."), "{text}");
    }
    assert_eq!(device.read("calls"), "");
    for (options, input) in [(&["--really"][..], "heron\n"), (&["--yes-really", "heron"], "")] {
        let (status, text) = fence_test(&device, &[&["pdu-heron"], options].concat(), input);
        assert!(status == Some(0) && text.ends_with("0 wrong, 2 left out\n"), "{text}");
    }
    assert_eq!(device.read("calls").lines().filter(|call| *call == "off").count(), 2);
    assert_eq!(device.read("state"), "on\n");
}

#[test]
fn the_command_names_the_agents_that_there_are_and_an_agent_that_cannot_be_made() {
    let device = Device::new(HONEST);
    let (status, text) = fence_test(&device, &["pdu"], "");
    assert!(status == Some(1) && text.contains("the configuration has pdu-heron, pdu-plover"), "{text}");
    fs::set_permissions(device.path("agent"), fs::Permissions::from_mode(0o777)).unwrap();
    let (status, text) = fence_test(&device, &["pdu-heron"], "");
    assert!(status == Some(1) && text.contains("WRONG  made") && text.contains("chmod go-w"), "{text}");
}
