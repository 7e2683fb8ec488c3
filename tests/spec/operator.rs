//! Section 6, what an operator asks, and what follows a fence.

use leasehold::core::*;

use crate::bench::*;

fn finished(bench: &Bench) -> bool {
    bench.count(|o| *o == Output::Finished) > 0
}

/// A standby that took over by a fence of node scope, with the resources up.
fn promoted(settings: Settings) -> Bench {
    let mut bench = Bench::standby(settings);
    bench.silence(3000);
    bench.answer_fence(verified(Scope::Node));
    assert!(bench.started());
    bench
}

#[test]
fn s6_70_a_primary_that_is_stopped_hands_over_first() {
    let mut bench = Bench::primary(plain());
    bench.command(Command::Stop).unwrap();
    assert!(bench.events().iter().any(|e| matches!(e, Event::Demoting { reason: StopReason::Handover, .. })));
    assert_eq!(bench.last_sent().release, Some(HELD));
    assert!(!finished(&bench), "it stays until its peer has taken over");
}

#[test]
fn s6_71_a_leaving_standby_keeps_granting_until_acknowledged() {
    let mut bench = Bench::standby(plain());
    bench.command(Command::Stop).unwrap();
    bench.contact(1000);
    assert!(bench.last_sent().notices.leave && bench.last_sent().grant.is_some());
    assert!(!finished(&bench));
    bench.peer.standing = Standing::Sole;
    bench.contact(H);
    assert!(finished(&bench));
}

#[test]
fn s6_72_a_leaving_standby_takes_over_nothing() {
    let mut bench = Bench::standby(plain());
    bench.command(Command::Stop).unwrap();
    bench.silence(60_000);
    assert_eq!((bench.count(is_fence), bench.started()), (0, false));
}

#[test]
fn s6_73_a_leaving_standby_ends_after_leave_timeout_in_any_case() {
    let mut bench = Bench::standby(plain());
    bench.command(Command::Stop).unwrap();
    let asked = bench.now;
    bench.contact(6000);
    let ended = bench.time_of(|o| *o == Output::Finished).expect("ends");
    assert!(ended <= asked.after(Span::from_ms(5250)), "{ended} after {asked}");
}

#[test]
fn s6_74_freeze_makes_the_primary_sole_and_frozen() {
    let mut bench = Bench::primary(plain());
    bench.command(Command::Freeze).unwrap();
    bench.contact(H);
    assert!(bench.last_sent().notices.freeze, "it asks its standby first");
    bench.peer.notices.freeze = true;
    bench.peer.standing = Standing::Out;
    bench.contact(1000);
    assert!(bench.record().frozen && bench.standing() == Standing::Sole);
}

#[test]
fn s6_75_role_changes_are_refused_while_frozen() {
    let mut bench = Bench::primary(plain());
    bench.peer.notices.freeze = true;
    bench.peer.standing = Standing::Out;
    bench.contact(1000);
    let refused = bench.command(Command::Failover { force: false });
    assert_eq!(refused, Err(Refusal::NotNow(Hindrance::Frozen)));
    let forced = bench.command(Command::Failover { force: true });
    assert_eq!(forced, Err(Refusal::NotNow(Hindrance::Frozen)));
}

#[test]
fn s6_76_thaw_waits_for_contact() {
    let mut bench = Bench::primary(plain());
    bench.peer.notices.freeze = true;
    bench.peer.standing = Standing::Out;
    bench.contact(1000);
    bench.silence(5000);
    assert_eq!(bench.command(Command::Thaw), Err(Refusal::NotNow(Hindrance::PeerSilent)));
    assert!(bench.record().frozen);
}

#[test]
fn s6_77_thaw_gives_up_the_lease_free_right_first_durably() {
    let mut bench = Bench::primary(plain());
    bench.peer.notices.freeze = true;
    bench.peer.standing = Standing::Out;
    bench.contact(1000);
    bench.command(Command::Thaw).unwrap();
    let thawed = bench.writes().into_iter().rev().find(|r| !r.frozen).expect("written");
    assert_eq!(thawed.standing, Standing::Paired);
    assert_eq!(bench.last_sent().admitted, None, "the standby has to ask first");
}

/// A frozen pair, seen so by its primary.
fn frozen() -> Bench {
    let mut bench = Bench::primary(plain());
    bench.peer.notices.freeze = true;
    bench.peer.standing = Standing::Out;
    bench.contact(1000);
    assert!(bench.record().frozen && bench.standing() == Standing::Sole);
    bench
}

#[test]
fn s6_77a_resources_are_kept_only_by_a_primary_that_is_frozen_and_hears_that_its_peer_is() {
    let mut bench = Bench::primary(plain());
    assert_eq!(bench.command(Command::StopKeeping), Err(Refusal::NotFrozen));
    bench.command(Command::Freeze).unwrap();
    assert_eq!(bench.command(Command::StopKeeping), Err(Refusal::NotFrozen), "asked for is not durable");

    let mut bench = frozen();
    bench.silence(5000);
    assert_eq!(bench.command(Command::StopKeeping), Err(Refusal::PeerNotFrozen), "it may have been thawed by now");

    let mut bench = frozen();
    bench.peer.wish = true;
    bench.contact(200);
    assert!(bench.command(Command::StopKeeping).is_err(), "it asks to thaw");
}

#[test]
fn s6_77b_what_is_kept_has_no_end_nothing_stops_and_the_next_daemon_gives_it_one_again() {
    let mut bench = frozen();
    bench.forget();
    bench.command(Command::StopKeeping).unwrap();
    let endless = |o: &Output| matches!(o, Output::ArmLease { deadline: Instant::NEVER, sole: true, .. });
    assert!(bench.place(endless) < bench.place(|o| *o == Output::Finished), "the right is recorded before it ends");
    assert_eq!(bench.count(endless), 1);
    assert!(finished(&bench));
    assert_eq!(bench.count(|o| matches!(o, Output::StopResources { .. } | Output::DisarmLease { .. })), 0);
    assert_eq!(bench.command(Command::StopKeeping), Err(Refusal::AlreadyStopping));
}

#[test]
fn s6_78_until_settle_has_passed_there_is_no_handover() {
    let mut bench = promoted(Settings { settle: Span::from_secs(30), ..plain() });
    crate::proofs::reboot_peer(&mut bench);
    bench.grants = true;
    bench.peer.role = Role::Standby;
    bench.peer.wish = true;
    bench.contact(1000);
    bench.peer.wish = false;
    bench.peer.standing = Standing::Paired;
    bench.contact(1000);
    let refused = bench.command(Command::Failover { force: false });
    assert_eq!(refused, Err(Refusal::NotNow(Hindrance::Settling)), "{:#?}", bench.events());
    bench.contact(30_000);
    assert_eq!(bench.command(Command::Failover { force: false }), Ok(()));
}

#[test]
fn s6_79_power_is_off_by_default_and_after_promotion_comes_only_when_settled() {
    let is_on = |o: &Output| matches!(o, Output::PowerOn { .. });
    let mut never = promoted(plain());
    never.silence(600_000);
    assert_eq!(never.count(is_on), 0);
    let power_on = PowerOn::AfterPromotion { limit: 3 };
    let mut bench = promoted(Settings { settle: Span::from_secs(30), power_on, ..plain() });
    let fenced = bench.now;
    bench.silence(60_000);
    assert_eq!(bench.count(is_on), 1);
    assert!(bench.time_of(is_on) >= Some(fenced.after(Span::from_secs(30))));
}

#[test]
fn s6_80_power_on_is_limited_in_number() {
    let mut bench = promoted(Settings { power_on: PowerOn::AfterPromotion { limit: 0 }, ..plain() });
    bench.silence(60_000);
    assert_eq!(bench.count(|o| matches!(o, Output::PowerOn { .. })), 0);
    assert!(bench.events().contains(&Event::PowerOnLimit { limit: 0 }));
}

#[test]
fn s6_81_a_peer_heard_as_primary_from_the_fenced_boot_means_that_the_device_lied() {
    let mut bench = promoted(plain());
    bench.contact(1000);
    assert!(bench.events().contains(&Event::DeviceLied { boot: PEER_BOOT, agents: AgentSet(1) }));
    assert_eq!(bench.record().distrusted, AgentSet(1));
    bench.command(Command::Fence).unwrap();
    let excluded = bench.find(|o| if let Output::StartFence { excluded, .. } = o { Some(*excluded) } else { None });
    assert_eq!(excluded, Some(AgentSet(1)), "it proves nothing more");
    bench.command(Command::ClearAlarms).unwrap();
    assert_eq!(bench.record().distrusted, AgentSet::EMPTY);
}

#[test]
fn s6_82_a_peer_from_another_boot_does_not() {
    let mut bench = promoted(plain());
    bench.peer.boot = BootId([3; 16]);
    bench.peer.incarnation = Incarnation(2002);
    bench.contact(1000);
    assert!(!bench.events().iter().any(|e| matches!(e, Event::DeviceLied { .. })));
}

#[test]
fn s6_83_a_late_datagram_from_before_the_fence_is_no_lie() {
    let mut bench = Bench::standby(plain());
    bench.silence(H);
    let late = bench.next_from_peer();
    bench.silence(700);
    bench.answer_probe(OFF);
    assert!(bench.started());
    bench.input(Input::Datagram(late));
    assert!(!bench.events().iter().any(|e| matches!(e, Event::DeviceLied { .. })), "{:#?}", bench.events());
}

#[test]
fn s6_84_a_lie_that_is_heard_before_the_start_is_an_alarm_too() {
    let mut bench = Bench::standby(Settings { promote_after: PromoteAfter::FenceAndLease, ..plain() });
    bench.silence(3000);
    bench.answer_fence(verified(Scope::Node));
    bench.silence(2000);
    bench.contact(1000);
    assert!(!bench.started());
    assert!(bench.events().iter().any(|e| matches!(e, Event::DeviceLied { .. })), "{:#?}", bench.events());
}

#[test]
fn s6_85_a_primary_heard_after_a_fence_of_resource_scope_is_no_lie() {
    let mut bench = Bench::standby(exclusive());
    bench.peer.standing = Standing::Sole;
    bench.contact(1000);
    bench.silence(3000);
    bench.answer_fence(verified(Scope::Resource));
    bench.silence(10_000);
    bench.answer_highest(Some(Token(3)));
    bench.answer_take(TakeResult::Taken);
    assert!(bench.started());
    bench.contact(H);
    assert!(!bench.events().iter().any(|e| matches!(e, Event::DeviceLied { .. })), "{:#?}", bench.events());
}

#[test]
fn s1_22_an_operators_fence_waits_for_the_token_that_it_takes_with_it() {
    let mut bench = Bench::standby(Settings { plan: Plan::Exclusive, ..plain() });
    let takes = |bench: &Bench| bench.count(|o| matches!(o, Output::StartFence { take: Some(_), .. }));
    bench.disk = false;
    bench.command(Command::Fence).unwrap();
    assert_eq!(takes(&bench), 0, "the token is not durable yet");
    assert!(bench.command(Command::Fence).is_err(), "one order at a time");
    bench.hear();
    bench.sync();
    assert_eq!(takes(&bench), 1, "contact does not lose the order: {:#?}", bench.events());
    let shots = bench.events().iter().filter(|event| **event == Event::OperatorFence).count();
    assert_eq!(shots, 1);
}
