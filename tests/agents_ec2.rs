//! The EC2 agents: against moto with signature checking on, and (in `ec2/`) against a scripted EC2 and a metadata service
//! that behave as the real ones do on their bad days (casebook C13, C14, C16, C17, C34).

#[path = "common/need.rs"]
mod need;

mod ec2;

use ec2::agents::Kit;
use ec2::fake::{OTHER, TARGET};
use ec2::moto::Moto;
use ec2::table::{POLL, WITH_END, WITHOUT_END};
use leasehold::core::FenceResult;
use leasehold::fence::{Outcome, Reading};

#[test]
fn the_samples_of_the_pages_are_right_configurations() {
    for (page, lone) in [
        (include_str!("../docs/agents/ec2-power.md"), ""),
        (include_str!("../docs/agents/ec2-volume.md"), "lone_primary = \"stop\"\n"),
    ] {
        let (_, rest) = page.split_once("```toml\n").expect("a sample");
        let (sample, _) = rest.split_once("```").expect("its end");
        let kit = Kit::power("https://unused.example.net");
        let base = kit.text.split("[[fence.agent]]").next().unwrap();
        let text = base.replace("data = \"shared\"\n", &format!("data = \"shared\"\n{lone}")) + sample;
        leasehold::config::parse("leasehold.toml", &text).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

const ALL: &str =
    "ec2:DescribeInstances,ec2:StopInstances,ec2:StartInstances,ec2:DescribeVolumes,ec2:DetachVolume,ec2:AttachVolume";

fn moto_kit(moto: &Moto, kit: fn(&str) -> Kit) -> Kit {
    let lines = format!("AWS_ACCESS_KEY_ID={}\nAWS_SECRET_ACCESS_KEY={}\n", moto.key, moto.secret);
    let kit = kit(&moto.url).plaintext().keys("environment_file", &lines).paced(WITH_END, POLL);
    let kit = kit.replaced(TARGET, &moto.instances[0]);
    if kit.text.contains(OTHER) {
        return kit.replaced(OTHER, &moto.instances[1]).replaced(ec2::fake::VOLUME, &moto.volume);
    }
    kit
}

fn moto(test: &str, allowed: &str) -> Option<Moto> {
    if !need::all(test, &[need::program("python3")]) {
        return None;
    }
    let venv = Moto::venv();
    need::all(test, &[need::file(venv.as_ref().map_or("moto in a venv", |v| v.to_str().unwrap()))]);
    Some(Moto::start(&venv?, allowed))
}

#[tokio::test]
async fn a_real_instance_is_stopped_and_started_with_every_signature_checked() {
    let Some(moto) = moto("a_real_instance_is_stopped_and_started_with_every_signature_checked", ALL) else { return };
    let agent = moto_kit(&moto, Kit::power).build();
    let health = agent.prove().await;
    assert!(health.is_good() && health.reading == Reading::On, "{health:?}");
    let ended = agent.off().await;
    assert!(ended.is_confirmed() && ended.told().contains("-> stopped"), "{}", ended.told());
    println!("from the decision to the verified stop: {:?}", ended.took);
    assert_eq!(agent.on().await.0, Outcome::Confirmed);
}

#[tokio::test]
async fn a_real_volume_is_detached_and_attached_again() {
    let Some(moto) = moto("a_real_volume_is_detached_and_attached_again", ALL) else { return };
    let agent = moto_kit(&moto, Kit::volume).build();
    let health = agent.prove().await;
    assert!(health.is_good() && health.reading == Reading::On, "{health:?}");
    let ended = agent.off().await;
    assert!(ended.is_confirmed() && ended.told().contains("available, no attachment"), "{}", ended.told());
    println!("from the decision to the verified detach: {:?}", ended.took);
    let (outcome, told) = agent.on().await;
    assert_eq!(outcome, Outcome::Confirmed, "{told}");
}

#[tokio::test]
async fn a_real_policy_that_forbids_the_stop_is_found_before_it_is_needed() {
    let test = "a_real_policy_that_forbids_the_stop_is_found_before_it_is_needed";
    let Some(moto) = moto(test, "ec2:DescribeInstances") else { return };
    let agent = moto_kit(&moto, Kit::power).build();
    let health = agent.prove().await;
    assert!(health.reading == Reading::On && health.faults.iter().any(|f| f.contains("StopInstances")), "{health:?}");
    let ended = agent.off().await;
    assert!(!ended.is_confirmed() && ended.told().contains("-> running"), "{}", ended.told());
}

#[tokio::test]
async fn a_wrong_secret_is_refused_by_a_real_server() {
    let Some(mut moto) = moto("a_wrong_secret_is_refused_by_a_real_server", ALL) else { return };
    moto.secret = "M4RK-wrong-secret".to_owned();
    let health = moto_kit(&moto, Kit::power).build().prove().await;
    assert!(health.reading == Reading::Unknown && health.faults[0].contains("does not know these keys"), "{health:?}");
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let Some(venv) = need::all("a_certificate_that_nobody_vouches_for_is_refused", &[need::program("python3")])
        .then(Moto::venv)
        .flatten()
    else {
        return;
    };
    let moto = Moto::tls(&venv);
    let agent = Kit::power(&moto.url).static_keys().paced(WITHOUT_END, POLL).build();
    let ended = agent.off().await;
    assert!(ended.result == FenceResult::Unknown && ended.told().contains("certificate refused"), "{}", ended.told());
}
