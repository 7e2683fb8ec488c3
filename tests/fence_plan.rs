//! The fence plan: what is found wrong at the start and not at the failover; levels, limits, and whose turn it is.

#[path = "common/hang.rs"]
mod hang;
#[path = "common/need.rs"]
mod need;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::{
    Agent, AgentKind, Config, Control, ExecAgent, Fence, IdentityCheck, IpmiAgent, Node, Paths, SecretSource, Timing,
};
use leasehold::core::{
    AgentSet, DataModel, Digest, FenceResult, FirstShooter, NodeId, Plan, PowerOn, PromoteAfter, Scope, Span, Token,
};
use leasehold::fence::{Attempt, Entry, Exec, FencePlan, Order, Outcome, Pending, Reading, Report};
use leasehold::os::clock;

fn config(agents: Vec<Agent>) -> Config {
    let second = Span::from_secs(1);
    Config {
        cluster: "reef".to_owned(),
        key: SecretSource::File("/unused".into()),
        data: DataModel::Shared,
        nodes: ["heron", "plover"].map(|name| Node { name: name.to_owned() }),
        links: Vec::new(),
        timing: Timing {
            interval: second,
            dead_after: second,
            term: second,
            margin: second,
            head_start: second,
            fence_bound: second,
            settle: second,
            pause: second,
            wall_check: false,
            stop_budget: second,
            reset: second,
            watchdog: None,
            drift_ppm: 200,
            round_trip: second,
            join_wait: second,
            join_fence: false,
            boot_time: second,
            leave_timeout: second,
            start_backoff: second,
            promote_after: PromoteAfter::Fence,
        },
        guard: leasehold::config::Guard {
            process: leasehold::config::GuardProcess::Required,
            device: "/dev/watchdog0".into(),
        },
        fence: Fence {
            plan: Plan::Node { access: true },
            first: FirstShooter::Primary,
            power_on: PowerOn::Never,
            probe_interval: Span::from_secs(60),
            agents,
        },
        resources: Vec::new(),
        service: leasehold::config::Service::default(),
        control: Control { socket: PathBuf::from("/unused"), read_group: None, command_group: None },
        paths: Paths { state: PathBuf::from("/unused"), runtime: PathBuf::from("/unused") },
        digest: Digest::default(),
    }
}

fn agent(name: &str, target: NodeId, scope: Scope, kind: AgentKind) -> Agent {
    let timeout = Span::from_secs(15);
    Agent { name: name.to_owned(), target, level: 1, scope, timeout, typical: timeout, settle: Span::ZERO, kind }
}

fn ipmi(password: &Path) -> AgentKind {
    AgentKind::Ipmi(IpmiAgent {
        address: "127.0.0.1".to_owned(),
        port: 623,
        user: "admin".to_owned(),
        password: SecretSource::File(password.to_owned()),
        cipher_suite: None,
        privilege: "ADMINISTRATOR".to_owned(),
        stable_reads: 2,
        poll: Span::from_ms(100),
        independent_power: false,
        identity: IdentityCheck::Uuid,
    })
}

fn exec(program: &Path) -> AgentKind {
    AgentKind::Exec(ExecAgent {
        program: program.to_owned(),
        args: vec!["--quick".to_owned()],
        settings: BTreeMap::new(),
        takes: false,
    })
}

fn file(dir: &Path, name: &str, content: &str, mode: u32) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn refusal(agents: Vec<Agent>, me: NodeId) -> String {
    FencePlan::new(&config(agents), me).expect_err("a wrong configuration").to_string()
}

#[tokio::test]
async fn each_node_aims_at_its_peer_and_agents_keep_their_place_in_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\ncd \"$(dirname \"$0\")\"; echo \"$@\" >> calls; echo off; exit 2\n";
    let program = file(dir.path(), "agent", script, 0o700);
    let against = |name, target| agent(name, target, Scope::Node, exec(&program));
    let config = config(vec![against("heron-power", NodeId::First), against("plover-power", NodeId::Second)]);
    let order =
        Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(30) };
    for (me, bit) in [(NodeId::First, 0b10), (NodeId::Second, 0b01)] {
        let plan = FencePlan::new(&config, me).unwrap().with_stamp(|| "noon".to_owned());
        let report = plan.off(&order).await;
        assert_eq!(report.result, FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(bit) });
        assert_eq!(report.evidence[0].at, "noon");
    }
    assert!(fs::read_to_string(dir.path().join("calls")).unwrap().lines().all(|l| l == "--quick status"));
}

#[test]
fn what_is_wrong_with_an_agent_is_told_at_the_start_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let open = file(dir.path(), "open", "secret\n", 0o644);
    let long = file(dir.path(), "long", "twenty-one-bytes-long\n", 0o600);
    let writable = file(dir.path(), "writable", "#!/bin/sh\n", 0o777);
    for (kind, want) in [
        (ipmi(&dir.path().join("none")), "cannot read the secret file"),
        (ipmi(&open), "chmod 600"),
        (ipmi(&long), "at most 20"),
        (exec(&dir.path().join("none")), "No such file"),
        (exec(&writable), "chmod go-w"),
    ] {
        let told = refusal(vec![agent("power", NodeId::First, Scope::Node, kind)], NodeId::Second);
        assert!(told.contains("\"power\"") && told.contains(want), "{told}");
    }
}

#[test]
fn a_node_needs_no_secret_of_the_agent_that_shoots_itself_but_its_own_way_back_in() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none");
    FencePlan::new(&config(vec![agent("power", NodeId::First, Scope::Node, ipmi(&missing))]), NodeId::First).unwrap();
    let told = refusal(vec![agent("nfs", NodeId::First, Scope::Resource, exec(&missing))], NodeId::First);
    assert!(told.contains("nfs"), "{told}");
}

#[test]
fn more_agents_than_a_set_can_hold_are_refused() {
    let many = (0..33).map(|n| agent(&format!("a{n}"), NodeId::First, Scope::Node, AgentKind::Manual)).collect();
    assert!(refusal(many, NodeId::Second).contains("at most 32"));
}

// --- levels, limits and turns -----------------------------------------------------------------------------------------

const LIMIT: Span = Span::from_secs(30);
/// Of an agent that hangs: long enough for a loaded machine to start a program.
const SHORT: Span = Span::from_secs(2);

/// A node behind a program: `state` holds on or off, `off` and `on` change it.
const HONEST: &str = "case $1 in
    status) cat state; grep -q on state && exit 0; exit 2 ;;
    off|on) echo $1 > state ;;
esac";

struct Device(tempfile::TempDir);

impl Device {
    fn new(script: &str) -> Device {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho \"$1\" >> calls\n{script}\n");
        file(dir.path(), "agent", &text, 0o700);
        file(dir.path(), "state", "on\n", 0o600);
        Device(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn entry(&self, index: usize, level: u32, scope: Scope, limit: Span) -> Entry {
        program(self.path("agent"), index, level, scope, limit)
    }
}

fn program(program: PathBuf, index: usize, level: u32, scope: Scope, limit: Span) -> Entry {
    let config = ExecAgent { program, args: Vec::new(), settings: BTreeMap::new(), takes: false };
    let name = format!("agent{index}");
    let agent = Arc::new(Exec::new(&name, scope, limit, &config, "heron", "plover").unwrap());
    Entry { index, name, level, limit: limit.into(), agent }
}

fn order() -> Order {
    Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(120) }
}

fn by(agents: u32) -> FenceResult {
    FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(agents) }
}

fn told(report: &Report) -> String {
    report.evidence.iter().map(|e| format!("{}: {} -> {}\n", e.agent, e.sent, e.read)).collect()
}

/// Each says `off` only when the other one runs as well.
#[tokio::test]
async fn the_agents_of_a_level_work_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let meet = |mine: &str, other: &str| {
        let at = dir.path().display();
        Device::new(&format!("touch {at}/{mine}; until [ -e {at}/{other} ]; do sleep 0.05; done; echo off; exit 2"))
    };
    let (left, right) = (meet("left", "right"), meet("right", "left"));
    let entries = vec![left.entry(0, 1, Scope::Node, LIMIT), right.entry(1, 1, Scope::Node, LIMIT)];
    assert_eq!(FencePlan::of(entries, Vec::new()).off(&order()).await.result, by(0b11));
}

#[tokio::test]
async fn power_off_and_detach_is_one_level_and_neither_alone_is_enough() {
    let (power, volume, outlet) = (Device::new(HONEST), Device::new(HONEST), Device::new(HONEST));
    let level = |volume: &Device, limit| {
        vec![
            power.entry(0, 1, Scope::Node, LIMIT),
            volume.entry(1, 1, Scope::Resource, limit),
            outlet.entry(2, 2, Scope::Node, LIMIT),
        ]
    };
    assert_eq!(FencePlan::of(level(&volume, LIMIT), Vec::new()).off(&order()).await.result, by(0b011));
    assert_eq!((volume.read("state"), outlet.read("calls")), ("off\n".to_owned(), String::new()));
    let stuck = Device::new("[ $1 = status ] && { echo on; exit 0; }; exit 0");
    let report = FencePlan::of(level(&stuck, SHORT), Vec::new()).off(&order()).await;
    assert_eq!(report.result, by(0b100), "the power is off, the volume is not detached: {}", told(&report));
}

#[tokio::test]
async fn a_level_with_a_liar_is_left_out_whole() {
    let (liar, honest, outlet) = (Device::new(HONEST), Device::new(HONEST), Device::new(HONEST));
    let entries = vec![
        liar.entry(0, 1, Scope::Node, LIMIT),
        honest.entry(1, 1, Scope::Node, LIMIT),
        outlet.entry(2, 2, Scope::Node, LIMIT),
    ];
    let plan = FencePlan::of(entries, Vec::new());
    let report = plan.off(&Order { excluded: AgentSet(0b001), ..order() }).await;
    assert_eq!(report.result, by(0b100), "{}", told(&report));
    assert_eq!((liar.read("calls"), honest.read("calls")), (String::new(), String::new()));
    assert!(told(&report).contains("agent0: (nothing) -> skipped with its level"), "{}", told(&report));
}

#[tokio::test]
async fn a_fenced_node_is_on_again_only_when_it_reads_on_and_its_outlet_comes_first() {
    let log = tempfile::tempdir().unwrap();
    let logged =
        |name: &str| Device::new(&format!("[ $1 = on ] && echo {name} >> {}/order\n{HONEST}", log.path().display()));
    let (bmc, outlet) = (logged("bmc"), logged("outlet"));
    for device in [&bmc, &outlet] {
        file(device.0.path(), "state", "off\n", 0o600);
    }
    let plan =
        FencePlan::of(vec![bmc.entry(0, 1, Scope::Node, LIMIT), outlet.entry(1, 2, Scope::Node, LIMIT)], Vec::new());
    assert_eq!(plan.power_on(Token(4)).await.0, Outcome::Confirmed);
    assert_eq!(fs::read_to_string(log.path().join("order")).unwrap(), "outlet\nbmc\n");
    let deaf = Device::new("[ $1 = status ] && { echo off; exit 2; }; exit 0");
    let plan = FencePlan::of(vec![deaf.entry(0, 1, Scope::Node, SHORT)], Vec::new());
    assert_eq!(plan.power_on(Token(4)).await.0, Outcome::Unknown);
}

/// One that fails inside.
#[derive(Debug)]
struct Broken;

impl leasehold::fence::Agent for Broken {
    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn off<'a>(&'a self, _: Token, _: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async { panic!("a fault of this agent, which this test wants") })
    }

    fn status<'a>(&'a self, _: &'a Attempt) -> Pending<'a, Reading> {
        Box::pin(async { panic!("a fault of this agent, which this test wants") })
    }

    fn on<'a>(&'a self, _: Token, _: &'a Attempt) -> Pending<'a, Outcome> {
        Box::pin(async { panic!("a fault of this agent, which this test wants") })
    }
}

#[tokio::test]
async fn an_agent_that_fails_inside_is_unknown_and_the_next_level_is_reached() {
    let outlet = Device::new(HONEST);
    let broken = Entry { index: 0, name: "broken".into(), level: 1, limit: LIMIT.into(), agent: Arc::new(Broken) };
    let plan = FencePlan::of(vec![broken, outlet.entry(1, 2, Scope::Node, LIMIT)], Vec::new());
    let probed = plan.prove(0).await.expect("nothing else wants it");
    assert!(probed.health.faults[0].contains("the agent itself failed"), "{probed:?}");
    assert_eq!(plan.off(&order()).await.result, by(0b10));
}

/// The state of a process: `D` hangs in the kernel.
fn state_of(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[tokio::test]
async fn an_agent_that_hangs_in_the_kernel_costs_its_own_limit_and_no_more() {
    if !need::all("an_agent_that_hangs_in_the_kernel_costs_its_own_limit_and_no_more", &hang::needs()) {
        return;
    }
    let disk = hang::Hanging::mount();
    let device = disk.path("device");
    let hung = Device::new(&format!("echo $$ > pid; echo x > {0}; exec sync {0}", device.display()));
    let outlet = Device::new(HONEST);
    let plan =
        FencePlan::of(vec![hung.entry(0, 1, Scope::Node, SHORT), outlet.entry(1, 2, Scope::Node, LIMIT)], Vec::new());
    disk.hang();
    let begun = clock::now();
    let report = plan.off(&order()).await;
    let took = clock::now().since(begun);
    assert_eq!(report.result, by(0b10), "{}", told(&report));
    let pid = hung.read("pid");
    assert_eq!(state_of(&pid), Some('D'), "SIGKILL does not end it");
    // Its limit, the reading of the other one, and much room for a loaded machine.
    assert!(took >= SHORT && took < SHORT.times(10), "{took}");
    // Nor does it hold up a look at it, again and again.
    for _ in 0..2 {
        let probed = plan.prove(0).await.expect("nothing else wants it");
        assert!(!probed.health.is_good(), "{probed:?}");
    }
    disk.let_go();
}

#[tokio::test]
async fn a_program_on_a_file_system_that_does_not_answer_holds_up_nobody_else() {
    if !need::all("a_program_on_a_file_system_that_does_not_answer_holds_up_nobody_else", &hang::needs()) {
        return;
    }
    let disk = hang::Hanging::mount();
    let hung = program(disk.path("agent"), 0, 1, Scope::Node, SHORT);
    let outlet = Device::new(HONEST);
    let plan = FencePlan::of(vec![hung, outlet.entry(1, 2, Scope::Node, LIMIT)], Vec::new());
    assert_eq!(plan.off(&order()).await.result, by(0b01), "while it answers");
    disk.hang();
    let report = plan.off(&order()).await;
    disk.let_go();
    assert_eq!(report.result, by(0b10), "{}", told(&report));
}

#[tokio::test]
async fn a_look_at_an_agent_gives_way_to_an_attempt_and_ends_its_program() {
    let device = Device::new("[ -e attempt ] && { echo off; exit 2; }; echo $$ > looking; sleep 4321");
    let plan = Arc::new(FencePlan::of(vec![device.entry(0, 1, Scope::Node, LIMIT)], Vec::new()));
    let looks = plan.clone();
    let look = tokio::spawn(async move { looks.prove(0).await });
    while !device.read("looking").ends_with('\n') {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    file(device.0.path(), "attempt", "", 0o600);
    assert_eq!(plan.off(&order()).await.result, by(0b1));
    assert_eq!(look.await.unwrap(), None, "nothing was found: the look was given up");
    for _ in 0..3000 {
        if state_of(&device.read("looking")).is_none_or(|state| state == 'Z') {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the program of the look still runs");
}

#[tokio::test]
async fn no_look_is_begun_while_an_attempt_is_under_way() {
    let device = Device::new("touch attempt; until [ -e go ]; do sleep 0.05; done; echo off; exit 2");
    let plan = Arc::new(FencePlan::of(vec![device.entry(0, 1, Scope::Node, LIMIT)], Vec::new()));
    let shoots = plan.clone();
    let attempt = tokio::spawn(async move { shoots.off(&order()).await });
    while !device.path("attempt").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(plan.prove(0).await, None);
    file(device.0.path(), "go", "", 0o600);
    assert_eq!(attempt.await.unwrap().result, by(0b1));
    assert!(plan.prove(0).await.is_some_and(|probed| probed.health.is_good()), "now it is nobody's turn");
    assert_eq!(plan.prove(7).await, None, "there is no such agent");
}

#[tokio::test]
async fn a_look_is_bounded_by_the_agents_limit_and_says_what_was_answered_last() {
    let device = Device::new("echo 'no route to 10.1.1.11' >&2; exit 1");
    let plan = FencePlan::of(vec![device.entry(0, 1, Scope::Node, LIMIT)], Vec::new());
    let faults = plan.prove(0).await.unwrap().health.faults;
    assert!(faults[0].contains("cannot be read") && faults[0].contains("no route to 10.1.1.11"), "{faults:?}");
    let hung = Device::new("sleep 4321");
    let plan = FencePlan::of(vec![hung.entry(0, 1, Scope::Node, SHORT)], Vec::new());
    let faults = plan.prove(0).await.unwrap().health.faults;
    assert!(faults[0].contains("no verdict within its limit of 2s"), "{faults:?}");
}
