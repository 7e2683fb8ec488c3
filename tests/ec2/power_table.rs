//! `ec2-power` against a scripted EC2 (casebook C17 and the conformance rows).

use std::time::Duration;

use leasehold::core::FenceResult;
use leasehold::fence::Outcome;

use super::agents::Kit;
use super::fake::{Fake, OTHER, Script, TARGET, accepted, error, instance, target};
use super::http::Reply;
use super::table::{
    DESCRIBE, Device, POLL, Right, Row, SHOT, STOP, WITH_END, always, answers, check, row, stops, whole,
};

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
        row("says yes, stays on", stops(&["running"]), Unknown, &["accepted", "-> running"]).commands(&[SHOT]),
        row("stopping without end", stops(&["stopping"]), Unknown, &["-> stopping"]).commands(&[SHOT]),
        row("shutting-down without end", stops(&["shutting-down"]), Unknown, &["-> shutting-down"]),
        row(
            "off late",
            stops(&["stopping", "stopping", "stopping", "stopping", "stopped"]),
            Confirmed,
            &["-> stopping (x4)"],
        ),
        row("flips back on", stops(&["stopped", "running"]), Unknown, &["-> stopped", "-> running"]),
        row(
            "refuses because off already",
            Script::default().says(DESCRIBE, [target("running"), target("stopped")]).says(STOP, [already]),
            Confirmed,
            &["IncorrectInstanceState"],
        ),
        row("denied", answers(denied), Refused, &["allow ec2:StopInstances", "UnauthorizedOperation"])
            .commands(&[SHOT, SHOT, SHOT]),
        row("slow but right", stops(&["stopped"]).mapped(slow), Confirmed, &[]),
        row("a state that nobody knows", always(target("hibernated")), Unknown, &["-> hibernated"]).commands(&[]),
        row(
            "not found",
            always(error(400, "InvalidInstanceID.NotFound", "The instance ID does not exist")),
            Unknown,
            &["eu-central-1 knows no such thing", "wrong region"],
        )
        .commands(&[]),
        row(
            "an answer to an earlier request",
            always(instance(OTHER, "stopped")),
            Unknown,
            &["the answer is about i-0bbbbbbbbbbbbbbb2, not i-0aaaaaaaaaaaaaaa1"],
        )
        .commands(&[]),
        row("another action's answer", always(accepted(STOP)), Unknown, &["does not give"]).commands(&[]),
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
        Row { device: Device::Deaf, ..deaf },
        row("no answer", always(Reply::Silence), Unknown, &["no whole answer in time"]),
        row("half an answer", always(Reply::Half(body.clone())), Unknown, &[]),
        row("dies in the middle", always(Reply::Broken(body.clone())), Unknown, &["broke off"]),
        row("half a document", always(Reply::of(200, &body[..body.len() / 2])), Unknown, &["does not give"]),
        row("closes", always(Reply::Closed), Unknown, &["no usable answer"]),
        row("endless", always(Reply::Endless), Unknown, &["longer than 524288 bytes"]),
        row("no HTTP", always(Reply::Garbage), Unknown, &["no usable answer"]),
        row("a page", always(Reply::of(200, "<html>Welcome</html>")), Unknown, &["does not give: 200 html"]),
        row("hangs at the command", answers(Reply::Silence), Unknown, &["no whole answer in time", "-> running"]),
        row(
            "wrong keys",
            always(error(401, "AuthFailure", "AWS was not able to validate the provided access credentials")),
            Unknown,
            &["does not know these keys", "AuthFailure"],
        )
        .commands(&[]),
        row(
            "repeats the secret",
            always(error(403, "SignatureDoesNotMatch", &format!("signed with {}", super::agents::SECRET))),
            Unknown,
            &["the secret key is wrong", "signed with <secret>"],
        ),
        row(
            "throttled, then right",
            Script::default().says(
                DESCRIBE,
                [error(503, "RequestLimitExceeded", "Request limit exceeded."), Reply::of(503, ""), target("stopped")],
            ),
            Confirmed,
            &["EC2 asks to wait (503 RequestLimitExceeded)"],
        ),
        row(
            "throttled at the command",
            Script::default()
                .says(DESCRIBE, [target("running")])
                .says(STOP, [error(503, "RequestLimitExceeded", "Request limit exceeded."), accepted(STOP)])
                .after(STOP, DESCRIBE, [target("stopped")]),
            Confirmed,
            &["EC2 asks to wait"],
        ),
        row(
            "throttled without end",
            always(error(503, "Unavailable", "later")),
            Unknown,
            &["asks to wait (503 Unavailable)"],
        ),
    ];
    check(rows, Kit::power).await;
}

#[tokio::test]
async fn throttling_is_waited_out_and_not_answered_with_more_requests() {
    let fake = Fake::start(always(error(503, "RequestLimitExceeded", "Request limit exceeded.")));
    let agent = Kit::power(&fake.http.url()).plaintext().static_keys().paced(3000, POLL).build();
    let ended = agent.off().await;
    assert_eq!(ended.result, FenceResult::Unknown, "{}", ended.told());
    // 125 to 250 ms, then twice that, and so on: 3 s hold five of them at most.
    assert!((2..=6).contains(&fake.http.asked().len()), "{} requests", fake.http.asked().len());
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
    let (outcome, told) =
        Kit::power(&fake.http.url()).plaintext().static_keys().paced(WITH_END, POLL).build().on().await;
    assert_eq!((outcome, fake.commands()), (Outcome::Confirmed, vec![start.to_owned()]), "{told}");
    assert!(told.contains("-> pending (x2)"), "{told}");
}
