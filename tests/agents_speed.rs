//! How long it takes from the decision to a verified off on a real BMC simulator, by this agent and by `fence_ipmilan`
//! as it is usually called, in the same run on the same simulator. Prints the ratio.

mod common;
#[path = "common/need.rs"]
mod need;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::ipmi::{Bmc, PASSWORD, USER};
use leasehold::config::IpmiAgent;
use leasehold::core::{AgentSet, FenceResult, Scope, Span, SystemUuid, Token};
use leasehold::fence::{Entry, FencePlan, Ipmi, Order};

const LIMIT: Span = Span::from_secs(40);
/// Enough for a median.
const ROUNDS: usize = 3;
/// The simulator's own GUID: the identity is compared, as it would be.
const GUID: SystemUuid =
    SystemUuid([0xb1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xa1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);

#[tokio::test]
async fn an_off_is_verified_in_a_fraction_of_the_time_that_fence_ipmilan_takes() {
    let test = "an_off_is_verified_in_a_fraction_of_the_time_that_fence_ipmilan_takes";
    if !need::all(test, &["ipmi_sim", "ipmitool", "fence_ipmilan"].map(need::program)) {
        return;
    }
    let bmc = Bmc::start();
    let plan = plan(&bmc);
    // The suite is known from the last probe, as it is when a node fails.
    plan.probe(AgentSet::EMPTY).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bmc.set_power(true);
        ours.push(by_this_agent(&plan).await);
        bmc.set_power(true);
        theirs.push(by_fence_ipmilan(&bmc));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let notice = format!(
        "decision to verified off: {} ms, fence_ipmilan: {} ms, ratio {ratio:.2}",
        ours.as_millis(),
        theirs.as_millis()
    );
    // The test harness swallows what passes through `println!`; this goes past it.
    writeln!(std::io::stderr(), "\n{notice}").unwrap();
    assert!(ratio < 1.0, "{notice}");
}

/// With the settings that a file without them would have.
fn plan(bmc: &Bmc) -> FencePlan {
    let config = IpmiAgent { cipher_suite: None, stable_reads: 2, poll: Span::from_ms(200), ..bmc.agent() };
    let agent = Arc::new(Ipmi::new("bmc", Scope::Node, LIMIT, &config).unwrap());
    let entry = Entry { index: 0, name: "bmc".to_owned(), level: 1, limit: LIMIT.into(), agent };
    let plan = FencePlan::of(vec![entry], Vec::new());
    plan.identities().learn(1, GUID);
    plan
}

async fn by_this_agent(plan: &FencePlan) -> Duration {
    let order = Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: LIMIT.into() };
    let started = Instant::now();
    let report = plan.off(&order).await;
    let took = started.elapsed();
    assert!(matches!(report.result, FenceResult::Confirmed { .. }), "{report:?}");
    took
}

/// Its defaults, but for the suite, without which it needs 44 seconds for this.
fn by_fence_ipmilan(bmc: &Bmc) -> Duration {
    let lines = format!(
        "action=off\nip=127.0.0.1\nipport={}\nusername={USER}\npassword={PASSWORD}\nlanplus=1\ncipher=3\n",
        bmc.port()
    );
    let started = Instant::now();
    let mut agent = Command::new("fence_ipmilan");
    agent.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut agent = agent.spawn().unwrap();
    agent.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let status = agent.wait().unwrap();
    let took = started.elapsed();
    assert!(status.success() && !bmc.is_on());
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
