//! Section 6, demoting and the handover.

use leasehold::core::*;

use crate::bench::*;

fn is_stop(output: &Output) -> bool {
    matches!(output, Output::StopResources { .. })
}

fn fixed_deadline(bench: &Bench) -> Option<Instant> {
    bench.find(|o| if let Output::DisarmLease { deadline } = o { Some(*deadline) } else { None })
}

fn handing_over() -> Bench {
    let mut bench = Bench::primary(plain());
    bench.stops = false;
    bench.forget();
    bench.command(Command::Failover { force: false }).unwrap();
    bench
}

#[test]
fn s6_60_the_run_time_record_goes_and_clients_are_cut_before_the_first_resource_stops() {
    let bench = handing_over();
    let disarm = bench.place(|o| matches!(o, Output::DisarmLease { .. }));
    let cut = bench.place(|o| *o == Output::CutClients);
    assert!(disarm.is_some() && disarm < cut && cut < bench.place(is_stop), "K6");
}

#[test]
fn s6_61_the_deadline_is_fixed_where_it_is_and_moves_no_more() {
    let mut bench = Bench::primary(plain());
    let end = bench.find(|o| if let Output::ArmLease { deadline, .. } = o { Some(*deadline) } else { None });
    bench.stops = false;
    bench.forget();
    bench.command(Command::Failover { force: false }).unwrap();
    assert_eq!(fixed_deadline(&bench), end);
    bench.contact(5000);
    assert_eq!(bench.count(|o| matches!(o, Output::ArmLease { .. })), 0);
}

#[test]
fn s6_62_for_a_stale_primary_the_deadline_is_now() {
    let mut bench = Bench::primary(plain());
    bench.silence(H);
    bench.hear_with(|d| {
        d.role = Role::Primary;
        d.holding = true;
        d.held_token = Token(9);
        d.highest_token = Token(9);
    });
    assert_eq!(fixed_deadline(&bench), Some(bench.now));
}

#[test]
fn s6_63_released_is_shown_only_when_the_stop_is_verified() {
    let mut bench = handing_over();
    bench.grants = false;
    bench.contact(3000);
    assert!(bench.sent()[1..].iter().all(|d| d.release.is_none() && d.holding && d.resources_up));
    let epoch = bench.find(|o| if let Output::StopResources { epoch, .. } = o { Some(*epoch) } else { None });
    bench.input(Input::ResourcesStopped(epoch.expect("stopping")));
    assert_eq!((bench.role(), bench.last_sent().release), (Role::Standby, Some(HELD)));
    assert!(!bench.last_sent().resources_up && !bench.last_sent().holding);
}

#[test]
fn s6_64_a_stop_that_cannot_be_verified_releases_nothing() {
    let mut bench = handing_over();
    let epoch = bench.find(|o| if let Output::StopResources { epoch, .. } = o { Some(*epoch) } else { None });
    bench.input(Input::StopStuck(epoch.expect("stopping")));
    bench.contact(60_000);
    assert_eq!((bench.role(), bench.last_sent().release), (Role::Demoting, None));
}

#[test]
fn s6_65_a_refused_handover_is_named_by_the_one_that_cannot() {
    let mut bench = Bench::standby(plain());
    bench.input(Input::Readiness(false));
    bench.peer_releases(Token(2));
    bench.contact(1000);
    assert_eq!(bench.last_sent().notices.cannot, Some(Token(2)));
    assert!(!bench.started());
}

#[test]
fn s6_66_after_cannot_both_settle_and_the_releaser_claims() {
    let mut bench = Bench::primary(plain());
    bench.command(Command::Failover { force: false }).unwrap();
    bench.forget();
    bench.peer.notices.cannot = Some(HELD);
    bench.peer.standing = Standing::Out;
    bench.contact(2000);
    assert!(matches!(bench.start(), Some((ProofKind::Agreed, token)) if token > HELD), "{:#?}", bench.events());
}

#[test]
fn s6_67_without_cannot_the_releaser_waits_d_plus_4h_before_it_claims() {
    let mut bench = Bench::primary(plain());
    bench.command(Command::Failover { force: false }).unwrap();
    let released = bench.now;
    bench.grants = false;
    bench.forget();
    bench.contact(4000);
    let claimed = bench.time_of(|o| matches!(o, Output::Send(d) if d.claim.is_some())).expect("claims in the end");
    assert!(claimed >= released.after(Span::from_ms(2500)), "K23: {claimed} after {released}");
}

#[test]
fn s6_68_a_handover_is_refused_where_the_standby_could_not_take_it() {
    let mut bench = Bench::primary(plain());
    bench.peer.ready = false;
    bench.contact(H);
    let refused = bench.command(Command::Failover { force: false });
    assert_eq!(refused, Err(Refusal::NotNow(Hindrance::PeerNotReady)));
    assert_eq!(bench.role(), Role::Primary);
}

#[test]
fn s6_69_a_failed_start_demotes_and_is_not_ready_for_a_while() {
    let mut bench = Bench::new(plain(), None, None);
    bench.starts = false;
    bench.grants = true;
    bench.contact(4 * H);
    let epoch = bench.find(|o| if let Output::StartResources { epoch, .. } = o { Some(*epoch) } else { None });
    bench.input(Input::ResourcesFailed(epoch.expect("starting")));
    bench.grants = false;
    bench.contact(2000);
    assert_eq!((bench.role(), bench.status().ready), (Role::Standby, false));
}
