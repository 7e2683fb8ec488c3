//! Section 2, time: the promise, the right, and what each parameter delays.

use leasehold::core::*;

use crate::bench::*;

fn deadline(bench: &Bench) -> Instant {
    let armed = bench.find(|o| if let Output::ArmLease { deadline, .. } = o { Some(*deadline) } else { None });
    armed.expect("a primary arms its lease")
}

/// A primary in contact, whose peer grants nothing any more; when its right ends.
fn primary_without_grants() -> (Bench, Instant) {
    let mut bench = Bench::primary(plain());
    bench.grants = false;
    let end = deadline(&bench);
    (bench, end)
}

fn grant_for(bench: &Bench) -> Grant {
    let last = bench.last_sent();
    Grant { holder: MY_LIFE, token: last.held_token, seq: last.seq, term: Span::from_secs(10) }
}

#[test]
fn s2_01_the_promise_runs_for_t_from_the_receipt_of_any_authentic_datagram() {
    let mut bench = Bench::standby(plain());
    assert_eq!(bench.node.promised_until(), bench.now.after(Span::from_secs(10)));
    bench.silence(5000);
    bench.hear_with(|d| d.echo = None);
    assert_eq!(bench.node.promised_until(), bench.now.after(Span::from_secs(10)), "a hello prolongs it too");
}

#[test]
fn s2_02_an_exact_replay_does_not_prolong_the_promise() {
    let mut bench = Bench::standby(plain());
    let replayed = bench.next_from_peer();
    bench.input(Input::Datagram(replayed));
    let promised = bench.node.promised_until();
    bench.silence(5000);
    bench.input(Input::Datagram(replayed));
    assert_eq!(bench.node.promised_until(), promised);
}

#[test]
fn s2_03_a_daemon_that_forgot_its_promises_keeps_them_for_t_after_its_start() {
    let settings = Settings { promote_after: PromoteAfter::FenceAndLease, me: NodeId::Second, ..plain() };
    let run_time = RunTime { had_contact: true, lease: None };
    let mut bench = Bench::new(settings, Some(paired_record()), Some(run_time));
    bench.silence(6500);
    bench.answer_fence(verified(Scope::Node));
    bench.silence(60_000);
    assert_eq!(bench.time_of(is_start), Some(START.after(Span::from_secs(10))));
}

#[test]
fn s2_04_the_right_lasts_t_minus_m_from_the_sending_of_the_renewal() {
    let mut bench = Bench::primary(plain());
    bench.silence(H);
    let (sent_at, _) = *bench.log.iter().rev().find(|(_, o)| matches!(o, Output::Send(_))).unwrap();
    let datagram = bench.next_from_peer();
    bench.silence(100);
    // The heartbeat of this moment was granted; its grant arrives later.
    bench.input(Input::Datagram(datagram));
    assert_eq!(deadline(&bench), sent_at.after(Span::from_secs(6)));
}

#[test]
fn s2_05_a_primary_in_contact_but_without_grants_stops_at_the_end_of_its_right() {
    let (mut bench, end) = primary_without_grants();
    bench.contact(10_000);
    let stopped = bench.time_of(|o| matches!(o, Output::StopResources { reason: StopReason::LeaseEnded, .. }));
    assert_eq!(stopped, Some(end));
}

#[test]
fn s2_06_a_start_beside_a_living_peer_asks_for_a_fresh_grant_when_its_lease_is_over() {
    let mut bench = Bench::new(Settings { plan: Plan::Node { access: true }, ..plain() }, None, None);
    bench.grants = true;
    bench.contact(2 * H);
    bench.grants = false;
    bench.contact(8000);
    bench.answer_access(true);
    bench.contact(1000);
    assert!(!bench.started(), "the lease of the claim is over");
    bench.grants = true;
    bench.contact(1000);
    assert!(bench.started(), "{:#?}", bench.events());
}

#[test]
fn s2_07_a_grant_is_bound_to_holder_token_and_sequence() {
    let changes: [fn(&mut Grant); 3] =
        [|g| g.holder = Incarnation(5), |g| g.token = Token(4), |g| g.seq = Seq(g.seq.0 + 1000)];
    for change in changes {
        let (mut bench, end) = primary_without_grants();
        bench.silence(H);
        let mut grant = grant_for(&bench);
        change(&mut grant);
        bench.hear_with(|d| d.grant = Some(grant));
        assert_eq!(deadline(&bench), end, "{grant:?}");
    }
}

#[test]
fn s2_08_the_holder_uses_the_smaller_of_both_terms() {
    for (term, right) in [(8, 4), (10, 6), (60, 6)] {
        let mut bench = Bench::primary(plain());
        bench.silence(5000);
        let sent_at = bench.log.iter().rev().find(|(_, o)| matches!(o, Output::Send(_))).unwrap().0;
        let grant = Grant { term: Span::from_secs(term), ..grant_for(&bench) };
        bench.hear_with(|d| d.grant = Some(grant));
        let end = sent_at.after(Span::from_secs(right));
        assert_eq!(deadline(&bench), end, "a term of {term}s");
    }
}

#[test]
fn s2_09_a_shortened_term_is_waited_by_only_after_the_longer_one_has_passed() {
    let record = Record { longest_term: Span::from_secs(25), ..paired_record() };
    let bench = Bench::new(Settings { me: NodeId::Second, ..plain() }, Some(record), None);
    assert_eq!(bench.node.promised_until(), START.after(Span::from_secs(25)));
}

#[test]
fn s2_10_duplicate_old_and_reordered_grants_extend_nothing() {
    let mut bench = Bench::primary(plain());
    bench.silence(H);
    let (first, second) = (bench.next_from_peer(), {
        bench.silence(H);
        bench.next_from_peer()
    });
    bench.input(Input::Datagram(second));
    let end = deadline(&bench);
    bench.input(Input::Datagram(first));
    bench.silence(100);
    bench.input(Input::Datagram(second));
    assert_eq!(deadline(&bench), end);
}

#[test]
fn s2_11_from_half_of_d_on_the_peer_is_doubtful_and_from_d_on_lost() {
    let mut bench = Bench::standby(plain());
    let since = Instant(bench.now.0 - bench.status().silence.0);
    bench.silence(5000);
    let told = |is: fn(&Event) -> bool| bench.time_of(|o| matches!(o, Output::Report(e) if is(e)));
    assert_eq!(told(|e| matches!(e, Event::PeerDoubtful { .. })), Some(since.after(Span::from_ms(750))));
    assert_eq!(told(|e| matches!(e, Event::PeerLost { .. })), Some(since.after(Span::from_ms(1500))));
}

#[test]
fn s2_12_each_node_sends_at_every_interval() {
    let mut bench = Bench::standby(plain());
    bench.forget();
    bench.silence(1000);
    assert_eq!(bench.sent().len() - 1, 4);
}

#[test]
fn s2_13_the_second_shooter_waits_for_the_head_start_longer() {
    for (first, standby_ms, primary_ms) in [(FirstShooter::Primary, 2500, 1500), (FirstShooter::Standby, 1500, 2500)] {
        let settings = Settings { first_shooter: first, ..plain() };
        for (mut bench, wait) in [(Bench::standby(settings), standby_ms), (Bench::primary(settings), primary_ms)] {
            let since = Instant(bench.now.0 - bench.status().silence.0);
            bench.forget();
            bench.silence(4000);
            assert_eq!(bench.time_of(is_fence), Some(since.after(Span::from_ms(wait))), "{first:?} {:?}", bench.role());
        }
    }
}

#[test]
fn s2_14_after_any_gap_the_first_act_is_the_comparison_with_the_deadline() {
    let mut bench = Bench::primary(plain());
    bench.stops = false;
    bench.forget();
    bench.now = deadline(&Bench::primary(plain())).after(Span::from_secs(3600));
    let datagram = bench.next_from_peer();
    bench.input(Input::Datagram(datagram));
    assert!(matches!(bench.log[1].1, Output::Report(Event::Demoting { reason: StopReason::LeaseEnded, .. })));
    assert_eq!(bench.role(), Role::Demoting);
}

#[test]
fn s2_15_an_attempt_of_a_standby_is_bounded_by_f() {
    let mut bench = Bench::standby(plain());
    bench.silence(3000);
    let deadline = bench.find(|o| if let Output::StartFence { deadline, .. } = o { Some(*deadline) } else { None });
    assert_eq!(deadline, bench.time_of(is_fence).map(|at| at.after(Span::from_secs(2))));
}

#[test]
fn s2_16_nodes_whose_configurations_differ_take_nothing_over() {
    let mut bench = Bench::standby(plain());
    bench.peer.digest = Digest([9; 16]);
    bench.contact(H);
    bench.silence(60_000);
    assert_eq!((bench.count(is_fence), bench.started()), (0, false));
    assert!(bench.events().contains(&Event::DigestDiffers));
}

#[test]
fn s2_17_a_running_primary_is_not_stopped_by_another_configuration() {
    let mut bench = Bench::primary(plain());
    bench.peer.digest = Digest([9; 16]);
    bench.contact(20_000);
    assert_eq!(bench.role(), Role::Primary);
}
