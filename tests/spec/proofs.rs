//! Section 1, the five proofs: nothing else promotes.

use leasehold::core::*;

use crate::bench::*;

/// The peer comes back from a reboot: another life, another boot, nothing held.
pub fn reboot_peer(bench: &mut Bench) {
    bench.silence(H);
    let (token, highest) = (bench.peer.held_token, bench.peer.highest_token);
    bench.peer = Datagram {
        incarnation: Incarnation(2002),
        boot: BootId([3; 16]),
        role: Role::Joining,
        standing: Standing::Out,
        held_token: token,
        highest_token: highest,
        ..idle_peer(bench.peer.sender.peer())
    };
}

fn lost_standby() -> Bench {
    let mut bench = Bench::standby(plain());
    bench.silence(3000);
    assert_eq!(bench.count(is_fence), 1);
    bench
}

#[test]
fn s1_01_no_standing_role_or_timeout_is_a_proof() {
    let mut bench = lost_standby();
    bench.silence(600_000);
    assert!(!bench.started(), "{:#?}", bench.events());
}

#[test]
fn s1_02_an_attempt_that_nobody_verified_promotes_nothing() {
    for result in [FenceResult::Unknown, FenceResult::Refused { highest: None }] {
        let mut bench = lost_standby();
        bench.answer_fence(result);
        bench.silence(60_000);
        assert!(!bench.started(), "{result:?}");
    }
}

#[test]
fn s1_03_a_verified_fence_promotes_and_the_start_names_it() {
    let mut bench = lost_standby();
    bench.answer_fence(verified(Scope::Node));
    assert_eq!(bench.start(), Some((ProofKind::Fenced, Token(3))));
}

#[test]
fn s1_04_a_plan_with_node_scope_succeeds_only_by_node_scope() {
    let mut bench = lost_standby();
    bench.answer_fence(verified(Scope::Resource));
    bench.silence(60_000);
    assert!(!bench.started());
}

#[test]
fn s1_05_power_that_reads_on_or_unknown_is_no_proof_and_off_is() {
    for (reading, promotes) in [(PowerReading::On, false), (PowerReading::Unknown, false), (OFF, true)] {
        let mut bench = Bench::standby(plain());
        bench.silence(800);
        bench.answer_probe(reading);
        assert_eq!(bench.started(), promotes, "{reading:?}");
    }
}

#[test]
fn s1_06_a_release_of_my_last_grant_is_a_proof() {
    let mut bench = Bench::standby(plain());
    bench.peer_releases(Token(2));
    bench.contact(H);
    assert_eq!(bench.start(), Some((ProofKind::Released, Token(3))));
}

#[test]
fn s1_07_a_release_of_any_other_token_is_none() {
    for other in [1, 4, 6] {
        let mut bench = Bench::standby(plain());
        bench.peer_releases(Token(other));
        bench.contact(H);
        let by_release = matches!(bench.start(), Some((ProofKind::Released, _)));
        assert!(!by_release, "token {other}");
    }
}

#[test]
fn s1_08_a_release_that_shows_a_resource_up_or_a_claim_is_none() {
    let changes: [fn(&mut Datagram); 4] = [
        |d| d.resources_up = true,
        |d| d.claim = Some(Token(4)),
        |d| d.holding = true,
        |d| d.activity = Activity::Attempt,
    ];
    for change in changes {
        let mut bench = Bench::standby(plain());
        bench.peer_releases(Token(2));
        bench.silence(H);
        bench.hear_with(change);
        assert!(!bench.started());
    }
}

#[test]
fn s1_09_a_release_counts_only_while_nothing_was_granted_since() {
    let mut bench = Bench::standby(plain());
    bench.peer_is_primary(Token(4));
    bench.contact(2 * H);
    assert_eq!(bench.record().granted_token, Token(4));
    bench.peer_releases(Token(2));
    bench.contact(H);
    assert!(!matches!(bench.start(), Some((ProofKind::Released, _))));
}

#[test]
fn s1_10_another_boot_that_holds_nothing_is_a_proof() {
    let mut bench = Bench::standby(plain());
    reboot_peer(&mut bench);
    bench.hear();
    assert_eq!(bench.start(), Some((ProofKind::Rebooted, Token(3))), "{:#?}", bench.events());
}

#[test]
fn s1_11_a_rebooted_peer_that_claims_holds_or_attempts_is_none() {
    let changes: [fn(&mut Datagram); 5] = [
        |d| d.claim = Some(Token(4)),
        |d| d.activity = Activity::Attempt,
        |d| d.activity = Activity::Proof,
        |d| d.resources_up = true,
        |d| d.boot = PEER_BOOT,
    ];
    for change in changes {
        let mut bench = Bench::standby(plain());
        reboot_peer(&mut bench);
        bench.hear_with(change);
        assert!(!matches!(bench.start(), Some((ProofKind::Rebooted, _))));
    }
}

#[test]
fn s1_12_a_rebooted_peer_must_echo_me() {
    let mut bench = Bench::standby(plain());
    reboot_peer(&mut bench);
    bench.hear_with(|d| d.echo = None);
    assert!(!bench.started());
}

#[test]
fn s1_13_a_confirmation_waits_for_the_end_of_the_lease_as_well() {
    let mut bench = Bench::standby(Settings { plan: Plan::ConfirmOnly, ..plain() });
    let heard = bench.now;
    bench.silence(3000);
    let incident = bench.status().incident;
    assert_eq!(bench.command(Command::ConfirmFenced { incident, uid: 7 }), Ok(()));
    bench.silence(heard.after(Span::from_secs(10)).since(bench.now).as_ms() - 1);
    assert!(!bench.started());
    bench.silence(1);
    assert_eq!(bench.start().map(|(proof, _)| proof), Some(ProofKind::Confirmed));
}

#[test]
fn s1_14_a_confirmation_is_bound_to_its_incident_and_single_use() {
    let mut bench = Bench::standby(Settings { plan: Plan::ConfirmOnly, ..plain() });
    let early = bench.status().incident;
    assert_eq!(bench.command(Command::ConfirmFenced { incident: early, uid: 7 }), Err(Refusal::PeerInContact));
    bench.silence(3000);
    let incident = bench.status().incident;
    assert_ne!(incident, early);
    let wrong = Command::ConfirmFenced { incident: early, uid: 7 };
    assert_eq!(bench.command(wrong), Err(Refusal::WrongIncident { current: incident }));
    assert_eq!(bench.command(Command::ConfirmFenced { incident, uid: 7 }), Ok(()));
    let again = bench.command(Command::ConfirmFenced { incident, uid: 7 });
    assert!(again.is_err(), "{again:?}");
}

#[test]
fn s1_15_a_confirmation_is_logged_with_its_uid() {
    let mut bench = Bench::standby(Settings { plan: Plan::ConfirmOnly, ..plain() });
    bench.silence(3000);
    let incident = bench.status().incident;
    bench.command(Command::ConfirmFenced { incident, uid: 1234 }).unwrap();
    assert!(bench.events().contains(&Event::Confirmed { uid: 1234, incident }));
}

/// One that went on could shoot a peer that the operator has just repaired.
#[test]
fn s1_15_a_confirmation_calls_off_the_attempt_under_way_and_its_late_end_is_nothing() {
    let mut bench = Bench::standby(plain());
    let heard = bench.now;
    bench.silence(3000);
    let attempts = |bench: &Bench| bench.count(|output| matches!(output, Output::StartFence { .. }));
    let job =
        bench.find(|o| if let Output::StartFence { job, .. } = o { Some(*job) } else { None }).expect("an attempt");
    let incident = bench.status().incident;
    bench.command(Command::ConfirmFenced { incident, uid: 7 }).unwrap();
    assert_eq!(bench.count(|output| *output == Output::CancelJob(job)), 1, "{:#?}", bench.events());
    assert!(bench.events().contains(&Event::AttemptCalledOff));
    bench.input(Input::FenceDone { job, result: FenceResult::Unknown });
    bench.silence(heard.after(Span::from_secs(10)).since(bench.now).as_ms());
    assert_eq!(bench.start().map(|(proof, _)| proof), Some(ProofKind::Confirmed));
    bench.silence(30_000);
    assert_eq!(attempts(&bench), 1, "nobody shoots a peer that an operator has confirmed");
}

#[test]
fn s1_16_two_that_hold_nothing_agree_and_the_granted_one_starts() {
    let mut bench = Bench::new(plain(), None, None);
    bench.grants = true;
    bench.contact(4 * H);
    assert_eq!(bench.start(), Some((ProofKind::Agreed, Token(2))), "{:#?}", bench.events());
}

#[test]
fn s1_17_no_agreement_with_a_peer_that_holds_attempts_or_has_a_proof() {
    let changes: [fn(&mut Datagram); 3] =
        [|d| d.activity = Activity::Attempt, |d| d.activity = Activity::Proof, |d| d.resources_up = true];
    for change in changes {
        let mut bench = Bench::new(plain(), None, None);
        bench.grants = true;
        change(&mut bench.peer);
        bench.contact(8 * H);
        assert!(!bench.started());
    }
}

#[test]
fn s1_18_an_agreement_needs_a_grant_of_this_very_claim() {
    let mut bench = Bench::new(plain(), None, None);
    bench.contact(4 * H);
    let claim = bench.last_sent().claim.expect("claims");
    let seq = bench.last_sent().seq;
    let other = Grant { holder: MY_LIFE, token: Token(claim.0 + 2), seq, term: Span::from_secs(10) };
    bench.hear_with(|d| d.grant = Some(other));
    assert!(!bench.started());
    let before = Grant { token: claim, seq: Seq(1), ..other };
    bench.hear_with(|d| d.grant = Some(before));
    assert!(!bench.started(), "a grant from before the claim was shown");
}
