//! Exec agents, takes and the rules of the plan, with real programs (protocol section 1).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::ExecAgent;
use leasehold::core::{AgentSet, FenceResult, PowerReading, Scope, Seen, Span, Take, TakeResult, Token};
use leasehold::fence::{Agent, Entry, Exec, FenceError, FencePlan, Manual, Order, Outcome, Report};
use leasehold::process::PidWatch;
use rustix::process::Pid;

const LIMIT: Span = Span::from_secs(15);

/// A node behind a program: `state` holds on or off, `off` and `on` change it.
const HONEST: &str = "case $1 in
    status) cat state; grep -q on state && exit 0; exit 2 ;;
    off|on) echo $1 > state ;;
esac";

/// A store that compares and swaps under a lock, as the contract of the exec agent says.
const STORE: &str = r#"field() { echo "$LEASEHOLD_FENCE" | sed -n "s/.*\"$1\":\(null\|[0-9]*\).*/\1/p"; }
exec 9> lock; flock 9
stored=$(cat stored 2>/dev/null || echo 0)
case $1 in
    highest) echo "{\"highest\":$stored}" ;;
    status) cat state; grep -q on state && exit 0; exit 2 ;;
    take) new=$(field new); seen=$(field seen); own=$(field own_parity)
        if [ $new -gt $stored ] && { [ $seen = null ] || [ $stored -le $seen ] || [ $((stored % 2)) = $own ]; }; then
            echo $new > stored; echo off > state; exit 0
        fi
        echo "{\"highest\":$stored}"; exit 3 ;;
esac"#;

struct Device(tempfile::TempDir);

impl Device {
    fn new(script: &str) -> Device {
        let dir = tempfile::tempdir().unwrap();
        let text =
            format!("#!/bin/bash\ncd \"$(dirname \"$0\")\"\necho \"$1\" >> calls\nenv > environment\n{script}\n");
        fs::write(dir.path().join("agent"), text).unwrap();
        fs::write(dir.path().join("state"), "on\n").unwrap();
        fs::set_permissions(dir.path().join("agent"), fs::Permissions::from_mode(0o700)).unwrap();
        Device(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn agent(&self, scope: Scope, takes: bool) -> Result<Exec, FenceError> {
        let settings = BTreeMap::from([("outlet".to_owned(), "4".to_owned())]);
        let config = ExecAgent { program: self.path("agent"), args: Vec::new(), settings, takes };
        Exec::new("pdu", scope, LIMIT, &config, "heron", "plover")
    }

    fn entry(&self, index: usize, level: u32, scope: Scope) -> Entry {
        entry(index, level, LIMIT, Arc::new(self.agent(scope, false).unwrap()))
    }

    fn store(&self) -> FencePlan {
        let agent = Arc::new(self.agent(Scope::Resource, true).unwrap());
        FencePlan::of(vec![entry(0, 1, LIMIT, agent)], Vec::new())
    }
}

fn entry(index: usize, level: u32, limit: Span, agent: Arc<dyn Agent>) -> Entry {
    Entry { index, name: format!("agent{index}"), level, limit: limit.into(), agent }
}

fn order() -> Order {
    Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(30) }
}

fn told(report: &Report) -> String {
    report.evidence.iter().map(|e| format!("{}: {} -> {}\n", e.agent, e.sent, e.read)).collect()
}

fn confirmed(scope: Scope, agents: u32) -> FenceResult {
    FenceResult::Confirmed { scope, verified_by: AgentSet(agents) }
}

#[tokio::test]
async fn an_honest_program_confirms_by_its_status_and_gets_its_context_without_secrets() {
    let device = Device::new(HONEST);
    let plan = FencePlan::of(vec![device.entry(0, 1, Scope::Node)], Vec::new());
    let report = plan.off(&order()).await;
    assert_eq!(report.result, confirmed(Scope::Node, 1), "{}", told(&report));
    assert_eq!(device.read("calls"), "status\noff\nstatus\nstatus\n");
    let environment = device.read("environment");
    let context = environment.lines().find_map(|l| l.strip_prefix("LEASEHOLD_FENCE=")).unwrap();
    let context: serde_json::Value = serde_json::from_str(context).unwrap();
    let want = serde_json::json!({"version": 1, "agent": "pdu", "action": "status", "target": "heron",
        "caller": "plover", "scope": "node", "token": 4, "settings": {"outlet": "4"}});
    assert_eq!(context, want);
    assert!(!environment.contains("CARGO"), "{environment}");
    assert_eq!(plan.power_on(Token(4)).await.0, Outcome::Confirmed);
    assert_eq!(device.read("state"), "on\n");
}

#[tokio::test]
async fn an_off_that_only_claims_success_is_never_believed() {
    let device = Device::new("[ $1 = off ] && exit 0; echo on; exit 0");
    let short = entry(0, 1, Span::from_ms(700), Arc::new(device.agent(Scope::Node, false).unwrap()));
    assert_eq!(FencePlan::of(vec![short], Vec::new()).off(&order()).await.result, FenceResult::Unknown);
}

#[tokio::test]
async fn a_status_that_is_not_a_clear_off_is_not_off() {
    // A shell with a syntax error exits with 2; so do many argument parsers.
    for script in ["exit 2", "if then", "echo off; exit 0", "echo off; exit 1", "echo official; exit 2", "kill -9 $$"] {
        let device = Device::new(script);
        let plan = FencePlan::of(vec![device.entry(0, 1, Scope::Node)], Vec::new());
        assert_ne!(plan.probe(AgentSet::EMPTY).await.0, PowerReading::Off { verified_by: AgentSet(1) }, "{script}");
    }
}

#[tokio::test]
async fn a_program_that_refuses_while_the_target_is_on_is_refused_with_its_words() {
    let device = Device::new("[ $1 = status ] && exit 0; echo 'outlet is locked' >&2; exit 3");
    let report = FencePlan::of(vec![device.entry(0, 1, Scope::Node)], Vec::new()).off(&order()).await;
    assert_eq!(report.result, FenceResult::Refused { highest: None });
    assert!(told(&report).contains("outlet is locked"), "{}", told(&report));
}

#[tokio::test]
async fn a_program_that_floods_and_leaves_grandchildren_is_bounded_and_cleaned_up() {
    let device =
        Device::new("sleep 432 & echo $! > grandchild; [ $1 = status ] && { yes off | head -c 10000000; exit 2; }");
    let report = FencePlan::of(vec![device.entry(0, 1, Scope::Node)], Vec::new()).off(&order()).await;
    assert_eq!(report.result, confirmed(Scope::Node, 1));
    assert!(report.evidence[0].read.len() < 2000);
    // It was killed with its group; dying may take the kernel a moment. One that is gone already cannot be watched.
    let grandchild = device.read("grandchild").trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
    if let Ok(watch) = PidWatch::of(grandchild) {
        tokio::time::timeout(Duration::from_secs(60), watch.exited()).await.expect("it was killed");
    }
}

#[tokio::test]
async fn a_plan_with_an_agent_of_node_scope_succeeds_only_with_one_of_node_scope() {
    let (access, stubborn) = (Device::new(HONEST), Device::new("[ $1 = status ] && exit 0; exit 3"));
    let plan = FencePlan::of(vec![access.entry(0, 1, Scope::Resource), stubborn.entry(1, 2, Scope::Node)], Vec::new());
    assert_eq!(plan.off(&order()).await.result, FenceResult::Refused { highest: None });
    let power = Device::new(HONEST);
    let plan = FencePlan::of(vec![access.entry(0, 1, Scope::Resource), power.entry(1, 2, Scope::Node)], Vec::new());
    assert_eq!(plan.off(&order()).await.result, confirmed(Scope::Node, 0b11));
    let alone = FencePlan::of(vec![access.entry(0, 1, Scope::Resource)], Vec::new());
    assert_eq!(alone.off(&order()).await.result, confirmed(Scope::Resource, 0b1));
}

#[tokio::test]
async fn all_agents_of_a_level_must_confirm_and_the_next_level_is_the_way_out() {
    let (good, bad, outlet) = (Device::new(HONEST), Device::new("exit 1"), Device::new(HONEST));
    let short = |index, level, device: &Device| {
        entry(index, level, Span::from_secs(2), Arc::new(device.agent(Scope::Node, false).unwrap()))
    };
    let plan = FencePlan::of(vec![short(0, 1, &good), short(1, 1, &bad)], Vec::new());
    assert_eq!(plan.off(&order()).await.result, FenceResult::Unknown);
    let entries = vec![outlet.entry(2, 5, Scope::Node), short(0, 1, &good), short(1, 1, &bad)];
    assert_eq!(FencePlan::of(entries, Vec::new()).off(&order()).await.result, confirmed(Scope::Node, 0b100));
}

#[tokio::test]
async fn an_agent_that_once_lied_proves_nothing() {
    let (liar, outlet) = (Device::new(HONEST), Device::new(HONEST));
    let plan = FencePlan::of(vec![liar.entry(0, 1, Scope::Node), outlet.entry(1, 2, Scope::Node)], Vec::new());
    let report = plan.off(&Order { excluded: AgentSet(1), ..order() }).await;
    assert_eq!(report.result, confirmed(Scope::Node, 0b10));
    assert!(told(&report).contains("an operator must clear it"), "{}", told(&report));
    let both = AgentSet(0b11);
    assert_eq!(plan.off(&Order { excluded: both, ..order() }).await.result, FenceResult::Unknown);
    assert_eq!(plan.probe(both).await.0, PowerReading::Unknown);
}

#[tokio::test]
async fn a_person_never_confirms_by_program_and_is_told_the_command() {
    let manual = entry(0, 1, LIMIT, Arc::new(Manual::new(Scope::Node, "heron")));
    let report = FencePlan::of(vec![manual], Vec::new()).off(&order()).await;
    assert_eq!(report.result, FenceResult::Unknown);
    assert!(told(&report).contains("leasehold confirm-fenced heron"), "{}", told(&report));
}

#[tokio::test]
async fn a_take_succeeds_only_above_the_stored_token_and_as_seen() {
    let device = Device::new(STORE);
    let plan = device.store();
    let take = async |new, seen| plan.take(Take { new: Token(new), seen }).await.0;
    assert_eq!(plan.highest().await, Some(Token(0)));
    assert_eq!(take(5, Seen::AtMost(Token(0))).await, TakeResult::Taken);
    assert_eq!(take(4, Seen::AtMost(Token(9))).await, TakeResult::Refused { highest: Token(5) });
    assert_eq!(take(8, Seen::AtMost(Token(3))).await, TakeResult::Refused { highest: Token(5) });
    assert_eq!(take(7, Seen::AtMost(Token(3))).await, TakeResult::Taken, "the stored one is the caller's own");
    assert_eq!(take(8, Seen::Whatever).await, TakeResult::Taken);
    assert_eq!(plan.highest().await, Some(Token(8)));
}

#[tokio::test]
async fn a_take_repeated_with_the_same_token_is_still_taken() {
    let device = Device::new(STORE);
    let plan = device.store();
    let take = Take { new: Token(5), seen: Seen::AtMost(Token(0)) };
    assert_eq!(plan.take(take).await.0, TakeResult::Taken);
    assert_eq!(plan.take(take).await.0, TakeResult::Taken);
}

#[tokio::test]
async fn a_take_counts_only_when_this_nodes_own_access_reads_on() {
    let (theirs, mine) = (Device::new(STORE), Device::new(STORE));
    let store = |device: &Device| entry(0, 1, LIMIT, Arc::new(device.agent(Scope::Resource, true).unwrap()));
    let plan = FencePlan::of(vec![store(&theirs)], vec![store(&mine)]);
    assert_eq!(plan.take(Take { new: Token(5), seen: Seen::Whatever }).await.0, TakeResult::Taken);
    fs::write(mine.path("state"), "off\n").unwrap();
    assert_eq!(plan.take(Take { new: Token(7), seen: Seen::Whatever }).await.0, TakeResult::Unknown);
}

#[tokio::test]
async fn an_attempt_by_take_reports_as_a_fence_of_resource_scope() {
    let device = Device::new(STORE);
    let plan = device.store();
    let attempt = |new, seen| Order { take: Some(Take { new: Token(new), seen }), token: Token(new), ..order() };
    assert_eq!(plan.off(&attempt(5, Seen::AtMost(Token(0)))).await.result, confirmed(Scope::Resource, 1));
    let refused = plan.off(&attempt(6, Seen::AtMost(Token(0)))).await.result;
    assert_eq!(refused, FenceResult::Refused { highest: Some(Token(5)) });
}

#[tokio::test]
async fn a_take_that_cannot_be_read_back_is_unknown() {
    for script in ["exit 0", "[ $1 = highest ] && echo '{\"highest\":4}'; exit 0", "[ $1 = take ] && exit 1; exit 0"] {
        let plan = Device::new(script).store();
        assert_eq!(plan.take(Take { new: Token(5), seen: Seen::Whatever }).await.0, TakeResult::Unknown, "{script}");
    }
    assert_eq!(Device::new("exit 1").store().highest().await, None);
    let nothing = FencePlan::of(Vec::new(), Vec::new());
    assert_eq!(nothing.take(Take { new: Token(5), seen: Seen::Whatever }).await.0, TakeResult::Unknown);
    assert_eq!(nothing.highest().await, Some(Token::NONE));
}

#[tokio::test]
async fn own_access_is_assured_only_when_it_reads_on() {
    let own = Device::new(HONEST);
    fs::write(own.path("state"), "off\n").unwrap();
    let plan = FencePlan::of(Vec::new(), vec![own.entry(0, 1, Scope::Resource)]);
    assert!(plan.ensure_access(Token(4)).await);
    assert_eq!(own.read("state"), "on\n");
    let deaf = Device::new("[ $1 = status ] && { echo off; exit 2; }; exit 0");
    let short = entry(0, 1, Span::from_ms(700), Arc::new(deaf.agent(Scope::Resource, false).unwrap()));
    assert!(!FencePlan::of(Vec::new(), vec![short]).ensure_access(Token(4)).await);
}

#[tokio::test]
async fn a_program_that_others_may_change_is_refused_at_the_start_and_at_the_time() {
    let device = Device::new(HONEST);
    let agent = Arc::new(device.agent(Scope::Node, false).unwrap());
    fs::set_permissions(device.path("agent"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(device.agent(Scope::Node, false), Err(FenceError::Program { .. })));
    let plan = FencePlan::of(vec![entry(0, 1, Span::from_ms(500), agent)], Vec::new());
    let report = plan.off(&order()).await;
    assert!(told(&report).contains("chmod go-w"), "{}", told(&report));
    assert_eq!((report.result, device.read("calls")), (FenceResult::Unknown, String::new()));
}

#[tokio::test]
async fn dropping_an_attempt_kills_its_programs() {
    let device = Device::new("echo $$ > pid; sleep 432");
    let plan = FencePlan::of(vec![device.entry(0, 1, Scope::Node)], Vec::new());
    let order = order();
    let mut attempt = Box::pin(plan.off(&order));
    while !device.read("pid").ends_with('\n') {
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut attempt).await.is_err());
    }
    drop(attempt);
    let stat = format!("/proc/{}/stat", device.read("pid").trim());
    for _ in 0..1000 {
        if fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z ")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it still runs");
}
