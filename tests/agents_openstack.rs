//! `openstack-power` and `openstack-volume` against a Keystone, a Nova and a Cinder that behave, and that do not
//! (casebook C01: a 409 is judged by reading).

#[path = "common/need.rs"]
mod need;
#[path = "common/openstack/mod.rs"]
mod openstack;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::config::{self, AgentKind};
use leasehold::core::{AgentSet, FenceResult, PowerReading, Scope, Span, SystemUuid, Token};
use leasehold::fence::conformance::{Clause, Kept, Kit, Touch};
use leasehold::fence::{
    Agent, Attempt, Entry, FencePlan, Health, OpenstackPower, OpenstackVolume, Order, Outcome, Reading, Report, Secret,
    Setup,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use openstack::{Cloud, OTHER, Quirk, SECRET, SERVER, Step, VOLUME};

/// Of one attempt in the table. A whole one against the fake takes some 50 ms.
const LIMIT: Duration = Duration::from_millis(2000);
/// Far beyond the limit: only a hang gets there.
const HANGS: Duration = Duration::from_secs(20);

/// The UUID of the server.
const UUID: SystemUuid =
    SystemUuid([0x8f, 0x9f, 0x1d, 0x5a, 0x4a, 0x2c, 0x4b, 0x53, 0x9d, 0x3c, 0x0d, 0x1a, 0x2b, 0x3c, 0x4d, 0x5e]);

/// An agent of this kind, made as the daemon makes it: from the text of a configuration.
struct Device {
    agent: Arc<dyn Agent>,
    /// Holds the secret.
    _directory: tempfile::TempDir,
}

impl Device {
    fn new(kind: &str, cloud: &Cloud, more: &str) -> Device {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        fs::write(&secret, format!("{SECRET}\n")).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let text = configuration(kind, cloud, &secret, more);
        let checked = config::parse("leasehold.toml", &text).unwrap_or_else(|wrong| panic!("{wrong}"));
        let configured = &checked.config.fence.agents[0];
        let setup = Setup {
            name: &configured.name,
            scope: configured.scope,
            limit: Span::from(LIMIT),
            target: "heron",
            caller: "plover",
            me: leasehold::core::NodeId::Second,
        };
        let agent: Arc<dyn Agent> = match &configured.kind {
            AgentKind::OpenstackPower(power) => Arc::new(OpenstackPower::new(setup, power).unwrap()),
            AgentKind::OpenstackVolume(volume) => Arc::new(OpenstackVolume::new(setup, volume).unwrap()),
            other => panic!("{} is another kind", other.word()),
        };
        Device { agent, _directory: directory }
    }

    fn plan(&self, uuid: Option<SystemUuid>) -> FencePlan {
        let entry = Entry { index: 0, name: "cloud".to_owned(), level: 1, limit: LIMIT, agent: self.agent.clone() };
        let plan = FencePlan::of(vec![entry], Vec::new());
        if let Some(uuid) = uuid {
            plan.identities().learn(1, uuid);
        }
        plan
    }

    async fn off(&self) -> Report {
        self.plan(Some(UUID)).off(&order()).await
    }

    async fn prove(&self, uuid: Option<SystemUuid>) -> (Health, String) {
        let attempt = Attempt::new("cloud", String::new).expecting(uuid);
        let health = self.agent.prove(&attempt).await;
        let evidence: String = attempt.evidence().iter().map(|e| format!("{} -> {}\n", e.sent, e.read)).collect();
        let told = format!("{health:?}\n{evidence}");
        assert!(!told.contains("M4RK"), "a secret: {told}");
        (health, told)
    }
}

/// Two nodes, whose agents are alike but for the server.
fn configuration(kind: &str, cloud: &Cloud, secret: &Path, more: &str) -> String {
    let volume = if kind == "openstack-volume" { format!("volume = \"{VOLUME}\"\n") } else { String::new() };
    let shutdown = if kind == "openstack-power" { "guest_shutdown = \"5s\"\n" } else { "" };
    let plain = if cloud.url().starts_with("http:") { "plaintext = true\n" } else { "" };
    let agent = |target: &str, server: &str| {
        format!(
            "[[fence.agent]]\nname = \"cloud-{target}\"\ntarget = \"{target}\"\nkind = \"{kind}\"\n\
             auth_url = \"{}\"\napplication_credential_id = \"cred-1\"\n\
             application_credential_secret_file = \"{}\"\nserver = \"{server}\"\npoll = \"20ms\"\n\
             {volume}{shutdown}{plain}{more}\n",
            cloud.url(),
            secret.display()
        )
    };
    format!(
        "[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\nlone_primary = \"stop\"\n\
         [[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n\
         [[link]]\nname = \"lan\"\naddresses = {{ heron = \"192.0.2.1\", plover = \"192.0.2.2\" }}\n\
         [[link]]\nname = \"direct\"\naddresses = {{ heron = \"198.51.100.1\", plover = \"198.51.100.2\" }}\n\
         [guard]\nwatchdog = \"auto\"\n\
         {}{}[[resource]]\nname = \"gauges\"\nkind = \"exec\"\nstart = [\"/usr/local/bin/gauges\"]\n",
        agent("heron", SERVER),
        agent("plover", OTHER)
    )
}

fn order() -> Order {
    Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(60) }
}

fn told(report: &Report) -> String {
    report.evidence.iter().map(|e| format!("{} -> {} ({}x)\n", e.sent, e.read, e.times)).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Confirmed,
    Refused,
    Unknown,
}

impl Right {
    fn of(result: FenceResult) -> Right {
        match result {
            FenceResult::Confirmed { .. } => Right::Confirmed,
            FenceResult::Refused { .. } => Right::Refused,
            FenceResult::Unknown => Right::Unknown,
        }
    }
}

/// The cloud's fault, the right result, whether it may use up its limit, how many commands at most, what the evidence says.
type Row = (Quirk, Right, Time, usize, &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    /// Ends by itself.
    Own,
    /// Ends with the limit of the agent, not later.
    Limit,
}

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Both kinds alike. Each row runs twice, once a kind.
fn table() -> Vec<Row> {
    use Quirk::*;
    use Right::{Confirmed, Refused, Unknown};
    use Time::{Limit, Own};
    vec![
        (None, Confirmed, Own, 1, "202"),
        (StaysAsItIs, Unknown, Limit, 1, "202"),
        (Takes(MS(500)), Confirmed, Own, 1, "ing"),
        (Takes(MS(60_000)), Unknown, Limit, 1, "ing"),
        (FlipsBack, Unknown, Limit, 2, "202"),
        (HandWasFaster, Confirmed, Own, 1, "409 conflictingRequest: Cannot 'stop'"),
        (Locked, Refused, Own, 3, "is locked"),
        (Forbidden, Refused, Own, 3, "403 forbidden: Policy doesn't allow"),
        (AccessRule, Refused, Own, 3, "401 error: The request you have made requires authentication."),
        (Busy(MS(400)), Confirmed, Own, 100, "202"),
        (WrongSecret, Unknown, Limit, 0, "Keystone refuses the application credential (wrong, expired or deleted)"),
        (FirstTokenLasts(0), Confirmed, Own, 1, "logging in again"),
        (FirstTokenLasts(1), Confirmed, Own, 1, "401 error: The request you have made requires authentication."),
        (FirstTokenLasts(2), Confirmed, Own, 1, "logging in again"),
        (NoTokenTaken, Unknown, Limit, 0, "requires authentication"),
        (AnswersAnother, Unknown, Limit, 0, "the answer is about another"),
        (Later(Step::Login, 1), Confirmed, Own, 1, "429"),
        (Later(Step::Read, 2), Confirmed, Own, 1, "429 overLimit: This request was rate-limited.; waiting 0ns"),
        (Later(Step::Command, 2), Confirmed, Own, 3, "429 overLimit"),
        (Unavailable(Step::Login), Unknown, Limit, 0, "503"),
        (Unavailable(Step::Read), Unknown, Limit, 0, "503"),
        (Unavailable(Step::Command), Unknown, Limit, 3, "503"),
        (Hangs(Step::Login), Unknown, Limit, 0, "connected, but no whole answer in time"),
        (Hangs(Step::Read), Unknown, Limit, 0, "connected, but no whole answer in time"),
        (Hangs(Step::Command), Unknown, Limit, 0, "connected, but no whole answer in time"),
        (Half(Step::Login), Unknown, Limit, 0, "no whole answer in time"),
        (Half(Step::Read), Unknown, Limit, 0, "no whole answer in time"),
        (Half(Step::Command), Unknown, Limit, 0, "no whole answer in time"),
        (Dies(Step::Login), Unknown, Limit, 0, "the answer broke off"),
        (Dies(Step::Read), Unknown, Limit, 0, "the answer broke off"),
        (Dies(Step::Command), Unknown, Limit, 0, "the answer broke off"),
        (Endless(Step::Login), Unknown, Limit, 0, "the answer is longer than 1048576 bytes"),
        (Endless(Step::Read), Unknown, Limit, 0, "the answer is longer than 1048576 bytes"),
        (Endless(Step::Command), Unknown, Limit, 0, "the answer is longer than 1048576 bytes"),
        (Garbage(Step::Login), Unknown, Limit, 0, "201, but no token"),
        (Garbage(Step::Read), Unknown, Limit, 0, "can be read"),
        (Slow(MS(100)), Confirmed, Own, 1, "202"),
        (EchoesSecrets(Step::Login), Unknown, Limit, 0, "<secret>"),
        (EchoesSecrets(Step::Read), Unknown, Limit, 0, "<secret>"),
        (EchoesSecrets(Step::Command), Unknown, Limit, 0, "<secret>"),
    ]
}

/// Runs one row; the text tells what was wrong.
async fn row(kind: &'static str, (quirk, right, time, commands, words): Row) -> Result<(), String> {
    let cloud = Cloud::start(quirk);
    let device = Device::new(kind, &cloud, "");
    let begun = Instant::now();
    let report = device.off().await;
    let (took, evidence, given) = (begun.elapsed(), told(&report), cloud.world().commands.len());
    let mut wrong = Vec::new();
    if Right::of(report.result) != right {
        wrong.push(format!("{:?}, not {right:?}", report.result));
    }
    if took > HANGS || (time == Time::Own && evidence.contains("given up after its limit")) {
        wrong.push(format!("took {took:?}"));
    }
    if given > commands {
        wrong.push(format!("{given} commands, at most {commands} are right"));
    }
    if !evidence.contains(words) || evidence.contains("M4RK") {
        wrong.push(format!("must say {words:?}, and no secret"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{kind} {quirk:?}: {}\n{evidence}", wrong.join("; "))) }
}

#[tokio::test]
async fn every_misbehaving_cloud_has_its_right_result_in_its_time() {
    let mut rows = tokio::task::JoinSet::new();
    for kind in ["openstack-power", "openstack-volume"] {
        for line in table() {
            rows.spawn(row(kind, line));
        }
    }
    let wrong: Vec<String> = rows.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn off_already_is_confirmed_without_a_command() {
    for kind in ["openstack-power", "openstack-volume"] {
        let cloud = Cloud::start(Quirk::None);
        cloud.world().switch_off();
        let report = Device::new(kind, &cloud, "").off().await;
        assert_eq!(Right::of(report.result), Right::Confirmed, "{}", told(&report));
        assert_eq!(cloud.world().commands.len(), 0);
    }
}

#[tokio::test]
async fn a_server_of_another_uuid_is_read_and_never_touched() {
    for kind in ["openstack-power", "openstack-volume"] {
        let cloud = Cloud::start(Quirk::None);
        let device = Device::new(kind, &cloud, "");
        let plan = device.plan(Some(SystemUuid([7; 16])));
        let report = plan.off(&order()).await;
        assert_eq!(report.result, FenceResult::Refused { highest: None }, "{}", told(&report));
        assert!(told(&report).contains("is another machine"), "{}", told(&report));
        // Off of another machine proves nothing.
        cloud.world().switch_off();
        assert_eq!(plan.probe(AgentSet::EMPTY).await.0, PowerReading::Unknown);
        let (health, _) = device.prove(Some(SystemUuid([7; 16]))).await;
        assert!(health.faults.iter().any(|f| f.contains("is another machine")), "{health:?}");
        assert_eq!(cloud.world().commands, Vec::<String>::new());
    }
}

#[tokio::test]
async fn off_and_on_again_are_commands_of_nova_and_readings_of_the_owner() {
    let (stop, start) = ("os-stop", "os-start");
    let attachments = format!("{SERVER}/os-volume_attachments");
    let attach =
        format!("POST {attachments} {{\"volumeAttachment\":{{\"device\":\"/dev/vdc\",\"volumeId\":\"{VOLUME}\"}}}}");
    for (kind, more, off, on) in [
        (
            "openstack-power",
            "",
            format!("POST {SERVER}/action {{\"{stop}\":null}}"),
            format!("POST {SERVER}/action {{\"{start}\":null}}"),
        ),
        ("openstack-volume", "device = \"/dev/vdc\"", format!("DELETE {attachments}/{VOLUME} "), attach),
    ] {
        let cloud = Cloud::start(Quirk::None);
        let device = Device::new(kind, &cloud, more);
        assert_eq!(Right::of(device.off().await.result), Right::Confirmed);
        let attempt = Attempt::new("cloud", String::new).expecting(Some(UUID));
        assert_eq!(device.agent.status(&attempt).await, Reading::Off);
        assert_eq!(device.agent.on(Token(4), &attempt).await, Outcome::Confirmed);
        assert_eq!(device.agent.status(&attempt).await, Reading::On);
        assert_eq!(cloud.world().commands, [off, on]);
        assert_eq!(cloud.world().logins, 1, "one token serves for all of it");
    }
}

#[tokio::test]
async fn a_volume_that_another_server_has_is_off_here_and_cannot_be_attached() {
    let cloud = Cloud::start(Quirk::None);
    cloud.world().attached = vec![OTHER];
    let device = Device::new("openstack-volume", &cloud, "");
    assert_eq!(Right::of(device.off().await.result), Right::Confirmed);
    let attempt = Attempt::new("cloud", String::new).expecting(Some(UUID));
    let on = tokio::time::timeout(HANGS, device.agent.on(Token(4), &attempt)).await.expect("it gives up by itself");
    assert_ne!(on, Outcome::Confirmed);
    let evidence = format!("{:?}", attempt.evidence());
    assert!(evidence.contains("Invalid volume: volume status must be available"), "{evidence}");
}

#[tokio::test]
async fn a_token_is_renewed_at_half_its_life_and_the_old_one_used_if_keystone_is_away() {
    let cloud = Cloud::start(Quirk::None);
    cloud.world().life = Duration::ZERO;
    let device = Device::new("openstack-power", &cloud, "");
    let attempt = Attempt::new("cloud", String::new);
    for logins in 1..=3 {
        assert_eq!(device.agent.status(&attempt).await, Reading::On);
        assert_eq!(cloud.world().logins, logins, "each is stale at once");
    }
    cloud.world().quirk = Quirk::Unavailable(Step::Login);
    assert_eq!(device.agent.status(&attempt).await, Reading::On, "{:?}", attempt.evidence());
    cloud.world().life = Duration::from_secs(3600);
    cloud.world().quirk = Quirk::None;
    for _ in 0..3 {
        assert_eq!(device.agent.status(&attempt).await, Reading::On);
    }
    assert_eq!(cloud.world().logins, 4);
}

#[tokio::test]
async fn a_proof_says_all_that_would_keep_it_from_fencing() {
    let gone = "or this credential is for another project";
    for (quirk, words) in [
        (Quirk::WrongSecret, "Keystone refuses the application credential"),
        (Quirk::Gone, gone),
        (Quirk::Locked, "openstack server unlock"),
        (Quirk::ReaderOnly, "it cannot stop, detach or attach"),
        (Quirk::NoComputeInCatalog, "the catalog has no service of type compute"),
        (Quirk::TwoRegions, "set `region` to one of north, south"),
        (Quirk::AnswersAnother, "the answer is about another"),
        (Quirk::Hangs(Step::Login), "no whole answer in time"),
    ] {
        for kind in ["openstack-power", "openstack-volume"] {
            let cloud = Cloud::start(quirk);
            let (health, told) = Device::new(kind, &cloud, "").prove(Some(UUID)).await;
            assert!(health.faults.iter().any(|fault| fault.contains(words)), "{kind} {quirk:?}: {told}");
        }
    }
}

#[tokio::test]
async fn a_good_proof_names_state_identity_and_roles_and_changes_nothing() {
    for kind in ["openstack-power", "openstack-volume"] {
        let cloud = Cloud::start(Quirk::TwoRegions);
        let device = Device::new(kind, &cloud, "region = \"north\"");
        let (health, told) = device.prove(Some(UUID)).await;
        assert!(health.is_good() && health.reading == Reading::On, "{told}");
        assert!(told.contains("the server's id is the UUID") && told.contains("member"), "{told}");
        let (health, told) = device.prove(None).await;
        assert!(health.is_good() && told.contains("taken on trust"), "{told}");
        let world = cloud.world();
        assert_eq!((world.commands.len(), world.logins), (0, 1));
    }
}

#[tokio::test]
async fn endpoints_of_the_configuration_stand_in_for_those_of_the_catalog() {
    let cloud = Cloud::start(Quirk::NoComputeInCatalog);
    let more = format!("compute_endpoint = \"{}/compute/v2.1/\"", cloud.url());
    let report = Device::new("openstack-power", &cloud, &more).off().await;
    assert_eq!(report.result, FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(1) });
}

#[tokio::test]
async fn the_kit_of_fence_test_finds_no_fault_with_a_good_cloud() {
    for kind in ["openstack-power", "openstack-volume"] {
        let cloud = Cloud::start(Quirk::Takes(MS(50)));
        let device = Device::new(kind, &cloud, "");
        let kit = Kit {
            agent: &*device.agent,
            name: "cloud",
            limit: LIMIT,
            secrets: &[Secret::new(SECRET.into())],
            expected: Some(UUID),
            token: Token::NONE,
            touch: Touch::Really,
        };
        let lines = kit.run(&mut |_| {}).await;
        assert!(lines.iter().all(|line| line.kept != Kept::Wrong), "{lines:?}");
        let tried: Vec<Clause> = lines.iter().filter(|l| l.kept == Kept::Right).map(|l| l.clause).collect();
        assert!(tried.contains(&Clause::OffAgain) && tried.contains(&Clause::On), "{lines:?}");
        assert_eq!(cloud.world().commands.len(), 2, "one for off, one for on");
    }
}

/// A certificate for 127.0.0.1 that is its own issuer.
fn certificate(directory: &Path) -> Arc<ServerConfig> {
    let (key, pem) = (directory.join("key.pem"), directory.join("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=cloud", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&pem)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let certificate = CertificateDer::from_pem_file(&pem).unwrap();
    let key = PrivateKeyDer::from_pem_file(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
}

#[tokio::test]
async fn only_a_certificate_that_is_trusted_gets_the_secret() {
    if !need::all("only_a_certificate_that_is_trusted_gets_the_secret", &[need::program("openssl")]) {
        return;
    }
    let (mine, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let trusted = Cloud::start_with(Quirk::None, Some(certificate(mine.path())));
    let more = format!("ca_file = \"{}\"", mine.path().join("cert.pem").display());
    let report = Device::new("openstack-power", &trusted, &more).off().await;
    assert_eq!(Right::of(report.result), Right::Confirmed, "{}", told(&report));
    let stranger = Cloud::start_with(Quirk::None, Some(certificate(foreign.path())));
    let device = Device::new("openstack-power", &stranger, &more);
    let report = device.off().await;
    assert_eq!(report.result, FenceResult::Unknown);
    assert!(told(&report).contains("certificate refused"), "{}", told(&report));
    let (health, _) = device.prove(Some(UUID)).await;
    assert!(health.faults.iter().any(|fault| fault.contains("certificate refused")), "{health:?}");
    assert_eq!(stranger.world().logins, 0);
}

/// The sample of a page of the manual, once for each node.
fn sample(page: &str, kind: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents").join(page);
    let text = fs::read_to_string(path).expect("the page is part of the repository");
    let sample = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a sample");
    assert!(sample.contains(&format!("kind = \"{kind}\"")), "{sample}");
    let mirrored = sample.replace("heron", "plover").replace(SERVER, OTHER);
    format!("{sample}\n{mirrored}")
}

#[test]
fn the_samples_of_the_manual_are_right() {
    let cloud = "[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\nlone_primary = \"stop\"\n\
         [[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n\
         [[link]]\nname = \"lan\"\naddresses = { heron = \"192.0.2.1\", plover = \"192.0.2.2\" }\n\
         [[link]]\nname = \"direct\"\naddresses = { heron = \"198.51.100.1\", plover = \"198.51.100.2\" }\n\
         [guard]\nwatchdog = \"auto\"\n[[resource]]\nname = \"gauges\"\nkind = \"exec\"\nstart = [\"/bin/gauges\"]\n";
    for kind in ["openstack-power", "openstack-volume"] {
        let text = format!("{cloud}{}", sample(&format!("{kind}.md"), kind));
        let checked = config::parse("sample", &text).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(checked.config.fence.agents.len(), 2);
    }
}
