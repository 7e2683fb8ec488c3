//! `ec2-volume` against a scripted EC2 (casebook C13, C14, C17).

use leasehold::fence::Outcome;

use super::agents::Kit;
use super::fake::{Fake, OTHER, Script, TARGET, THIRD, accepted, error, free, held, volume, volume_with};
use super::http::Reply;
use super::table::{DETACH, POLL, Right, VOLUMES, WITH_END, WITHOUT_END, always, check, row};

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
            .commands(&[DETACH]),
        row(
            "busy until it is forced",
            detaches(vec![held("busy")]).forced(VOLUMES, vec![held("busy"), free()]),
            Confirmed,
            &["had its time", "now with force", "Force -> accepted"],
        )
        .commands(&[DETACH, "DetachVolume Force"])
        .with("force_after = \"300ms\""),
        row("gone before it is forced", detaches(vec![free()]), Confirmed, &[])
            .commands(&[DETACH])
            .with("force_after = \"1900ms\""),
        row(
            "never forced before a plain one was accepted",
            Script::default().says(VOLUMES, [held("attached")]).says(DETACH, [Reply::Closed]),
            Unknown,
            &["no usable answer"],
        )
        .with("force_after = \"20ms\""),
        row(
            "an earlier detach is under way",
            Script::default().says(VOLUMES, [held("detaching"), held("detaching"), free()]).says(DETACH, [under_way]),
            Confirmed,
            &["under way already"],
        )
        .commands(&[DETACH]),
        row("multi-attach: only the peer's entry goes", multi(both("attached"), both("detaching")), Confirmed, &[])
            .commands(&[DETACH]),
        row("comes back", detaches(vec![free(), held("attached")]), Unknown, &[]),
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
        .commands(&[]),
        row(
            "C: a third instance has it",
            always(volume("in-use", &[(THIRD, "attached")])),
            Unknown,
            &["not with i-0aaaaaaaaaaaaaaa1, but not free: i-0cccccccccccccccc has it"],
        )
        .commands(&[]),
        row("D: keys withdrawn", always(error(401, "AuthFailure", "no")), Unknown, &["does not know these keys"]),
        row("E: the describe lags", detaches(gone_late.to_vec()), Confirmed, &[]).commands(&[DETACH]),
        row("denied", with_detach(denied), Refused, &["allow ec2:DetachVolume", "UnauthorizedOperation"])
            .commands(&[DETACH, DETACH, DETACH]),
        row("in use by nobody", always(volume("in-use", &[])), Unknown, &["in-use, no attachment"]).commands(&[]),
        row("broken", always(volume("error", &[])), Unknown, &["error, no attachment"]).commands(&[]),
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
    let (outcome, told) =
        Kit::volume(&fake.http.url()).plaintext().static_keys().paced(WITH_END, POLL).build().on().await;
    assert_eq!((outcome, fake.commands()), (Outcome::Confirmed, vec![attach.to_owned()]), "{told}");
    let asked = fake.http.asked();
    let request = asked.iter().find(|a| a.field("Action") == Some(attach)).unwrap();
    assert_eq!((request.field("InstanceId"), request.field("Device")), (Some(TARGET), Some("%2Fdev%2Fsdf")));
}

#[tokio::test]
async fn a_volume_that_somebody_else_has_is_not_taken_by_attaching_it() {
    let fake = Fake::start(always(volume("in-use", &[(OTHER, "attached")])));
    let (outcome, told) =
        Kit::volume(&fake.http.url()).plaintext().static_keys().paced(WITHOUT_END, POLL).build().on().await;
    assert_eq!((outcome, fake.commands().len()), (Outcome::Unknown, 0), "{told}");
    assert!(told.contains("not free: i-0bbbbbbbbbbbbbbb2 has it"), "{told}");
}
