//! The IPMI agent against a real BMC simulator, over real RMCP+ (casebook C01, C02, C34).

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::ipmi::{Bmc, PASSWORD};
use leasehold::config::IpmiAgent;
use leasehold::core::{AgentSet, FenceResult, PowerReading, Scope, Span, Token};
use leasehold::fence::{Entry, Evidence, FencePlan, Ipmi, Order, Outcome};

/// Long enough for a loaded machine; a test that passes ends long before.
const LIMIT: Span = Span::from_secs(20);

fn plan_with(limit: Span, agents: &[&IpmiAgent]) -> FencePlan {
    let entry = |(index, config): (usize, &&IpmiAgent)| {
        let name = format!("bmc{index}");
        let agent = Arc::new(Ipmi::new(&name, Scope::Node, limit, config).expect("a usable agent"));
        Entry { index, name, level: 1, limit: limit.into(), agent }
    };
    FencePlan::of(agents.iter().enumerate().map(entry).collect(), Vec::new())
}

fn plan(bmc: &Bmc) -> FencePlan {
    plan_with(LIMIT, &[&bmc.agent()])
}

fn order() -> Order {
    Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(30) }
}

fn confirmed(agents: u32) -> FenceResult {
    FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(agents) }
}

fn told(evidence: &[Evidence]) -> String {
    evidence.iter().map(|e| format!("{} -> {}\n", e.sent, e.read)).collect()
}

fn sets(bmc: &Bmc) -> usize {
    bmc.calls().iter().filter(|c| c.starts_with("set power")).count()
}

#[tokio::test]
async fn a_running_machine_is_switched_off_and_its_processes_are_gone_when_that_is_confirmed() {
    let mut machine = Command::new("sleep");
    machine.arg("432").process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut machine = machine.spawn().unwrap();
    let off = format!("kill -KILL -{}; echo 0 > power", machine.id());
    let bmc = Bmc::start_with(&off, "echo 1 > power");
    let report = plan(&bmc).off(&order()).await;
    assert_eq!(report.result, confirmed(1), "{}", told(&report.evidence));
    // It is over already: the wait below only collects it.
    assert!(std::fs::read_to_string(format!("/proc/{}/stat", machine.id())).unwrap().contains(") Z "));
    assert!(!machine.wait().unwrap().success());
    assert!(told(&report.evidence).ends_with("Chassis Power is off\n"), "{}", told(&report.evidence));
}

#[tokio::test]
async fn a_machine_that_is_off_already_is_confirmed_without_a_command() {
    let bmc = Bmc::start();
    bmc.set_power(false);
    let report = plan(&bmc).off(&order()).await;
    assert_eq!((report.result, sets(&bmc)), (confirmed(1), 0), "{}", told(&report.evidence));
}

#[tokio::test]
async fn an_off_that_is_accepted_and_done_later_is_confirmed_later() {
    let bmc = Bmc::start_with("(sleep 1; echo 0 > power) >/dev/null 2>&1 &", "true");
    let report = plan(&bmc).off(&order()).await;
    assert_eq!((report.result, sets(&bmc)), (confirmed(1), 1), "{}", told(&report.evidence));
    assert!(!bmc.is_on());
    assert!(
        report.evidence.iter().any(|e| e.read == "Chassis Power is on" && e.times > 1),
        "it was not read on meanwhile"
    );
}

#[tokio::test]
async fn a_machine_that_stays_on_is_unknown_and_was_told_once() {
    let bmc = Bmc::start_with("true", "true");
    let report = plan_with(Span::from_secs(2), &[&bmc.agent()]).off(&order()).await;
    assert_eq!((report.result, sets(&bmc)), (FenceResult::Unknown, 1));
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_shown() {
    let bmc = Bmc::start();
    std::fs::write(bmc.password_file(), "wr0ng-M4RK").unwrap();
    let report = plan_with(Span::from_secs(2), &[&bmc.agent()]).off(&order()).await;
    assert_eq!((report.result, bmc.is_on()), (FenceResult::Unknown, true));
    let told = told(&report.evidence);
    assert!(told.contains("the BMC refuses the password") && !told.contains("M4RK"), "{told}");
}

#[tokio::test]
async fn an_unknown_user_and_too_low_a_privilege_are_named() {
    let bmc = Bmc::start();
    let stranger = IpmiAgent { user: "nobody".to_owned(), ..bmc.agent() };
    let report = plan_with(Span::from_secs(2), &[&stranger]).off(&order()).await;
    assert!(told(&report.evidence).contains("does not know this user"), "{}", told(&report.evidence));
    let guest = IpmiAgent { privilege: "USER".to_owned(), ..bmc.agent() };
    let report = plan_with(LIMIT, &[&guest]).off(&order()).await;
    assert_eq!((report.result, bmc.is_on()), (FenceResult::Refused { highest: None }, true));
    assert!(told(&report.evidence).contains("Insufficient privilege"), "{}", told(&report.evidence));
}

#[tokio::test]
async fn a_bmc_that_comes_back_within_the_attempt_confirms() {
    let mut bmc = Bmc::start();
    bmc.unplug();
    let plan = plan(&bmc);
    let attempt = tokio::spawn(async move { plan.off(&order()).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    bmc.plug();
    let report = attempt.await.unwrap();
    assert_eq!(report.result, confirmed(1), "{}", told(&report.evidence));
}

#[tokio::test]
async fn a_silent_bmc_is_unknown_and_says_which_address_is_silent() {
    let mut bmc = Bmc::start();
    bmc.unplug();
    let plan = plan_with(Span::from_secs(9), &[&bmc.agent()]);
    let (reading, evidence) = plan.probe(AgentSet::EMPTY).await;
    assert_eq!(reading, PowerReading::Unknown);
    assert!(told(&evidence).contains("127.0.0.1: no answer from this address"), "{}", told(&evidence));
}

#[tokio::test]
async fn the_automatic_suite_finds_what_the_bmc_knows_and_starts_with_it_next_time() {
    let bmc = Bmc::start();
    let plan = plan_with(LIMIT, &[&IpmiAgent { cipher_suite: None, ..bmc.agent() }]);
    let (reading, evidence) = plan.probe(AgentSet::EMPTY).await;
    assert_eq!(reading, PowerReading::On);
    assert!(told(&evidence).contains("does not take this cipher suite"), "{}", told(&evidence));
    let (_, evidence) = plan.probe(AgentSet::EMPTY).await;
    assert_eq!(evidence.len(), 1, "{}", told(&evidence));
    assert!(evidence[0].sent.ends_with("(cipher suite 3)"));
}

#[tokio::test]
async fn both_supplies_of_a_machine_must_read_off() {
    let (first, second) = (Bmc::start(), Bmc::start_with("true", "true"));
    let both = plan_with(Span::from_secs(3), &[&first.agent(), &second.agent()]);
    let report = both.off(&order()).await;
    assert_eq!((report.result, first.is_on()), (FenceResult::Unknown, false), "{}", told(&report.evidence));
    second.set_power(false);
    assert_eq!(both.off(&order()).await.result, confirmed(0b11));
    assert_eq!(both.probe(AgentSet::EMPTY).await.0, PowerReading::Off { verified_by: AgentSet(0b11) });
    assert_eq!(both.probe(AgentSet(1)).await.0, PowerReading::Unknown);
}

#[tokio::test]
async fn a_fenced_machine_is_switched_on_again_and_read_on() {
    let bmc = Bmc::start();
    bmc.set_power(false);
    assert_eq!(plan(&bmc).power_on(Token(4)).await.0, Outcome::Confirmed);
    assert!(bmc.is_on());
}

#[tokio::test]
async fn the_password_is_nowhere_in_argv_or_environment_while_ipmitool_runs() {
    let bmc = Bmc::start_with("sleep 1; echo 0 > power", "true");
    let plan = plan(&bmc);
    let attempt = tokio::spawn(async move { plan.off(&order()).await });
    let mut sampled = 0;
    while !attempt.is_finished() {
        sampled += tokio::task::spawn_blocking(look_for_the_password).await.unwrap();
    }
    assert_eq!(attempt.await.unwrap().result, confirmed(1));
    assert!(sampled > 0, "ipmitool was never seen");
}

/// The number of ipmitool processes seen.
fn look_for_the_password() -> usize {
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let of = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let (argv, environment) = (of("cmdline"), of("environ"));
        if argv.starts_with(b"/usr/bin/ipmitool\0") {
            seen += 1;
            let text = String::from_utf8_lossy(&[argv, environment].concat()).into_owned();
            assert!(!text.contains(PASSWORD), "{text:?}");
        }
    }
    seen
}
