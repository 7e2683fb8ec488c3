//! What a look at EC2 finds long before a fence is needed (casebook C14 B, C17).

use leasehold::fence::Reading;

use super::agents::Kit;
use super::fake::{
    Fake, OTHER, Script, TARGET, THIRD, accepted, dry_run_allowed, error, free, held, instance, target, volume,
};
use super::http::Reply;
use super::table::{DESCRIBE, POLL, STOP, VOLUMES, WITH_END, whole};

/// Everything that a proof asks for, answered as it should be.
pub fn healthy() -> Script {
    Script::default()
        .says(&format!("{DESCRIBE} {TARGET}"), [target("running")])
        .says(&format!("{DESCRIBE} {OTHER}"), [instance(OTHER, "running")])
        .says(VOLUMES, [held("attached")])
        .says("StopInstances DryRun", [dry_run_allowed()])
        .says("StartInstances DryRun", [dry_run_allowed()])
        .says("DetachVolume DryRun", [dry_run_allowed()])
        .says("AttachVolume DryRun", [dry_run_allowed()])
}

#[tokio::test]
async fn a_proof_tries_the_real_action_and_does_nothing() {
    for kit in [Kit::power, Kit::volume] {
        let fake = Fake::start(healthy());
        let health = kit(&fake.http.url()).plaintext().static_keys().paced(WITH_END, POLL).build().prove().await;
        assert!(health.is_good() && health.reading == Reading::On, "{health:?}");
        assert_eq!(fake.commands(), [""; 0]);
    }
}

#[tokio::test]
async fn what_a_fence_would_fail_at_is_a_fault_of_the_proof() {
    let denied = || error(403, "UnauthorizedOperation", "You are not authorized to perform this operation.");
    let missing = || error(400, "InvalidVolume.NotFound", "none");
    let elsewhere = whole(instance(OTHER, "running")).replace("eu-central-1a", "eu-central-1b");
    let store = whole(target("running")).replace(">ebs<", ">instance-store<");
    let protected = "<DescribeInstanceAttributeResponse><disableApiStop><value>true</value></disableApiStop>\
                     </DescribeInstanceAttributeResponse>";
    let volumes = |reply: Reply| healthy().says(VOLUMES, [reply]);
    let other = format!("{DESCRIBE} {OTHER}");
    type Case = (&'static str, fn(&str) -> Kit, Script, &'static str, &'static str);
    let cases: Vec<Case> = vec![
        ("denied stop", Kit::power, healthy().says("StopInstances DryRun", [denied()]), "allow ec2:StopInstances", ""),
        ("denied detach", Kit::volume, healthy().says("DetachVolume DryRun", [denied()]), "allow ec2:DetachVolume", ""),
        ("denied attach", Kit::volume, healthy().says("AttachVolume DryRun", [denied()]), "allow ec2:AttachVolume", ""),
        ("no such volume", Kit::volume, volumes(missing()), "wrong region", ""),
        ("at a third", Kit::volume, volumes(volume("in-use", &[(THIRD, "attached")])), THIRD, ""),
        ("other zone", Kit::volume, healthy().says(&other, [Reply::of(200, elsewhere)]), "can never be attached", ""),
        (
            "no such node",
            Kit::volume,
            healthy().says(&other, [error(400, "InvalidInstanceID.NotFound", "")]),
            OTHER,
            "",
        ),
        ("carried out", Kit::power, healthy().says("StopInstances DryRun", [accepted(STOP)]), "must not be used", ""),
        (
            "no stop",
            Kit::power,
            healthy().says(&format!("{DESCRIBE} {TARGET}"), [Reply::of(200, store)]),
            "instance store",
            "",
        ),
        (
            "stop protection",
            Kit::power,
            healthy().says("DescribeInstanceAttribute", [Reply::of(200, protected)]),
            "--no-disable-api-stop",
            "",
        ),
        (
            "going down",
            Kit::power,
            healthy().says(&other, [instance(OTHER, "stopping")]),
            "does not shoot",
            "other_instance = \"i-0bbbbbbbbbbbbbbb2\"",
        ),
        (
            "old endpoint",
            Kit::power,
            healthy().says("StopInstances DryRun", [error(400, "UnknownParameter", "no")]),
            "skip_os_shutdown = false",
            "",
        ),
    ];
    for (name, kit, script, word, more) in cases {
        let fake = Fake::start(script);
        let health =
            kit(&fake.http.url()).plaintext().static_keys().paced(WITH_END, POLL).with(more).build().prove().await;
        assert!(health.faults.iter().any(|fault| fault.contains(word)), "{name}: {health:?}");
        assert_eq!(fake.commands().iter().filter(|c| !c.contains("DryRun")).count(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_state_that_is_in_the_way_now_is_no_fault_of_the_permission() {
    let now = error(400, "IncorrectState", "Volume is in the 'available' state.");
    let script = healthy().says("DetachVolume DryRun", [now]).says(VOLUMES, [free()]);
    let fake = Fake::start(script);
    let health = Kit::volume(&fake.http.url()).plaintext().static_keys().paced(WITH_END, POLL).build().prove().await;
    assert!(health.is_good(), "{health:?}");
}
