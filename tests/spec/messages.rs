//! Section 5, messages: which datagrams count, and what is shown for how long.

use leasehold::core::*;

use crate::bench::*;

/// How long the peer has been silent, before and after this datagram: shorter if it counted.
fn counts(bench: &mut Bench, datagram: Datagram) -> bool {
    let before = bench.status().peer.map(|p| (p.incarnation, p.seq));
    bench.input(Input::Datagram(datagram));
    bench.status().peer.map(|p| (p.incarnation, p.seq)) != before
}

#[test]
fn s5_01_a_renewal_is_answered_at_once() {
    let mut bench = Bench::standby(plain());
    bench.silence(100);
    bench.forget();
    bench.hear();
    let answer = bench.sent()[1];
    assert_eq!(answer.grant.map(|g| g.seq), Some(bench.peer.seq));
}

#[test]
fn s5_02_a_datagram_counts_only_if_it_echoes_one_of_my_present_incarnation() {
    let mut bench = Bench::standby(plain());
    let fresh = bench.next_from_peer();
    assert!(!counts(&mut bench, Datagram { echo: None, ..fresh }));
    let fresh = bench.next_from_peer();
    let former = fresh.echo.map(|e| Echo { incarnation: Incarnation(5), ..e });
    assert!(!counts(&mut bench, Datagram { echo: former, ..fresh }));
    let fresh = bench.next_from_peer();
    let unsent = fresh.echo.map(|e| Echo { seq: Seq(e.seq.0 + 1), ..e });
    assert!(!counts(&mut bench, Datagram { echo: unsent, ..fresh }));
    let fresh = bench.next_from_peer();
    assert!(counts(&mut bench, fresh));
}

#[test]
fn s5_03_a_datagram_counts_only_if_what_it_echoes_was_sent_at_most_d_ago() {
    for (age, expected) in [(1500, true), (1501, false)] {
        let mut bench = Bench::standby(plain());
        bench.silence(H);
        let (sent_at, _) = *bench.log.iter().rev().find(|(_, o)| matches!(o, Output::Send(_))).unwrap();
        let late = bench.next_from_peer();
        bench.silence(age - bench.now.since(sent_at).as_ms());
        assert_eq!(counts(&mut bench, late), expected, "{age} ms");
    }
}

#[test]
fn s5_04_of_one_incarnation_only_a_higher_sequence_counts() {
    let mut bench = Bench::standby(plain());
    let first = bench.next_from_peer();
    let second = bench.next_from_peer();
    assert!(counts(&mut bench, second));
    assert!(!counts(&mut bench, first));
    assert!(!counts(&mut bench, second));
}

#[test]
fn s5_05_of_one_incarnation_only_an_echo_not_below_the_last_counts() {
    let mut bench = Bench::standby(plain());
    let older = bench.next_from_peer().echo;
    bench.contact(H);
    let fresh = bench.next_from_peer();
    assert!(!counts(&mut bench, Datagram { echo: older, ..fresh }));
}

#[test]
fn s5_06_a_new_incarnation_counts_only_if_it_echoes_what_was_sent_after_the_former_was_last_accepted() {
    let mut bench = Bench::standby(plain());
    let at_acceptance = bench.next_from_peer();
    bench.input(Input::Datagram(at_acceptance));
    let other = Datagram { incarnation: Incarnation(2002), seq: Seq(1), ..at_acceptance };
    assert!(!counts(&mut bench, other), "K3");
    bench.silence(H);
    let echo = Some(Echo { incarnation: MY_LIFE, seq: bench.last_sent().seq });
    assert!(counts(&mut bench, Datagram { seq: Seq(2), echo, ..other }));
}

#[test]
fn s5_07_a_late_notice_of_a_former_incarnation_changes_nothing() {
    let mut bench = Bench::primary(plain());
    let leave = bench.next_from_peer();
    let leave = Datagram { standing: Standing::Out, notices: Notices { leave: true, ..leave.notices }, ..leave };
    bench.silence(H);
    bench.peer = Datagram { incarnation: Incarnation(2002), seq: Seq(0), ..bench.peer };
    bench.contact(1000);
    bench.input(Input::Datagram(leave));
    bench.contact(H);
    assert_eq!(bench.standing(), Standing::Paired);
}

#[test]
fn s5_08_a_hello_is_answered_and_otherwise_ignored() {
    let mut bench = Bench::standby(plain());
    bench.silence(200);
    bench.forget();
    bench.hear_with(|d| {
        d.echo = None;
        d.notices.freeze = true;
        d.release = Some(Token(2));
        d.highest_token = Token(90);
    });
    assert_eq!(bench.sent().len() - 1, 1, "answered at once");
    assert_eq!(bench.record().highest_token, Token(2));
    assert!(!bench.started() && !bench.status().frozen);
}

#[test]
fn s5_09_contact_is_dated_by_the_sending_of_the_newest_that_was_echoed() {
    let mut bench = Bench::standby(plain());
    bench.silence(H);
    let (sent_at, _) = *bench.log.iter().rev().find(|(_, o)| matches!(o, Output::Send(_))).unwrap();
    let late = bench.next_from_peer();
    bench.silence(600);
    bench.input(Input::Datagram(late));
    assert_eq!(bench.status().silence, bench.now.since(sent_at), "K12");
}

#[test]
fn s5_10_the_echo_names_the_highest_received_counted_or_not() {
    let mut bench = Bench::standby(plain());
    bench.silence(2000);
    bench.hear_with(|d| d.echo = None);
    bench.silence(H);
    let echo = Echo { incarnation: PEER_LIFE, seq: bench.peer.seq };
    assert_eq!(bench.last_sent().echo, Some(echo), "K22");
}

#[test]
fn s5_11_else_the_echo_names_the_last_hello() {
    let mut bench = Bench::standby(plain());
    bench.silence(H);
    bench.hear_with(|d| {
        d.incarnation = Incarnation(2002);
        d.seq = Seq(9);
        d.echo = None;
    });
    bench.silence(H);
    assert_eq!(bench.last_sent().echo, Some(Echo { incarnation: Incarnation(2002), seq: Seq(9) }));
}

#[test]
fn s5_12_a_release_is_repeated_while_contact_lasts() {
    let mut bench = Bench::primary(plain());
    bench.peer.ready = true;
    bench.command(Command::Failover { force: false }).unwrap();
    bench.forget();
    bench.grants = false;
    bench.peer.role = Role::TakingOver;
    bench.peer.activity = Activity::Proof;
    bench.contact(5000);
    assert!(bench.sent()[1..].iter().all(|d| d.release == Some(HELD)));
}

#[test]
fn s5_13_a_release_is_withdrawn_before_a_grant() {
    let mut bench = Bench::primary(plain());
    bench.command(Command::Failover { force: false }).unwrap();
    bench.grants = false;
    bench.peer_is_primary(Token(5));
    bench.contact(1000);
    assert!(bench.last_sent().grant.is_some());
    assert!(bench.sent().iter().all(|d| d.grant.is_none() || d.release.is_none()));
}

#[test]
fn s5_14_a_release_is_withdrawn_before_an_attempt_and_before_a_claim() {
    let mut bench = Bench::primary(plain());
    bench.command(Command::Failover { force: false }).unwrap();
    bench.silence(5000);
    assert_eq!((bench.count(is_fence), bench.last_sent().release), (1, None));
    let mut bench = Bench::primary(plain());
    bench.command(Command::Failover { force: false }).unwrap();
    bench.peer.notices.cannot = Some(HELD);
    bench.contact(3000);
    assert!(bench.sent().iter().any(|d| d.claim.is_some()));
    assert!(bench.sent().iter().all(|d| d.claim.is_none() || d.release.is_none()));
}

#[test]
fn s5_15_my_own_datagram_reflected_is_nothing() {
    let mut bench = Bench::standby(plain());
    bench.silence(2000);
    let promised = bench.node.promised_until();
    let mine = *bench.last_sent();
    bench.input(Input::Datagram(mine));
    assert_eq!(bench.node.promised_until(), promised);
}
