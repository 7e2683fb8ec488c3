//! HTTPS: which certificates are believed, and the whole way to a real service.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::config::{RedfishAgent, Trust};
use leasehold::core::Span;
use leasehold::fence::{Agent, Attempt, Outcome, Reading};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certs::Certs;
use super::emulator::{self, Emulator};
use super::fake::{Fake, machine};
use super::{LIMIT, MAIN, PASSWORD, agent_with, attempt, need, off, settings, told, uuid};

/// Shows a certificate with a key that need not be its own: what a thief of the certificate alone can do.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

fn server(certs: &Certs, certificate: &str, key: &str) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let key = provider.key_provider.load_private_key(certs.key(key)).unwrap();
    let shown = Arc::new(CertifiedKey::new(vec![certs.der(certificate)], key));
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config.with_no_client_auth().with_cert_resolver(Arc::new(Shows(shown)))
}

/// What an off says of a server with this certificate and key, to a client with this trust.
async fn told_of(certs: &Certs, certificate: &str, key: &str, trust: Trust) -> (Outcome, String) {
    let fake = Fake::tls(server(certs, certificate, key), vec![machine("Main", MAIN)], PASSWORD);
    let refused = certificate != "leaf" || key != "leaf";
    let limit = if refused { Duration::from_secs(2) } else { LIMIT };
    let agent = agent_with(settings(&fake.url(), Some("Main"), trust), PASSWORD.as_bytes(), limit);
    let attempt = attempt();
    let begun = Instant::now();
    let outcome = match agent.status(&attempt).await {
        Reading::Unknown => Outcome::Unknown,
        Reading::On | Reading::Off => off(&agent, limit, &attempt).await,
    };
    assert!(begun.elapsed() < LIMIT, "{certificate}");
    assert!(outcome == Outcome::Confirmed || fake.world().log.is_empty(), "something was sent: {certificate}");
    (outcome, told(&attempt))
}

#[tokio::test]
async fn a_certificate_is_believed_by_its_authority_or_by_its_digest_and_by_nothing_else() {
    let test = "a_certificate_is_believed_by_its_authority_or_by_its_digest_and_by_nothing_else";
    // What Trust::System reads.
    let store = need::file("/etc/ssl/certs/ca-certificates.crt");
    if !need::all(test, &[need::program("openssl"), store]) {
        return;
    }
    let certs = Certs::make();
    let ca = |name: &str| Trust::CaFile(certs.pem(name));
    let pin = |name: &str| Trust::PinSha256(certs.pin(name));
    for (certificate, trust) in
        [("leaf", ca("ca")), ("leaf", pin("leaf")), ("selfmade", pin("selfmade")), ("over", pin("over"))]
    {
        let (outcome, told) = told_of(&certs, certificate, certificate, trust).await;
        assert_eq!(outcome, Outcome::Confirmed, "{certificate}: {told}");
    }
    let shown = certs.pin("leaf").map(|b| format!("{b:02X}")).join(":");
    for (certificate, key, trust, words) in [
        ("leaf", "leaf", ca("stranger"), "its issuer is not trusted"),
        ("leaf", "leaf", Trust::System, "its issuer is not trusted"),
        ("elsewhere", "elsewhere", ca("ca"), "it is for another name"),
        ("over", "over", ca("ca"), "it has expired"),
        ("selfmade", "selfmade", ca("selfmade"), "certificate refused"),
        ("leaf", "leaf", pin("ca"), "not the one that `tls_pin_sha256` names"),
        ("leaf", "ca", pin("leaf"), "does not hold the key"),
    ] {
        let (outcome, told) = told_of(&certs, certificate, key, trust).await;
        assert_eq!(outcome, Outcome::Unknown, "{certificate}: {told}");
        assert!(told.contains(words), "{certificate}: {words}: {told}");
        let digest = key != "leaf" || certificate != "leaf" || told.contains(&shown);
        assert!(digest, "the digest that was shown is missing: {told}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_or_nothing_at_all_is_named_as_such() {
    let plain = Fake::plain(vec![machine("Main", MAIN)], PASSWORD, super::pass());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap().port();
    let ports = [
        (plain.port, "no TLS session"),
        (silent.local_addr().unwrap().port(), "no answer from this address"),
        (closed, "refused"),
    ];
    for (port, words) in ports {
        let config = settings(&format!("https://127.0.0.1:{port}"), Some("Main"), Trust::PinSha256([7; 32]));
        let (limit, attempt) = (Duration::from_millis(800), attempt());
        let outcome = off(&agent_with(config, PASSWORD.as_bytes(), limit), limit, &attempt).await;
        assert_eq!(outcome, Outcome::Unknown);
        assert!(told(&attempt).contains(words), "{words}: {}", told(&attempt));
    }
    assert!(plain.world().log.is_empty());
}

#[test]
fn a_ca_file_that_cannot_be_used_is_found_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (none, empty) = (dir.path().join("none.pem"), dir.path().join("empty.pem"));
    std::fs::write(&empty, "nothing").unwrap();
    for (file, words) in [(none, "No such file"), (empty, "no certificate in it")] {
        let config = settings("https://127.0.0.1:1", None, Trust::CaFile(file.clone()));
        let error = super::make(config, PASSWORD.as_bytes(), LIMIT).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(&file.display().to_string()), "{error}");
    }
}

fn against(emulator: &Emulator, system: &str, trust: Trust) -> RedfishAgent {
    let user = emulator::USER.to_owned();
    RedfishAgent { user, poll: Span::from_ms(100), ..settings(&emulator.url(), Some(system), trust) }
}

#[tokio::test]
async fn a_real_service_switches_a_real_machine_off_and_on_over_tls() {
    let test = "a_real_service_switches_a_real_machine_off_and_on_over_tls";
    let venv = emulator::python();
    if !need::all(test, &[need::program("openssl"), need::file(&venv.display().to_string())]) {
        return;
    }
    let certs = Certs::make();
    let password = "größe \"7\"";
    let emulator = Emulator::start(&certs, password, &[("reef", emulator::WITNESS), ("heron", emulator::MAIN)]);
    let attempt = || Attempt::new("bmc", String::new).expecting(Some(uuid(emulator::MAIN)));
    for trust in [Trust::CaFile(certs.pem("ca")), Trust::PinSha256(certs.pin("leaf"))] {
        let agent = agent_with(against(&emulator, emulator::MAIN, trust), password.as_bytes(), LIMIT);
        let looked = attempt();
        let health = agent.prove(&looked).await;
        assert!(health.is_good() && health.reading == Reading::On, "{health:?}\n{}", told(&looked));
        let shot = attempt();
        let outcome = off(&agent, LIMIT, &shot).await;
        assert_eq!((outcome, emulator.runs("heron")), (Outcome::Confirmed, false), "{}", told(&shot));
        assert!(emulator.runs("reef"), "the wrong machine was shot");
        let raised = attempt();
        let outcome = agent.on(leasehold::core::Token(5), &raised).await;
        assert_eq!((outcome, emulator.runs("heron")), (Outcome::Confirmed, true), "{}", told(&raised));
    }
}

#[tokio::test]
async fn a_real_service_refuses_a_wrong_password_and_a_foreign_machine_is_not_touched() {
    let test = "a_real_service_refuses_a_wrong_password_and_a_foreign_machine_is_not_touched";
    let venv = emulator::python();
    if !need::all(test, &[need::program("openssl"), need::file(&venv.display().to_string())]) {
        return;
    }
    let certs = Certs::make();
    let emulator = Emulator::start(&certs, PASSWORD, &[("reef", emulator::WITNESS), ("heron", emulator::MAIN)]);
    let attempt = || Attempt::new("bmc", String::new).expecting(Some(uuid(emulator::MAIN)));
    let trust = || Trust::CaFile(certs.pem("ca"));

    let wrong = agent_with(against(&emulator, emulator::MAIN, trust()), b"another", LIMIT);
    let shot = attempt();
    assert_eq!(off(&wrong, LIMIT, &shot).await, Outcome::Unknown);
    assert!(told(&shot).contains("refuse"), "{}", told(&shot));

    let foreign = agent_with(against(&emulator, emulator::WITNESS, trust()), PASSWORD.as_bytes(), LIMIT);
    let shot = attempt();
    assert_eq!(off(&foreign, LIMIT, &shot).await, Outcome::Refused { highest: None }, "{}", told(&shot));

    let unnamed = RedfishAgent { system: None, ..against(&emulator, "", trust()) };
    let health = agent_with(unnamed, PASSWORD.as_bytes(), LIMIT).prove(&attempt()).await;
    let fault = health.faults.join("\n");
    assert!(fault.contains(emulator::MAIN) && fault.contains(emulator::WITNESS), "{fault}");
    assert!(emulator.runs("reef") && emulator.runs("heron"));
}
