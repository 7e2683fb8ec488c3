//! The Redfish agent against a real service over TLS, and against one that misbehaves (casebook C05, C07, C10, C11, C34).

#[path = "redfish/certs.rs"]
mod certs;
#[path = "redfish/conformance.rs"]
mod conformance;
#[path = "redfish/emulator.rs"]
mod emulator;
#[path = "redfish/fake.rs"]
mod fake;
#[path = "common/need.rs"]
mod need;
#[path = "redfish/sessions.rs"]
mod sessions;
#[path = "redfish/tls.rs"]
mod tls;

use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use fake::{Act, Fake, Machine, Script, machine};
use leasehold::config::{IdentityCheck, Login, RedfishAgent, SecretSource, SystemName, Trust};
use leasehold::core::{Scope, Span, SystemUuid, Token};
use leasehold::fence::{Agent, Attempt, FenceError, Health, Outcome, Redfish, Setup};

const PASSWORD: &str = "s3cret-M4RK";
/// Long enough for a loaded machine; a test that passes ends long before.
const LIMIT: Duration = Duration::from_secs(20);
const MAIN: &str = "00112233-4455-6677-8899-aabbccddeeb2";
const WITNESS: &str = "00112233-4455-6677-8899-aabbccddeea1";

fn uuid(text: &str) -> SystemUuid {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    SystemUuid(bytes.try_into().expect("32 digits"))
}

/// Settings for a service at this URL, with readings close together.
fn settings(url: &str, system: Option<&str>, trust: Trust) -> RedfishAgent {
    RedfishAgent {
        url: reqwest::Url::parse(url).expect("a URL"),
        system: system.map(|id| SystemName::Id(id.to_owned())),
        user: fake::USER.to_owned(),
        password: SecretSource::File("/nowhere".into()),
        login: Login::Session,
        trust,
        stable_reads: 2,
        poll: Span::from_ms(30),
        independent_power: false,
        identity: IdentityCheck::Uuid,
    }
}

fn agent_with(config: RedfishAgent, password: &[u8], limit: Duration) -> Redfish {
    make(config, password, limit).expect("a usable agent")
}

fn make(config: RedfishAgent, password: &[u8], limit: Duration) -> Result<Redfish, FenceError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let mut options = std::fs::OpenOptions::new();
    let mut opened = options.write(true).create(true).mode(0o600).open(&file).unwrap();
    std::io::Write::write_all(&mut opened, password).unwrap();
    let config = RedfishAgent { password: SecretSource::File(file), ..config };
    let setup = Setup {
        name: "bmc",
        scope: Scope::Node,
        limit: limit.into(),
        target: "heron",
        caller: "ibis",
        me: leasehold::core::NodeId::Second,
    };
    Redfish::new(setup, &config)
}

fn agent(fake: &Fake, limit: Duration) -> Redfish {
    agent_with(settings(&fake.url(), Some("Main"), Trust::Plaintext), PASSWORD.as_bytes(), limit)
}

fn attempt() -> Attempt {
    Attempt::new("bmc", String::new).expecting(Some(uuid(MAIN)))
}

/// An off as the plan makes it: dropped at its limit.
async fn off(agent: &Redfish, limit: Duration, attempt: &Attempt) -> Outcome {
    let ended = tokio::time::timeout(limit, agent.off(Token(4), attempt)).await;
    ended.unwrap_or_else(|_| attempt.verdict())
}

async fn prove(agent: &Redfish) -> (Health, String) {
    let attempt = attempt();
    let health = tokio::time::timeout(LIMIT, agent.prove(&attempt)).await.expect("a look ends by itself");
    (health, told(&attempt))
}

fn told(attempt: &Attempt) -> String {
    attempt.evidence().iter().map(|e| format!("{} -> {} (x{})\n", e.sent, e.read, e.times)).collect()
}

fn pass() -> Script {
    Box::new(|_, _| Act::Pass)
}

fn good(machines: Vec<Machine>) -> Fake {
    Fake::plain(machines, PASSWORD, pass())
}

fn two() -> Vec<Machine> {
    vec![machine("Witness", WITNESS), machine("Main", MAIN)]
}

#[tokio::test]
async fn several_systems_and_none_named_is_a_fault_that_lists_them_and_nothing_is_posted() {
    for swapped in [false, true] {
        let mut machines = two();
        if swapped {
            machines.reverse();
        }
        let fake = good(machines);
        let agent = agent_with(settings(&fake.url(), None, Trust::Plaintext), PASSWORD.as_bytes(), LIMIT);
        let (health, _) = prove(&agent).await;
        let fault = health.faults.join("\n");
        for part in ["several systems", "\"Main\"", "\"MAIN\"", MAIN, "\"Witness\"", "\"WITNESS\"", WITNESS] {
            assert!(fault.contains(part), "{part}: {fault}");
        }
        let attempt = attempt();
        assert_eq!(off(&agent, LIMIT, &attempt).await, Outcome::Unknown, "{}", told(&attempt));
        assert_eq!((fake.posts("Main"), fake.posts("Witness")), (0, 0));
    }
}

#[tokio::test]
async fn the_named_system_alone_is_switched_and_the_others_may_be_broken() {
    for swapped in [false, true] {
        let broken = Machine { before: fake::Show::Answer(503, "busy"), ..machine("Third", WITNESS) };
        let mut machines = [two(), vec![broken]].concat();
        if swapped {
            machines.reverse();
        }
        let fake = good(machines);
        let agent = agent(&fake, LIMIT);
        let (health, told_by_prove) = prove(&agent).await;
        assert!(health.is_good(), "{health:?}\n{told_by_prove}");
        assert!(health.notes.iter().any(|n| n.contains(MAIN) && n.contains("as the target told")), "{health:?}");
        let attempt = attempt();
        assert_eq!(off(&agent, LIMIT, &attempt).await, Outcome::Confirmed, "{}", told(&attempt));
        assert_eq!((fake.posts("Main"), fake.posts("Witness"), fake.posts("Third")), (1, 0, 0));
    }
}

#[tokio::test]
async fn the_only_system_is_taken_without_a_name_and_never_if_it_is_another_machine() {
    for (shown, right) in [(MAIN, true), ("33221100-5544-7766-8899-aabbccddeeb2", true), (WITNESS, false)] {
        let fake = good(vec![machine("Only", shown)]);
        let agent = agent_with(settings(&fake.url(), None, Trust::Plaintext), PASSWORD.as_bytes(), LIMIT);
        let (health, _) = prove(&agent).await;
        let attempt = attempt();
        let outcome = off(&agent, LIMIT, &attempt).await;
        if right {
            assert_eq!((health.is_good(), outcome, fake.posts("Only")), (true, Outcome::Confirmed, 1), "{shown}");
        } else {
            assert_eq!((outcome, fake.posts("Only")), (Outcome::Refused { highest: None }, 0), "{}", told(&attempt));
            assert!(health.faults.iter().any(|f| f.contains("another machine") && f.contains(WITNESS)), "{health:?}");
        }
    }
}

#[tokio::test]
async fn a_foreign_machine_that_is_off_confirms_nothing() {
    let fake = good(vec![Machine { before: fake::power("Off"), ..machine("Main", WITNESS) }]);
    let agent = agent(&fake, LIMIT);
    let attempt = attempt();
    assert_eq!(off(&agent, LIMIT, &attempt).await, Outcome::Refused { highest: None });
    assert!(told(&attempt).contains("another machine"), "{}", told(&attempt));
    assert_eq!(agent.status(&attempt).await, leasehold::fence::Reading::Unknown);
}

#[tokio::test]
async fn identity_none_switches_whatever_is_named() {
    let fake = good(vec![machine("Main", WITNESS)]);
    let config =
        RedfishAgent { identity: IdentityCheck::None, ..settings(&fake.url(), Some("Main"), Trust::Plaintext) };
    let agent = agent_with(config, PASSWORD.as_bytes(), LIMIT);
    assert!(prove(&agent).await.0.is_good());
    assert_eq!(off(&agent, LIMIT, &attempt()).await, Outcome::Confirmed);
}

#[tokio::test]
async fn on_is_verified_too() {
    let sleeping = Machine {
        before: fake::power("Off"),
        after: vec![(0, fake::power("PoweringOn")), (200, fake::power("On"))],
        types: fake::Types::Inline(&["ForceOn", "ForceOff"]),
        ..machine("Main", MAIN)
    };
    let fake = good(vec![sleeping]);
    let (agent, attempt) = (agent(&fake, LIMIT), attempt());
    let outcome = tokio::time::timeout(LIMIT, agent.on(Token(4), &attempt)).await.expect("in time");
    assert_eq!((outcome, fake.posts("Main")), (Outcome::Confirmed, 1), "{}", told(&attempt));
    assert!(told(&attempt).contains("PoweringOn") && told(&attempt).contains("ForceOn"), "{}", told(&attempt));
}

#[tokio::test]
async fn a_system_that_is_not_there_is_a_fault_that_names_those_that_are() {
    let fake = good(vec![machine("Other", WITNESS)]);
    let (health, _) = prove(&agent(&fake, LIMIT)).await;
    let fault = health.faults.join("\n");
    assert!(fault.contains("no such system") && fault.contains("/redfish/v1/Systems/Other"), "{fault}");
}

#[tokio::test]
async fn what_would_stop_a_fence_is_told_by_a_look() {
    let none = Machine { types: fake::Types::Inline(&["On", "GracefulShutdown"]), ..machine("Main", MAIN) };
    let (health, _) = prove(&agent(&good(vec![none]), LIMIT)).await;
    assert!(health.faults.iter().any(|f| f.contains("takes no ForceOff")), "{health:?}");

    let null = Machine { before: fake::Show::Power(serde_json::Value::Null), ..machine("Main", MAIN) };
    let (health, _) = prove(&agent(&good(vec![null]), LIMIT)).await;
    assert!(health.faults.iter().any(|f| f.contains("PowerState is null")), "{health:?}");

    let forbidden = Machine { before: fake::Show::Answer(403, ""), ..machine("Main", MAIN) };
    let (health, _) = prove(&agent(&good(vec![forbidden]), LIMIT)).await;
    assert!(health.faults.iter().any(|f| f.contains("not the privilege")), "{health:?}");

    let fake = good(two());
    fake.world().password = "another".to_owned();
    let (health, _) = prove(&agent(&fake, LIMIT)).await;
    assert!(health.faults.iter().any(|f| f.contains("refuses user and password")), "{health:?}");
}

#[tokio::test]
async fn every_password_that_json_and_basic_carry_arrives_byte_for_byte() {
    let passwords = [
        "012345678901234567890",
        "kelp#reef$1 'x",
        "\"barnacle\"",
        " edge ",
        "two\nlines",
        "#sandbar",
        "a=b=c",
        "größe",
    ];
    for password in passwords {
        for login in [Login::Session, Login::Basic] {
            let fake = Fake::plain(two(), password, pass());
            let config = RedfishAgent { login, ..settings(&fake.url(), Some("Main"), Trust::Plaintext) };
            let (health, told) = prove(&agent_with(config, password.as_bytes(), LIMIT)).await;
            assert!(health.is_good(), "{password:?} {login:?} {health:?}\n{told}");
            assert_eq!(fake.world().refused, 0, "{password:?} {login:?}");
        }
    }
}

#[tokio::test]
async fn no_text_shows_password_token_or_login_whatever_the_service_echoes() {
    let password = "M4RK-kelp\"77\\";
    for status in [200, 400, 401, 403, 500, 503] {
        for at in ["/Sessions", "/Main", "/ComputerSystem.Reset", "/redfish/v1/"] {
            let script: Script = Box::new(move |request, _| {
                let echo = format!("{:?} {}", request.headers, String::from_utf8_lossy(&request.body));
                if request.path.ends_with(at) { Act::Answer(status, echo) } else { Act::Pass }
            });
            let fake = Fake::plain(two(), password, script);
            let config = settings(&fake.url(), Some("Main"), Trust::Plaintext);
            let (limit, attempt) = (Duration::from_millis(700), attempt());
            let agent = agent_with(config, password.as_bytes(), limit);
            let _ = off(&agent, limit, &attempt).await;
            let health = tokio::time::timeout(limit, agent.prove(&attempt)).await;
            let all = format!("{}{health:?}{agent:?}", told(&attempt));
            let basic = base64::Engine::encode(
                &base64::engine::general_purpose::STANDARD,
                format!("{}:{password}", fake::USER),
            );
            for secret in ["M4RK", "kelp", basic.as_str()] {
                assert!(!all.contains(secret), "{status} {at}: {all}");
            }
        }
    }
}

/// The page's sample, for each node, in an otherwise complete file.
#[test]
fn the_sample_of_the_page_is_accepted() {
    let page = include_str!("../docs/agents/redfish.md");
    let sample = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a sample");
    let other = sample.replace("heron", "plover").replace("203.0.113.11", "203.0.113.12");
    let rest = include_str!("config/redfish_slow_reading.toml");
    let (head, tail) = (rest.split("[[fence.agent]]").next().unwrap(), rest.split("[[resource]]").nth(1).unwrap());
    let text = format!("{head}{sample}\n{other}\n[[resource]]{tail}");
    let checked = leasehold::config::parse("leasehold.toml", &text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let words: Vec<_> = checked.config.fence.agents.iter().map(|agent| agent.kind.word()).collect();
    assert_eq!(words, ["redfish", "redfish"]);
}
