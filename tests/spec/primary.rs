//! Section 6, the primary: under a lease, or alone; and what it does about a silent standby.

use leasehold::core::*;

use crate::bench::*;

fn armed(bench: &Bench) -> Vec<(Instant, Instant, bool)> {
    let arm = |at: Instant, o: &Output| match o {
        Output::ArmLease { deadline, sole, .. } => Some((at, *deadline, *sole)),
        _ => None,
    };
    bench.log.iter().filter_map(|(at, o)| arm(*at, o)).collect()
}

fn sole() -> Bench {
    let mut bench = Bench::primary(plain());
    bench.silence(2000);
    bench.answer_fence(verified(Scope::Node));
    assert_eq!((bench.role(), bench.standing()), (Role::Primary, Standing::Sole));
    bench
}

#[test]
fn s6_40_the_lease_is_armed_before_the_first_resource_starts() {
    let bench = Bench::primary(plain());
    let arm = bench.place(|o| matches!(o, Output::ArmLease { sole: false, .. }));
    assert!(arm.is_some() && arm < bench.place(is_start));
}

#[test]
fn s6_41_paired_it_acts_only_while_its_lease_is_valid() {
    let mut bench = Bench::primary(Settings { plan: Plan::ConfirmOnly, ..plain() });
    let end = armed(&bench).last().unwrap().1;
    bench.silence(30_000);
    let stop = bench.time_of(|o| matches!(o, Output::StopResources { reason: StopReason::LeaseEnded, .. }));
    assert_eq!(stop, Some(end));
}

#[test]
fn s6_42_at_half_of_d_it_asks_for_the_status_and_after_d_it_shoots() {
    let mut bench = Bench::primary(plain());
    let since = Instant(bench.now.0 - bench.status().silence.0);
    bench.forget();
    bench.silence(3000);
    assert_eq!(bench.time_of(is_probe), Some(since.after(Span::from_ms(750))));
    assert_eq!(bench.time_of(is_fence), Some(since.after(Span::from_ms(1500))));
}

#[test]
fn s6_43_its_attempt_ends_before_its_lease_does() {
    let mut bench = Bench::primary(plain());
    let end = armed(&bench).last().unwrap().1;
    bench.silence(3000);
    let deadline = bench.find(|o| if let Output::StartFence { deadline, .. } = o { Some(*deadline) } else { None });
    assert!(deadline.is_some_and(|d| d <= end));
}

#[test]
fn s6_44_it_does_not_shoot_when_the_attempt_could_not_end_before_the_lease_does() {
    let mut bench = Bench::primary(Settings { fence_bound: Span::from_secs(5), ..plain() });
    bench.silence(5900);
    assert_eq!((bench.count(is_fence), bench.role()), (0, Role::Primary));
    assert!(bench.events().iter().any(|e| matches!(e, Event::AttemptTooLate { .. })));
}

#[test]
fn s6_45_proof_in_hand_and_the_lease_not_over_it_writes_sole_and_goes_on_without_a_break() {
    let mut bench = sole();
    bench.silence(600_000);
    assert_eq!(bench.role(), Role::Primary);
    assert_eq!(bench.count(|o| *o == Output::CutClients), 0);
}

#[test]
fn s6_46_it_acts_as_sole_only_when_that_is_durable() {
    let mut bench = Bench::primary(plain());
    bench.silence(2000);
    bench.disk = false;
    bench.answer_fence(verified(Scope::Node));
    bench.silence(20_000);
    assert!(armed(&bench).iter().all(|(_, _, sole)| !sole));
    assert_ne!(bench.role(), Role::Primary, "the disk was slower than the lease");
}

#[test]
fn s6_47_a_proof_after_the_leases_end_serves_a_former_primary_with_a_new_token() {
    let mut bench = Bench::primary(plain());
    bench.stops = false;
    bench.silence(2000);
    bench.silence(10_000);
    assert_eq!(bench.role(), Role::Demoting);
    bench.answer_fence(verified(Scope::Node));
    assert_eq!(bench.count(is_start), 1, "it finishes stopping first");
    let epoch = bench.find(|o| if let Output::StopResources { epoch, .. } = o { Some(*epoch) } else { None });
    bench.input(Input::ResourcesStopped(epoch.expect("stopping")));
    assert_eq!(bench.count(is_start), 2, "{:#?}", bench.events());
    assert_eq!(bench.start(), Some((ProofKind::Fenced, Token(4))));
}

#[test]
fn s6_48_sole_moves_the_deadline_to_now_plus_t_minus_m_at_each_interval() {
    let mut bench = sole();
    bench.forget();
    bench.silence(2000);
    let armed = armed(&bench);
    assert_eq!(armed.len(), 8);
    assert!(armed.iter().all(|(at, deadline, sole)| *sole && *deadline == at.after(Span::from_secs(6))));
}

#[test]
fn s6_49_leaving_sole_sets_the_deadline_to_the_first_lease() {
    let mut bench = sole();
    bench.peer.wish = true;
    bench.peer.standing = Standing::Out;
    bench.grants = false;
    bench.contact(1000);
    assert_eq!(bench.standing(), Standing::Paired);
    let (at, deadline, sole) = *armed(&bench).last().unwrap();
    assert!(!sole && deadline <= at.after(Span::from_secs(6)));
}

#[test]
fn s6_50_if_no_grant_follows_the_peer_has_to_be_proven_harmless_again() {
    let mut bench = sole();
    bench.peer.wish = true;
    bench.peer.standing = Standing::Out;
    bench.grants = false;
    bench.contact(1000);
    bench.forget();
    bench.silence(2000);
    assert_eq!(bench.count(is_fence), 1);
    bench.answer_fence(FenceResult::Refused { highest: None });
    bench.silence(10_000);
    assert_ne!(bench.role(), Role::Primary);
}

#[test]
fn s6_51_contact_before_sole_is_written_voids_the_proof() {
    let mut bench = Bench::primary(plain());
    bench.silence(2000);
    bench.disk = false;
    bench.answer_fence(verified(Scope::Node));
    bench.hear();
    bench.disk = true;
    bench.sync();
    bench.contact(2000);
    assert_eq!((bench.role(), bench.standing()), (Role::Primary, Standing::Paired));
    assert!(!bench.events().iter().any(|e| matches!(e, Event::WentSole { .. })));
}

#[test]
fn s6_52_a_primary_whose_peer_left_is_frozen_or_not_ready_goes_sole() {
    let changes: [fn(&mut Datagram); 3] =
        [|d| d.notices.leave = true, |d| d.notices.freeze = true, |d| d.ready = false];
    for change in changes {
        let mut bench = Bench::primary(plain());
        bench.grants = false;
        bench.peer.standing = Standing::Out;
        change(&mut bench.peer);
        bench.contact(20_000);
        assert_eq!((bench.role(), bench.standing()), (Role::Primary, Standing::Sole));
    }
}

#[test]
fn s6_53_a_primary_grants_and_releases_nothing() {
    let mut bench = Bench::primary(plain());
    bench.contact(2000);
    let acting = bench.place(is_start).expect("started");
    let later =
        bench.log.iter().skip(acting).filter_map(|(_, o)| if let Output::Send(d) = o { Some(*d) } else { None });
    assert!(later.clone().count() > 4);
    assert!(later.into_iter().all(|d| d.grant.is_none() && d.release.is_none() && d.claim.is_none()));
}

#[test]
fn s6_54_a_start_that_outlasts_its_lease_is_given_up() {
    let mut bench = Bench::new(Settings { plan: Plan::ConfirmOnly, ..plain() }, None, None);
    bench.starts = false;
    bench.grants = true;
    bench.contact(4 * H);
    assert!(bench.started());
    bench.silence(10_000);
    let reason = StopReason::LostLeaseDuringStart;
    assert_eq!(bench.count(|o| matches!(o, Output::StopResources { reason: r, .. } if *r == reason)), 1);
}

#[test]
fn s6_55_a_changed_generation_id_stops_any_primary_sole_too() {
    for input in [Input::GenerationIdChanged, Input::WallClockJumped] {
        for mut bench in [Bench::primary(plain()), sole()] {
            bench.stops = false;
            bench.input(input);
            assert_eq!(bench.role(), Role::Demoting);
        }
    }
}

#[test]
fn s6_56_a_primary_that_stops_while_its_attempt_is_under_way_shows_no_release_before_that_ends() {
    let mut bench = Bench::primary(plain());
    bench.silence(2000);
    let epoch = bench.find(|o| if let Output::StartResources { epoch, .. } = o { Some(*epoch) } else { None });
    bench.input(Input::ResourcesFailed(epoch.expect("up")));
    bench.silence(H);
    assert_eq!((bench.role(), bench.last_sent().release), (Role::Standby, None));
}
