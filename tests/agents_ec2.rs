//! The EC2 agents: against moto with signature checking on, and against a scripted EC2 that behaves as the real one does
//! on its bad days (casebook C13, C14, C16, C17, C34).

#[path = "common/need.rs"]
mod need;

mod ec2;

use std::time::Duration;

use ec2::agents::{Ended, Kit, late};
use ec2::fake::{
    Fake, OTHER, Script, TARGET, THIRD, accepted, dry_run_allowed, error, free, held, instance, target, volume,
    volume_with,
};
use ec2::http::{Deaf, Http, Reply};
use ec2::imds::{Imds, State};
use ec2::moto::Moto;
use leasehold::core::FenceResult;
use leasehold::fence::{Outcome, Reading};

/// No attempt may take longer than its limit; what is added is for a loaded machine.
const SLACK: Duration = Duration::from_secs(10);

const DESCRIBE: &str = "DescribeInstances";
const VOLUMES: &str = "DescribeVolumes";
const STOP: &str = "StopInstances";
const DETACH: &str = "DetachVolume";
const SHOT: &str = "StopInstances Force SkipOsShutdown";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Confirmed,
    Refused,
    Unknown,
}

/// One device, and what must come of it.
struct Row {
    name: &'static str,
    device: Device,
    limit_ms: u64,
    right: Right,
    /// What the evidence must say.
    words: &'static [&'static str],
    /// The commands that must have arrived, where it matters.
    commands: Option<&'static [&'static str]>,
    /// More lines for the agent's configuration.
    more: &'static str,
}

enum Device {
    Scripted(Script),
    /// Nothing gets through to it.
    Deaf,
}

fn row(name: &'static str, script: Script, right: Right, words: &'static [&'static str]) -> Row {
    Row { name, device: Device::Scripted(script), limit_ms: 2000, right, words, commands: None, more: "" }
}

impl Row {
    fn commands(self, commands: &'static [&'static str]) -> Row {
        Row { commands: Some(commands), ..self }
    }

    fn limit(self, limit_ms: u64) -> Row {
        Row { limit_ms, ..self }
    }

    fn with(self, more: &'static str) -> Row {
        Row { more, ..self }
    }

    async fn check(self, kit: fn(&str) -> Kit) -> Option<String> {
        let (deaf, fake) = match self.device {
            Device::Deaf => (Some(Deaf::new()), None),
            Device::Scripted(script) => (None, Some(Fake::start(script))),
        };
        let url = match (&deaf, &fake) {
            (Some(deaf), _) => format!("http://{}", deaf.address),
            (None, fake) => fake.as_ref().expect("one of the two").http.url(),
        };
        let agent = kit(&url).plaintext().static_keys().paced(self.limit_ms, 20).with(self.more).build();
        let ended = agent.off().await;
        let said = match ended.result {
            FenceResult::Confirmed { .. } => Right::Confirmed,
            FenceResult::Refused { .. } => Right::Refused,
            FenceResult::Unknown => Right::Unknown,
        };
        let commands = fake.map(|fake| fake.commands()).unwrap_or_default();
        let wrong = said != self.right
            || !self.words.iter().all(|word| ended.told().contains(word))
            || self.commands.is_some_and(|right| commands != right)
            || ended.took > Duration::from_millis(self.limit_ms) + SLACK;
        let words = self.words;
        let text = ended.told();
        wrong.then(|| format!("{}: {said:?} after {:?}, {commands:?}, wanted {words:?}\n{text}", self.name, ended.took))
    }
}

/// Checks all rows side by side, and tells of all that are wrong.
async fn check(rows: Vec<Row>, kit: fn(&str) -> Kit) {
    let mut tasks = tokio::task::JoinSet::new();
    rows.into_iter().for_each(|row| drop(tasks.spawn(row.check(kit))));
    let wrong: Vec<String> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A running instance that takes the command and then reads as told.
fn stops(then: &[&str]) -> Script {
    let script = Script::default().says(DESCRIBE, [target("running")]).says(STOP, [accepted(STOP)]);
    script.after(STOP, DESCRIBE, then.iter().map(|state| target(state)))
}

/// A running instance whose every command gets this answer.
fn answers(reply: Reply) -> Script {
    Script::default().says(DESCRIBE, [target("running")]).says(STOP, [reply])
}

/// The first thing that is asked gets this answer, always.
fn always(reply: Reply) -> Script {
    Script::default().says(DESCRIBE, [reply.clone()]).says(VOLUMES, [reply])
}

fn whole(reply: Reply) -> String {
    let Reply::Whole { body, .. } = reply else { panic!("no whole answer") };
    body
}

#[tokio::test]
async fn a_stop_is_confirmed_only_by_what_is_read_afterwards() {
    use Right::*;
    let denied = error(403, "UnauthorizedOperation", "You are not authorized to perform this operation.");
    let already = error(400, "IncorrectInstanceState", "This instance is not in a state from which it can be stopped.");
    let slow = |reply| Reply::Slow(Duration::from_millis(150), Box::new(reply));
    let rows = vec![
        row("stops", stops(&["stopping", "stopped"]), Confirmed, &["-> stopped"]).commands(&[SHOT]),
        row("plain", stops(&["stopped"]), Confirmed, &[])
            .commands(&[STOP])
            .with("force = false\nskip_os_shutdown = false"),
        row("off already", always(target("stopped")), Confirmed, &["-> stopped (x2)"]).commands(&[]),
        row("terminated, as seen", always(target("terminated")), Confirmed, &["-> terminated"]).commands(&[]),
        row("says yes, stays on", stops(&["running"]), Unknown, &["accepted", "-> running"])
            .commands(&[SHOT])
            .limit(600),
        row("stopping without end", stops(&["stopping"]), Unknown, &["-> stopping"]).commands(&[SHOT]).limit(600),
        row("shutting-down without end", stops(&["shutting-down"]), Unknown, &["-> shutting-down"]).limit(600),
        row(
            "off late",
            stops(&["stopping", "stopping", "stopping", "stopping", "stopped"]),
            Confirmed,
            &["-> stopping (x4)"],
        ),
        row("flips back on", stops(&["stopped", "running"]), Unknown, &["-> stopped", "-> running"]).limit(600),
        row(
            "refuses because off already",
            Script::default().says(DESCRIBE, [target("running"), target("stopped")]).says(STOP, [already]),
            Confirmed,
            &["IncorrectInstanceState"],
        ),
        row("denied", answers(denied), Refused, &["allow ec2:StopInstances", "UnauthorizedOperation"])
            .commands(&[SHOT, SHOT, SHOT]),
        row("slow but right", stops(&["stopped"]).mapped(slow), Confirmed, &[]).limit(4000),
        row("a state that nobody knows", always(target("hibernated")), Unknown, &["-> hibernated"])
            .commands(&[])
            .limit(600),
        row(
            "not found",
            always(error(400, "InvalidInstanceID.NotFound", "The instance ID does not exist")),
            Unknown,
            &["eu-central-1 knows no such thing", "wrong region"],
        )
        .commands(&[])
        .limit(600),
        row(
            "an answer to an earlier request",
            always(instance(OTHER, "stopped")),
            Unknown,
            &["the answer is about i-0bbbbbbbbbbbbbbb2, not i-0aaaaaaaaaaaaaaa1"],
        )
        .commands(&[])
        .limit(600),
        row("another action's answer", always(accepted(STOP)), Unknown, &["does not give"]).commands(&[]).limit(600),
    ];
    check(rows, Kit::power).await;
}

#[tokio::test]
async fn a_service_that_misbehaves_proves_nothing_and_takes_no_longer_than_the_limit() {
    use Right::*;
    let body = whole(target("stopped"));
    let deaf =
        Row { device: Device::Deaf, ..row("deaf", Script::default(), Unknown, &["no connection within its time"]) };
    let rows = vec![
        deaf.limit(800),
        row("no answer", always(Reply::Silence), Unknown, &["no whole answer in time"]).limit(800),
        row("half an answer", always(Reply::Half(body.clone())), Unknown, &[]).limit(800),
        row("dies in the middle", always(Reply::Broken(body.clone())), Unknown, &["broke off"]).limit(800),
        row("half a document", always(Reply::of(200, &body[..body.len() / 2])), Unknown, &["does not give"]).limit(800),
        row("closes", always(Reply::Closed), Unknown, &["no usable answer"]).limit(800),
        row("endless", always(Reply::Endless), Unknown, &["longer than 524288 bytes"]).limit(2000),
        row("no HTTP", always(Reply::Garbage), Unknown, &["no usable answer"]).limit(800),
        row("a page", always(Reply::of(200, "<html>Welcome</html>")), Unknown, &["does not give: 200 html"]).limit(800),
        row("hangs at the command", answers(Reply::Silence), Unknown, &["no whole answer in time", "-> running"])
            .limit(800),
        row(
            "wrong keys",
            always(error(401, "AuthFailure", "AWS was not able to validate the provided access credentials")),
            Unknown,
            &["does not know these keys", "AuthFailure"],
        )
        .commands(&[])
        .limit(600),
        row(
            "repeats the secret",
            always(error(403, "SignatureDoesNotMatch", &format!("signed with {}", ec2::agents::SECRET))),
            Unknown,
            &["the secret key is wrong", "signed with <secret>"],
        )
        .limit(600),
        row(
            "throttled, then right",
            Script::default().says(
                DESCRIBE,
                [error(503, "RequestLimitExceeded", "Request limit exceeded."), Reply::of(503, ""), target("stopped")],
            ),
            Confirmed,
            &["EC2 asks to wait (503 RequestLimitExceeded)"],
        )
        .limit(5000),
        row(
            "throttled at the command",
            Script::default()
                .says(DESCRIBE, [target("running")])
                .says(STOP, [error(503, "RequestLimitExceeded", "Request limit exceeded."), accepted(STOP)])
                .after(STOP, DESCRIBE, [target("stopped")]),
            Confirmed,
            &["EC2 asks to wait"],
        )
        .limit(5000),
        row(
            "throttled without end",
            always(error(503, "Unavailable", "later")),
            Unknown,
            &["asks to wait (503 Unavailable)"],
        )
        .limit(1500),
    ];
    check(rows, Kit::power).await;
}

#[tokio::test]
async fn throttling_is_waited_out_and_not_answered_with_more_requests() {
    let fake = Fake::start(always(error(503, "RequestLimitExceeded", "Request limit exceeded.")));
    let agent = Kit::power(&fake.http.url()).plaintext().static_keys().paced(3000, 20).build();
    let ended = agent.off().await;
    assert_eq!(ended.result, FenceResult::Unknown, "{}", ended.told());
    // 125 to 250 ms, then twice that, and so on: 3 s hold five of them at most, and three at least.
    assert!((3..=6).contains(&fake.http.asked().len()), "{} requests", fake.http.asked().len());
}

#[tokio::test]
async fn a_node_whose_own_instance_goes_down_does_not_shoot() {
    use Right::*;
    let pair = |own: &str| {
        let ours = format!("{DESCRIBE} {OTHER}");
        stops(&["stopped"])
            .says(&ours, [instance(OTHER, own)])
            .says(&format!("{DESCRIBE} {TARGET}"), [target("running")])
            .after(STOP, &format!("{DESCRIBE} {TARGET}"), [target("stopped")])
    };
    let other = "other_instance = \"i-0bbbbbbbbbbbbbbb2\"";
    let gone = error(400, "InvalidInstanceID.NotFound", "none");
    let rows = vec![
        row(
            "stopping",
            pair("stopping"),
            Refused,
            &["own instance i-0bbbbbbbbbbbbbbb2 is stopping: it does not shoot"],
        )
        .commands(&[])
        .with(other),
        row("shutting-down", pair("shutting-down"), Refused, &["it does not shoot"]).commands(&[]).with(other),
        row("running", pair("running"), Confirmed, &[]).commands(&[SHOT]).with(other),
        // That nobody knows the own state is no reason to let two nodes write.
        row("unknown", pair("x").says(&format!("{DESCRIBE} {OTHER}"), [gone]), Confirmed, &["knows no such thing"])
            .commands(&[SHOT])
            .with(other),
    ];
    check(rows, Kit::power).await;
}

#[tokio::test]
async fn an_instance_is_started_once_it_is_stopped_and_counts_when_it_runs() {
    let start = "StartInstances";
    let script = Script::default()
        .says(DESCRIBE, [target("stopping"), target("stopped")])
        .says(start, [accepted(start)])
        .after(start, DESCRIBE, [target("pending"), target("pending"), target("running")]);
    let fake = Fake::start(script);
    let (outcome, told) = Kit::power(&fake.http.url()).plaintext().static_keys().paced(5000, 20).build().on().await;
    assert_eq!((outcome, fake.commands()), (Outcome::Confirmed, vec![start.to_owned()]), "{told}");
    assert!(told.contains("-> pending (x2)"), "{told}");
}

#[tokio::test]
async fn a_volume_counts_as_taken_only_when_the_volume_says_so() {
    use Right::*;
    let detaches = |then: Vec<Reply>| {
        let script = Script::default().says(VOLUMES, [held("attached")]).says(DETACH, [accepted(DETACH)]);
        script.after(DETACH, VOLUMES, then)
    };
    let busy = [held("detaching"), held("detaching"), held("detaching"), held("busy")];
    let denied = error(403, "UnauthorizedOperation", "You are not authorized to perform this operation.");
    let state = error(400, "IncorrectState", "Volume is in the 'available' state.");
    let gone_late = [held("attached"), held("attached"), held("attached"), free()];
    let both = |status: &str| volume_with("in-use", &[(TARGET, status), (OTHER, "attached")], true);
    let with_other = volume("in-use", &[(OTHER, "attached")]);
    let under_way = error(400, "IncorrectState", "Volume is in the 'detaching' state.");
    let rows = vec![
        row(
            "detaches",
            detaches(vec![held("detaching"), free()]),
            Confirmed,
            &["detaching to", "available, no attachment"],
        )
        .commands(&[DETACH]),
        row("free already", always(free()), Confirmed, &["available, no attachment (x2)"]).commands(&[]),
        row("at the other node already", always(with_other), Confirmed, &["attached to i-0bbbbbbbbbbbbbbb2"])
            .commands(&[]),
        row("detaching, then busy, then nothing", detaches(busy.to_vec()), Unknown, &["busy to i-0aaaaaaaaaaaaaaa1"])
            .commands(&[DETACH])
            .limit(1000),
        row(
            "busy until it is forced",
            detaches(vec![held("busy")]).forced(VOLUMES, vec![held("busy"), free()]),
            Confirmed,
            &["had its time", "now with force", "Force -> accepted"],
        )
        .commands(&[DETACH, "DetachVolume Force"])
        .with("force_after = \"300ms\"")
        .limit(5000),
        row("gone before it is forced", detaches(vec![free()]), Confirmed, &[])
            .commands(&[DETACH])
            .with("force_after = \"1900ms\""),
        row(
            "never forced before a plain one was accepted",
            Script::default().says(VOLUMES, [held("attached")]).says(DETACH, [Reply::Closed]),
            Unknown,
            &["no usable answer"],
        )
        .with("force_after = \"20ms\"")
        .limit(600),
        row(
            "an earlier detach is under way",
            Script::default().says(VOLUMES, [held("detaching"), held("detaching"), free()]).says(DETACH, [under_way]),
            Confirmed,
            &["under way already"],
        )
        .commands(&[DETACH]),
        row("multi-attach: only the peer's entry goes", multi(both("attached"), both("detaching")), Confirmed, &[])
            .commands(&[DETACH]),
        row("comes back", detaches(vec![free(), held("attached")]), Unknown, &[]).limit(600),
        row(
            "A: refused because it is free",
            Script::default().says(VOLUMES, [held("attached"), free()]).says(DETACH, [state]),
            Confirmed,
            &["IncorrectState", "available, no attachment"],
        ),
        row(
            "B: not found",
            always(error(400, "InvalidVolume.NotFound", "The volume does not exist.")),
            Unknown,
            &["wrong region, account or id", "InvalidVolume.NotFound"],
        )
        .commands(&[])
        .limit(600),
        row(
            "C: a third instance has it",
            always(volume("in-use", &[(THIRD, "attached")])),
            Unknown,
            &["not with i-0aaaaaaaaaaaaaaa1, but not free: i-0cccccccccccccccc has it"],
        )
        .commands(&[])
        .limit(600),
        row("D: keys withdrawn", always(error(401, "AuthFailure", "no")), Unknown, &["does not know these keys"])
            .limit(600),
        row("E: the describe lags", detaches(gone_late.to_vec()), Confirmed, &[]).commands(&[DETACH]),
        row("denied", with_detach(denied), Refused, &["allow ec2:DetachVolume", "UnauthorizedOperation"])
            .commands(&[DETACH, DETACH, DETACH]),
        row("in use by nobody", always(volume("in-use", &[])), Unknown, &["in-use, no attachment"])
            .commands(&[])
            .limit(600),
        row("broken", always(volume("error", &[])), Unknown, &["error, no attachment"]).commands(&[]).limit(600),
    ];
    check(rows, Kit::volume).await;
}

fn with_detach(reply: Reply) -> Script {
    Script::default().says(VOLUMES, [held("attached")]).says(DETACH, [reply])
}

fn multi(before: Reply, then: Reply) -> Script {
    let gone = volume_with("in-use", &[(OTHER, "attached"), (THIRD, "attached")], true);
    let script = Script::default().says(VOLUMES, [before]).says(DETACH, [accepted(DETACH)]);
    script.after(DETACH, VOLUMES, [then, gone])
}

#[tokio::test]
async fn a_volume_is_attached_to_the_target_and_counts_when_it_is_attached() {
    let attach = "AttachVolume";
    let script = Script::default().says(VOLUMES, [free()]).says(attach, [accepted(attach)]).after(
        attach,
        VOLUMES,
        [held("attaching"), held("attached")],
    );
    let fake = Fake::start(script);
    let (outcome, told) = Kit::volume(&fake.http.url()).plaintext().static_keys().paced(5000, 20).build().on().await;
    assert_eq!((outcome, fake.commands()), (Outcome::Confirmed, vec![attach.to_owned()]), "{told}");
    let asked = fake.http.asked();
    let request = asked.iter().find(|a| a.field("Action") == Some(attach)).unwrap();
    assert_eq!((request.field("InstanceId"), request.field("Device")), (Some(TARGET), Some("%2Fdev%2Fsdf")));
}

#[tokio::test]
async fn a_volume_that_somebody_else_has_is_not_taken_by_attaching_it() {
    let fake = Fake::start(always(volume("in-use", &[(OTHER, "attached")])));
    let (outcome, told) = Kit::volume(&fake.http.url()).plaintext().static_keys().paced(1000, 20).build().on().await;
    assert_eq!((outcome, fake.commands().len()), (Outcome::Unknown, 0), "{told}");
    assert!(told.contains("not free: i-0bbbbbbbbbbbbbbb2 has the volume"), "{told}");
}

/// Everything that a proof asks for, answered as it should be.
fn healthy() -> Script {
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
        let health = kit(&fake.http.url()).plaintext().static_keys().paced(5000, 20).build().prove().await;
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
        let health = kit(&fake.http.url()).plaintext().static_keys().paced(5000, 20).with(more).build().prove().await;
        assert!(health.faults.iter().any(|fault| fault.contains(word)), "{name}: {health:?}");
        assert_eq!(fake.commands().iter().filter(|c| !c.contains("DryRun")).count(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_state_that_is_in_the_way_now_is_no_fault_of_the_permission() {
    let now = error(400, "IncorrectState", "Volume is in the 'available' state.");
    let script = healthy().says("DetachVolume DryRun", [now]).says(VOLUMES, [free()]);
    let fake = Fake::start(script);
    let health = Kit::volume(&fake.http.url()).plaintext().static_keys().paced(5000, 20).build().prove().await;
    assert!(health.is_good(), "{health:?}");
}

// --- the metadata service (C16) -------------------------------------------------------------------------------------

fn with_role(fake: &Fake, imds: &Imds) -> Kit {
    Kit::power(&fake.http.url()).plaintext().role(&imds.http.url())
}

#[tokio::test]
async fn the_role_of_the_instance_is_asked_for_by_version_two_only() {
    let (fake, imds) = (Fake::start(healthy()), Imds::start(State::default()));
    let health = with_role(&fake, &imds).paced(5000, 20).build().prove().await;
    assert!(health.is_good(), "{health:?}");
    assert_eq!((imds.without_token(), imds.fetches()), (0, 1), "one fetch serves all requests");
    let signed = |a: &ec2::http::Asked| {
        a.header("authorization").is_some_and(|h| h.contains("Credential=ASIAFIRST/"))
            && a.header("x-amz-security-token") == Some(ec2::imds::SESSION)
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
    for (state, word) in cases {
        let (fake, imds) = (Fake::start(healthy()), Imds::start(state));
        let agent = with_role(&fake, &imds).paced(2000, 20).build();
        let (health, ended) = (agent.prove().await, agent.off().await);
        assert!(health.faults.iter().any(|fault| fault.contains(word)), "{word}: {health:?}");
        assert!(ended.result == FenceResult::Unknown && ended.told().contains(word), "{word}: {}", ended.told());
        assert_eq!((imds.without_token(), fake.http.asked().len()), (0, 0), "nothing is asked of EC2 without keys");
    }
}

#[tokio::test]
async fn a_metadata_service_that_is_down_does_no_harm_while_the_keys_in_hand_are_good() {
    let running =
        healthy().says(STOP, [accepted(STOP)]).after(STOP, &format!("{DESCRIBE} {TARGET}"), [target("stopped")]);
    // Near their end, so that others are asked for, and still good.
    let state = State { key: ("ASIAFIRST", 300), ..State::default() };
    let (fake, imds) = (Fake::start(running), Imds::start(state));
    let agent = with_role(&fake, &imds).paced(5000, 20).build();
    assert!(agent.prove().await.is_good());
    imds.change(|state| state.down = true);
    let ended: Ended = agent.off().await;
    assert!(ended.is_confirmed(), "{}", ended.told());
}

#[tokio::test]
async fn keys_are_fetched_anew_long_before_they_end() {
    let (fake, imds) = (Fake::start(healthy()), Imds::start(State { key: ("ASIAFIRST", 90), ..State::default() }));
    let agent = with_role(&fake, &imds).paced(120_000, 20).build();
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
        let kit = kit(&fake.http.url()).plaintext().role(&imds.http.url()).paced(5000, 20);
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
    let ended = with_role(&fake, &imds).replaced(TARGET, OTHER).paced(2000, 20).build().off().await;
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
    let agent = Kit::power(&fake.http.url()).plaintext().static_keys().paced(1000, 20).build();
    let word = "this node's clock is 7m 3s behind EC2's";
    let near = |text: &str| text.contains("this node's clock is 7m") && text.contains("behind EC2's");
    let health = agent.prove_by(late).await;
    assert!(health.faults.iter().any(|fault| near(fault)), "{word}: {health:?}");
    let ended = agent.off_by(late).await;
    assert!(ended.result == FenceResult::Unknown && near(&ended.told()), "{}", ended.told());
    assert!(agent.prove().await.is_good(), "by a right clock it works");
}

// --- the keys -------------------------------------------------------------------------------------------------------

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
        let agent = kit(Kit::power(&fake.http.url()).plaintext().paced(5000, 20), lines).build();
        assert!(agent.off().await.is_confirmed());
        let asked = fake.http.asked();
        assert!(asked.iter().all(|a| a.header("authorization").unwrap().contains("Credential=AKIAFENCE/")));
    }
}

#[test]
fn keys_that_cannot_be_used_stop_the_start() {
    let http = Http::start(|_| Reply::Closed);
    let build = |kit: Kit| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kit.build())).is_err();
    let kit = || Kit::power(&http.url()).plaintext().paced(5000, 20);
    assert!(build(kit().keys("credentials_file", "[other]\naws_access_key_id=A\naws_secret_access_key=B\n")));
    assert!(build(kit().keys("environment_file", "AWS_ACCESS_KEY_ID=A\n")));
    let open = kit().keys("environment_file", "AWS_ACCESS_KEY_ID=A\nAWS_SECRET_ACCESS_KEY=B\n");
    let path =
        open.text.lines().find_map(|l| l.strip_prefix("environment_file = ")).unwrap().trim_matches('"').to_owned();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(build(open), "a file that others may read");
}

// --- the pages ------------------------------------------------------------------------------------------------------

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

// --- moto: a real server that checks every signature -----------------------------------------------------------------

const ALL: &str =
    "ec2:DescribeInstances,ec2:StopInstances,ec2:StartInstances,ec2:DescribeVolumes,ec2:DetachVolume,ec2:AttachVolume";

fn moto_kit(moto: &Moto, kit: fn(&str) -> Kit) -> Kit {
    let lines = format!("AWS_ACCESS_KEY_ID={}\nAWS_SECRET_ACCESS_KEY={}\n", moto.key, moto.secret);
    let kit = kit(&moto.url).plaintext().keys("environment_file", &lines).paced(20_000, 50);
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
    let agent = Kit::power(&moto.url).static_keys().paced(2000, 20).build();
    let ended = agent.off().await;
    assert!(ended.result == FenceResult::Unknown && ended.told().contains("certificate refused"), "{}", ended.told());
}
