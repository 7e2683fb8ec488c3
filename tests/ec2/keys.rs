//! As whom the agents ask: the metadata service (casebook C16), files, and that no secret leaks (C34).

use std::sync::{Arc, Mutex};

use leasehold::core::FenceResult;

use super::agents::{Ended, Kit, late};
use super::fake::{Fake, OTHER, Script, TARGET, THIRD, accepted, error, instance, target};
use super::http::{Http, Reply};
use super::imds::{Imds, State};
use super::proof::healthy;
use super::table::{DESCRIBE, POLL, STOP, WITH_END, WITHOUT_END, always};

fn with_role(fake: &Fake, imds: &Imds) -> Kit {
    Kit::power(&fake.http.url()).plaintext().role(&imds.http.url())
}

#[tokio::test]
async fn the_role_of_the_instance_is_asked_for_by_version_two_only() {
    let (fake, imds) = (Fake::start(healthy()), Imds::start(State::default()));
    let health = with_role(&fake, &imds).paced(WITH_END, POLL).build().prove().await;
    assert!(health.is_good(), "{health:?}");
    assert_eq!((imds.without_token(), imds.fetches()), (0, 1), "one fetch serves all requests");
    let signed = |a: &super::http::Asked| {
        a.header("authorization").is_some_and(|h| h.contains("Credential=ASIAFIRST/"))
            && a.header("x-amz-security-token") == Some(super::imds::SESSION)
    };
    assert!(fake.http.asked().iter().all(signed));
}

#[tokio::test]
async fn a_metadata_service_that_does_not_help_is_named_with_its_remedy() {
    let hangs = State { token: Some(Reply::Silence), ..State::default() };
    let off = State { token: Some(Reply::of(403, "")), ..State::default() };
    let old = State { token: Some(Reply::of(404, "")), ..State::default() };
    let bare = State { role: None, ..State::default() };
    let gone = State { down: true, ..State::default() };
    let cases = [
        (hangs, "--http-put-response-hop-limit 2"),
        (off, "--http-endpoint enabled"),
        (old, "404 Not Found to the token request of version 2, and no other is used"),
        (bare, "has no role (404); attach an instance profile"),
        (gone, "metadata service at 127.0.0.1"),
    ];
    let mut tasks = tokio::task::JoinSet::new();
    for (state, word) in cases {
        tasks.spawn(async move {
            let (fake, imds) = (Fake::start(healthy()), Imds::start(state));
            let agent = with_role(&fake, &imds).paced(WITHOUT_END, POLL).build();
            let (health, ended) = (agent.prove().await, agent.off().await);
            assert!(health.faults.iter().any(|fault| fault.contains(word)), "{word}: {health:?}");
            assert!(ended.result == FenceResult::Unknown && ended.told().contains(word), "{word}: {}", ended.told());
            assert_eq!((imds.without_token(), fake.http.asked().len()), (0, 0), "nothing is asked of EC2 without keys");
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn a_metadata_service_that_is_down_does_no_harm_while_the_keys_in_hand_are_good() {
    let running =
        healthy().says(STOP, [accepted(STOP)]).after(STOP, &format!("{DESCRIBE} {TARGET}"), [target("stopped")]);
    // Near their end, so that others are asked for, and still good.
    let state = State { key: ("ASIAFIRST", 300), ..State::default() };
    let (fake, imds) = (Fake::start(running), Imds::start(state));
    let agent = with_role(&fake, &imds).paced(WITH_END, POLL).build();
    assert!(agent.prove().await.is_good());
    imds.change(|state| state.down = true);
    let ended: Ended = agent.off().await;
    assert!(ended.is_confirmed(), "{}", ended.told());
}

#[tokio::test]
async fn keys_are_fetched_anew_long_before_they_end() {
    let (fake, imds) = (Fake::start(healthy()), Imds::start(State { key: ("ASIAFIRST", 90), ..State::default() }));
    let agent = with_role(&fake, &imds).paced(120_000, POLL).build();
    let health = agent.prove().await;
    assert!(health.faults.iter().any(|f| f.contains("an attempt takes up to 120s")), "{health:?}");
    // As far as this clock can tell, ten seconds and more have gone by.
    imds.change(|state| state.key = ("ASIASECOND", 6 * 3600));
    let health = agent.prove_by(soon).await;
    assert!(health.is_good(), "{health:?}");
    let last = fake.http.asked().pop().unwrap();
    assert!(last.header("authorization").unwrap().contains("Credential=ASIASECOND/"));
}

fn soon() -> String {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + 15).unwrap().to_string()
}

#[tokio::test]
async fn a_node_that_is_another_instance_than_the_file_says_is_a_fault() {
    let imds = Imds::start(State::default());
    for kit in [Kit::power, Kit::volume] {
        let fake = Fake::start(healthy().says(&format!("{DESCRIBE} {THIRD}"), [instance(THIRD, "running")]));
        let kit = kit(&fake.http.url()).plaintext().role(&imds.http.url()).paced(WITH_END, POLL);
        let named = if kit.text.contains(OTHER) {
            kit.replaced(OTHER, THIRD)
        } else {
            kit.with(&format!("other_instance = \"{THIRD}\""))
        };
        let health = named.build().prove().await;
        let word = format!("takes this node for {THIRD}, but it is {OTHER}");
        assert!(health.faults.iter().any(|fault| fault.contains(&word)), "{health:?}");
    }
}

#[tokio::test]
async fn the_instance_that_asks_is_never_its_own_target() {
    let fake = Fake::start(Script::default().says(DESCRIBE, [instance(OTHER, "running")]));
    let imds = Imds::start(State::default());
    let ended = with_role(&fake, &imds).replaced(TARGET, OTHER).paced(WITHOUT_END, POLL).build().off().await;
    assert!(
        matches!(ended.result, FenceResult::Refused { .. }) && ended.told().contains("is this node itself"),
        "{}",
        ended.told()
    );
    assert_eq!(fake.commands(), [""; 0]);
}

#[tokio::test]
async fn a_clock_that_is_seven_minutes_late_is_named() {
    let fake = Fake::start(healthy().checks_the_clock());
    let agent = Kit::power(&fake.http.url()).plaintext().static_keys().paced(WITHOUT_END, POLL).build();
    let word = "this node's clock is 7m 3s behind EC2's";
    let near = |text: &str| text.contains("this node's clock is 7m") && text.contains("behind EC2's");
    let health = agent.prove_by(late).await;
    assert!(health.faults.iter().any(|fault| near(fault)), "{word}: {health:?}");
    let ended = agent.off_by(late).await;
    assert!(ended.result == FenceResult::Unknown && near(&ended.told()), "{}", ended.told());
    assert!(agent.prove().await.is_good(), "by a right clock it works");
}

#[tokio::test]
async fn keys_come_from_a_profile_or_an_environment_file() {
    let profile = "[default]\naws_access_key_id=AKIAOTHER\naws_secret_access_key=x\n\
                   [fence]\naws_access_key_id=AKIAFENCE\naws_secret_access_key=M4RK-a\n";
    let environment = "AWS_ACCESS_KEY_ID=AKIAFENCE\nAWS_SECRET_ACCESS_KEY=\"M4RK-b\"\n";
    let kits: [fn(Kit, &str) -> Kit; 2] = [
        |kit, lines| kit.keys("credentials_file", lines).with("profile = \"fence\""),
        |kit, lines| kit.keys("environment_file", lines),
    ];
    for (kit, lines) in kits.into_iter().zip([profile, environment]) {
        let fake = Fake::start(always(target("stopped")));
        let agent = kit(Kit::power(&fake.http.url()).plaintext().paced(WITH_END, POLL), lines).build();
        assert!(agent.off().await.is_confirmed());
        let asked = fake.http.asked();
        assert!(asked.iter().all(|a| a.header("authorization").unwrap().contains("Credential=AKIAFENCE/")));
    }
}

#[test]
fn keys_that_cannot_be_used_stop_the_start() {
    let http = Http::start(|_| Reply::Closed);
    let kit = || Kit::power(&http.url()).plaintext().paced(WITH_END, POLL);
    let other = kit().keys("credentials_file", "[other]\naws_access_key_id=A\naws_secret_access_key=B\n");
    let half = kit().keys("environment_file", "AWS_ACCESS_KEY_ID=A\n");
    let open = kit().keys("environment_file", "AWS_ACCESS_KEY_ID=A\nAWS_SECRET_ACCESS_KEY=B\n");
    let path = open.text.lines().find_map(|l| l.strip_prefix("environment_file = ")).unwrap().trim_matches('"');
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    for (kit, word) in [
        (other, "no section [default]"),
        (half, "no aws_secret_access_key"),
        (open, "may be read by others (mode 0644)"),
    ] {
        let error = kit.try_build().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("fence agent \"ec2\"") && error.contains(word), "{error}");
    }
}

/// Everything that is logged, at the finest level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_is_logged_at_any_level_on_any_path() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let imds = Imds::start(State::default());
    for secret in [super::agents::SECRET, super::imds::SECRET, super::imds::SESSION] {
        for reply in [target("running"), Reply::Garbage, error(403, "SignatureDoesNotMatch", secret)] {
            let fake = Fake::start(always(reply));
            let kit = Kit::power(&fake.http.url()).plaintext();
            let is_static = secret == super::agents::SECRET;
            let kit = if is_static { kit.static_keys() } else { kit.role(&imds.http.url()) };
            let agent = kit.paced(1500, POLL).build();
            agent.prove().await;
            agent.off().await;
        }
    }
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(text.contains("TRACE"), "nothing was logged at the finest level");
    let leaked = text.lines().find(|line| super::agents::MARKS.iter().any(|mark| line.contains(mark)));
    assert_eq!(leaked, None);
}
