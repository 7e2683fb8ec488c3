//! The real `fence_redfish` through `kind = "fence-agent"`, against a real Redfish service over TLS whose machines are
//! processes (casebook C07, C34).

#[path = "redfish/certs.rs"]
mod certs;
#[allow(dead_code)]
#[path = "redfish/emulator.rs"]
mod emulator;
#[path = "common/need.rs"]
mod need;
#[path = "program/stand_in.rs"]
mod stand_in;

use std::path::Path;

use certs::Certs;
use emulator::{Emulator, MAIN, USER, WITNESS, python};
use leasehold::core::{AgentSet, FenceResult, PowerReading, Scope, Span};
use leasehold::fence::{Agent, Attempt, FenceAgent, Reading};
use stand_in::{CONFIRMED, LONG, MARKER, agent, order, plan, secret_file, setup, told};

const SHORT: Span = Span::from_secs(6);

fn available(test: &str) -> bool {
    let venv = need::file(&python().display().to_string());
    need::all(test, &[venv, need::program("openssl"), need::program("fence_redfish")])
}

/// `more` stands beside address, port, user and password.
fn redfish(port: u16, secret: &Path, limit: Span, more: &[(&str, &str)]) -> Result<FenceAgent, String> {
    let port = port.to_string();
    let options = [&[("ip", "127.0.0.1"), ("ipport", port.as_str()), ("username", USER)], more].concat();
    let config = agent(Path::new("/usr/sbin/fence_redfish"), &options, &[("password", secret)]);
    FenceAgent::new(setup(Scope::Node, limit), &config).map_err(|error| error.to_string())
}

fn system(uuid: &str) -> String {
    format!("/redfish/v1/Systems/{uuid}")
}

#[tokio::test]
async fn fence_redfish_fences_the_named_system_and_leaves_the_other_alone() {
    if !available("fence_redfish_fences_the_named_system_and_leaves_the_other_alone") {
        return;
    }
    let certs = Certs::make();
    let bmc = Emulator::start(&certs, MARKER, &[("Reef-Witness", WITNESS), ("Reef-Main", MAIN)]);
    let (_dir, secret) = secret_file(MARKER.as_bytes());
    let unnamed = redfish(bmc.port, &secret, LONG, &[("ssl_insecure", "1")]).unwrap_err();
    assert!(unnamed.contains("the option `systems_uri` of fence_redfish is missing"), "{unnamed}");
    let named = [("ssl_insecure", "1"), ("systems_uri", &*system(MAIN)), ("power_wait", "0")];
    let agent = redfish(bmc.port, &secret, LONG, &named).unwrap();
    let health = agent.prove(&Attempt::new("agent", String::new)).await;
    assert!(health.is_good() && health.reading == Reading::On, "{health:?}");
    let plan = plan(agent, LONG);
    let report = plan.off(&order()).await;
    assert_eq!(report.result, CONFIRMED, "{}", told(&report.evidence));
    assert!(!bmc.runs("Reef-Main") && bmc.runs("Reef-Witness"));
    assert!(!told(&report.evidence).contains(MARKER));
    assert_eq!(plan.probe(AgentSet::EMPTY).await.0, PowerReading::Off { verified_by: AgentSet(1) });
}

#[tokio::test]
async fn fence_redfish_believes_no_certificate_that_nobody_vouches_for_and_no_wrong_password_proves_anything() {
    let test = "fence_redfish_believes_no_certificate_that_nobody_vouches_for_and_no_wrong_password_proves_anything";
    if !available(test) {
        return;
    }
    let certs = Certs::make();
    let bmc = Emulator::start(&certs, MARKER, &[("Reef-Main", MAIN)]);
    let uri = system(MAIN);
    let (_dir, secret) = secret_file(MARKER.as_bytes());
    let (_other, wrong) = secret_file(b"wr0ng-secret");
    for (secret, more, words) in [
        (&secret, &[("systems_uri", uri.as_str())][..], "certificate verify failed"),
        (&wrong, &[("systems_uri", uri.as_str()), ("ssl_insecure", "1")], "exit 1"),
    ] {
        let plan = plan(redfish(bmc.port, secret, SHORT, more).unwrap(), SHORT);
        let report = plan.off(&order()).await;
        let told = told(&report.evidence);
        assert_eq!((report.result, bmc.runs("Reef-Main")), (FenceResult::Unknown, true), "{told}");
        assert!(told.contains(words) && !told.contains("wr0ng") && !told.contains(MARKER), "{told}");
    }
}
