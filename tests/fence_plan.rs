//! The fence plan as it comes out of a configuration: what is found wrong at the start and not at the failover.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::config::{
    Agent, AgentKind, Config, Control, ExecAgent, Fence, IdentityCheck, IpmiAgent, Node, Paths, SecretSource, Timing,
};
use leasehold::core::{
    AgentSet, DataModel, Digest, FenceResult, FirstShooter, NodeId, Plan, PowerOn, PromoteAfter, Scope, Span, Token,
};
use leasehold::fence::{FencePlan, Order};

fn config(agents: Vec<Agent>) -> Config {
    let second = Span::from_secs(1);
    Config {
        cluster: "reef".to_owned(),
        key_file: PathBuf::from("/unused"),
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
        (ipmi(&dir.path().join("none")), "cannot read the password file"),
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
