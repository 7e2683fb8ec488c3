//! Section 6, joining: what every daemon does at its start.

use leasehold::core::*;

use crate::bench::*;

const HEARD: Option<RunTime> = Some(RunTime { had_contact: true, lease: None });

fn second() -> Settings {
    Settings { me: NodeId::Second, ..plain() }
}

fn held_record(standing: Standing) -> Record {
    Record { standing, ..sole_record() }
}

fn left_running(left_ms: i64) -> Option<RunTime> {
    let deadline = Instant(START.0.checked_add_signed(left_ms * 1_000_000).expect("after boot"));
    Some(RunTime { had_contact: true, lease: Some(RunTimeLease { token: Token(2), deadline, sole: false }) })
}

#[test]
fn s6_01_an_unexpired_deadline_of_this_boot_goes_on_as_primary_without_a_break() {
    let bench = Bench::new(plain(), Some(held_record(Standing::Paired)), left_running(3000));
    assert_eq!(bench.role(), Role::Primary);
    assert_eq!(bench.count(|o| matches!(o, Output::AdoptResources { token: Token(2), .. })), 1);
    assert_eq!(bench.count(|o| matches!(o, Output::StopResources { .. })), 0);
}

#[test]
fn s6_02_an_adopted_lease_ends_when_it_would_have_ended() {
    let mut bench = Bench::new(plain(), Some(held_record(Standing::Paired)), left_running(3000));
    bench.silence(20_000);
    let stopped = bench.time_of(|o| matches!(o, Output::StopResources { reason: StopReason::LeaseEnded, .. }));
    assert_eq!(stopped, Some(START.after(Span::from_secs(3))));
}

#[test]
fn s6_02a_what_was_kept_up_without_a_daemon_has_an_end_again_and_the_peer_is_still_not_admitted() {
    let kept = RunTimeLease { token: Token(2), deadline: Instant::NEVER, sole: true };
    let run_time = Some(RunTime { had_contact: true, lease: Some(kept) });
    let record = Record { frozen: true, ..sole_record() };
    let bench = Bench::new(plain(), Some(record), run_time);
    assert_eq!((bench.role(), bench.standing()), (Role::Primary, Standing::Sole));
    assert_eq!(bench.count(|o| matches!(o, Output::StopResources { .. })), 0);
    let right = plain().term.minus(plain().margin);
    assert_eq!(bench.status().lease_left, Some(right));
    assert!(bench.status().frozen && bench.last_sent().admitted.is_none());
}

#[test]
fn s6_03_an_expired_deadline_or_another_token_is_not_gone_on_with() {
    for (record, run_time) in [
        (held_record(Standing::Paired), left_running(-1)),
        (Record { held_token: Token::NONE, ..held_record(Standing::Paired) }, left_running(3000)),
        (held_record(Standing::Out), left_running(3000)),
    ] {
        let bench = Bench::new(plain(), Some(record), run_time);
        assert_eq!(bench.role(), Role::Joining);
        assert_eq!(bench.count(|o| matches!(o, Output::StopResources { reason: StopReason::Joining, .. })), 1);
    }
}

#[test]
fn s6_04_nothing_else_happens_before_every_resource_is_verified_stopped() {
    let settings = Settings { join_fence: true, ..plain() };
    let mut bench = Bench::new_running(settings, Some(sole_record()), HEARD);
    bench.grants = true;
    bench.contact(4000);
    bench.silence(60_000);
    assert_eq!((bench.role(), bench.count(is_fence)), (Role::Joining, 0));
    assert!(bench.sent().iter().all(|d| d.resources_up && d.claim.is_none() && d.grant.is_none()));
}

#[test]
fn s6_05_beside_a_primary_it_becomes_a_standby_and_asks_to_be_admitted() {
    let mut bench = Bench::new(second(), None, None);
    bench.input(Input::Readiness(true));
    bench.peer_is_primary(Token(2));
    bench.contact(1000);
    assert_eq!((bench.role(), bench.last_sent().wish), (Role::Standby, true));
}

#[test]
fn s6_06_of_two_that_hold_nothing_the_freshest_claims() {
    let claims = |mine: u64, peers: u64| {
        let record = Record { held_token: Token(mine), highest_token: Token(9), ..paired_record() };
        let mut bench = Bench::new(plain(), Some(record), None);
        bench.peer.held_token = Token(peers);
        bench.peer.highest_token = Token(9);
        bench.contact(2000);
        bench.last_sent().claim.is_some()
    };
    assert!(claims(8, 5) && claims(6, 6), "at equal the first in the configuration");
    assert!(!claims(4, 5));
}

#[test]
fn s6_07_the_one_that_is_not_the_freshest_grants() {
    let mut bench = Bench::new(second(), None, None);
    bench.contact(2 * H);
    bench.peer.claim = Some(Token(2));
    bench.peer.highest_token = Token(2);
    bench.contact(1000);
    assert_eq!(bench.last_sent().grant.map(|g| (g.holder, g.token)), Some((PEER_LIFE, Token(2))));
}

#[test]
fn s6_08_with_shared_data_only_a_ready_node_claims() {
    let mut bench = Bench::new(plain(), None, None);
    bench.input(Input::Readiness(false));
    bench.contact(3000);
    assert!(bench.sent().iter().all(|d| d.claim.is_none()));
    bench.input(Input::Readiness(true));
    bench.contact(1000);
    assert!(bench.last_sent().claim.is_some());
}

#[test]
fn s6_09_with_shared_data_the_other_claims_where_the_freshest_is_not_ready() {
    let mut bench = Bench::new(second(), None, None);
    bench.peer.ready = false;
    bench.contact(2000);
    assert!(bench.last_sent().claim.is_some());
}

#[test]
fn s6_10_frozen_refuses_no_agreed_start_of_the_node_that_was_primary() {
    for (record, claims) in
        [(held_record(Standing::Sole), true), (Record { standing: Standing::Out, ..paired_record() }, false)]
    {
        let mut bench = Bench::new(plain(), Some(Record { frozen: true, ..record }), None);
        bench.peer.notices.freeze = true;
        bench.contact(3000);
        assert_eq!(bench.last_sent().claim.is_some(), claims, "{record:?}");
    }
}

#[test]
fn s6_11_a_silent_peer_is_given_join_wait() {
    let mut bench = Bench::new(plain(), Some(paired_record()), HEARD);
    bench.silence(4999);
    assert_eq!(bench.count(is_fence), 0);
    bench.silence(1);
    assert_eq!(bench.count(is_fence), 1);
}

#[test]
fn s6_12_between_two_joiners_the_first_in_the_configuration_shoots_first() {
    let mut bench = Bench::new(second(), Some(paired_record()), HEARD);
    bench.silence(5999);
    assert_eq!(bench.count(is_fence), 0);
    bench.silence(1);
    assert_eq!(bench.count(is_fence), 1);
}

#[test]
fn s6_13_a_silent_peer_whose_power_reads_off_is_fenced() {
    let mut bench = Bench::new(plain(), Some(paired_record()), None);
    bench.silence(5100);
    assert_eq!((bench.count(is_probe), bench.count(is_fence)), (1, 0));
    bench.answer_probe(OFF);
    assert_eq!(bench.start().map(|(proof, _)| proof), Some(ProofKind::Fenced));
}

#[test]
fn s6_14_a_powered_on_peer_that_was_never_heard_in_this_boot_is_not_shot_and_it_says_why() {
    let mut bench = Bench::new(plain(), Some(paired_record()), None);
    bench.silence(5100);
    bench.answer_probe(PowerReading::On);
    bench.silence(600_000);
    assert_eq!((bench.count(is_fence), bench.started()), (0, false));
    let because = Hindrance::PoweredOnPeerNeverHeard;
    assert!(bench.events().contains(&Event::Waiting { because }), "K7");
}

#[test]
fn s6_15_join_fence_shoots_it_all_the_same() {
    let mut bench = Bench::new(Settings { join_fence: true, ..plain() }, Some(paired_record()), None);
    bench.silence(5100);
    assert_eq!(bench.count(is_fence), 1);
}

#[test]
fn s6_16_replicated_data_wait_for_the_peer_or_an_operator_even_if_it_reads_off() {
    for standing in [Standing::Paired, Standing::Out] {
        let settings = Settings { data: DataModel::Replicated, join_fence: true, ..plain() };
        let mut bench = Bench::new(settings, Some(Record { standing, ..paired_record() }), HEARD);
        bench.silence(600_000);
        assert_eq!((bench.count(is_fence), bench.started()), (0, false), "{standing:?}");
        assert!(bench.events().contains(&Event::Waiting { because: Hindrance::ReplicatedAlone }));
        let incident = bench.status().incident;
        bench.command(Command::ConfirmFenced { incident, uid: 0 }).unwrap();
        bench.silence(1000);
        assert!(bench.started(), "an operator's word is enough");
    }
}

#[test]
fn s6_17_a_contact_is_noted_for_this_boot() {
    let bench = Bench::standby(plain());
    assert_eq!(bench.count(|o| *o == Output::NoteContact), 1);
}
