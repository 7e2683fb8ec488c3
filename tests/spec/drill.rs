//! Section 6, after a fence: the drill, which fences a healthy standby and brings it back.

use leasehold::core::*;

use crate::bench::*;

fn powers_on(bench: &Bench) -> usize {
    bench.count(|o| matches!(o, Output::PowerOn { .. }))
}

fn settling(ms: u64) -> Settings {
    Settings { settle: Span::from_ms(ms), ..plain() }
}

/// A primary whose drill has just read its standby off; the standby is silent from now on.
fn fenced(settings: Settings) -> Bench {
    let mut bench = Bench::primary(settings);
    bench.command(Command::Drill).unwrap();
    assert_eq!(bench.count(is_fence), 1);
    bench.contact(H);
    bench.answer_fence(verified(Scope::Node));
    bench
}

/// The silent standby is proven harmless by its power, as always.
fn alone(bench: &mut Bench) {
    bench.silence(900);
    bench.answer_probe(OFF);
    assert_eq!((bench.role(), bench.standing()), (Role::Primary, Standing::Sole), "{:#?}", bench.events());
}

#[test]
fn s6_86_a_drill_is_refused_on_a_standby_and_without_one_that_could_take_over() {
    let mut standby = Bench::standby(plain());
    assert_eq!(standby.command(Command::Drill), Err(Refusal::NotPrimary));
    let mut bench = Bench::primary(plain());
    bench.peer.ready = false;
    bench.contact(H);
    assert_eq!(bench.command(Command::Drill), Err(Refusal::NotNow(Hindrance::PeerNotReady)));
    bench.peer.ready = true;
    bench.silence(5000);
    assert_eq!(bench.command(Command::Drill), Err(Refusal::NotNow(Hindrance::PeerSilent)));
    assert!(!bench.events().contains(&Event::DrillBegun));
}

#[test]
fn s6_87_a_plan_without_node_scope_has_nothing_to_drill() {
    for settings in [exclusive(), yielding()] {
        let mut bench = Bench::primary(settings);
        assert_eq!(bench.command(Command::Drill), Err(Refusal::NothingToDrill));
    }
}

#[test]
fn s6_88_the_fence_of_a_drill_is_no_proof_while_the_standby_is_heard() {
    let mut bench = fenced(plain());
    assert_eq!(bench.standing(), Standing::Paired, "{:#?}", bench.events());
    assert_eq!(powers_on(&bench), 0);
    alone(&mut bench);
}

#[test]
fn s6_89_the_standby_is_switched_on_once_and_only_when_sole_and_settled() {
    let mut bench = fenced(settling(5000));
    let off = bench.now;
    alone(&mut bench);
    assert_eq!(powers_on(&bench), 0, "an `off` may still land");
    bench.silence(30_000);
    assert_eq!(powers_on(&bench), 1);
    assert!(bench.time_of(|o| matches!(o, Output::PowerOn { .. })) >= Some(off.after(Span::from_ms(5000))));
}

#[test]
fn s6_90_a_drill_is_over_when_a_handover_would_work_again() {
    let mut bench = fenced(plain());
    alone(&mut bench);
    bench.silence(5000);
    crate::proofs::reboot_peer(&mut bench);
    bench.peer.wish = true;
    bench.peer.standing = Standing::Out;
    bench.contact(H);
    assert!(!bench.events().contains(&Event::DrillDone), "not admitted yet");
    bench.contact(1000);
    bench.peer.wish = false;
    bench.peer.standing = Standing::Paired;
    bench.contact(1000);
    assert!(bench.events().contains(&Event::DrillDone), "{:#?}", bench.events());
    assert_eq!(bench.standing(), Standing::Paired);
}

#[test]
fn s6_91_a_standby_that_comes_back_by_itself_is_not_switched_on() {
    let mut bench = fenced(settling(30_000));
    alone(&mut bench);
    crate::proofs::reboot_peer(&mut bench);
    bench.contact(40_000);
    assert_eq!(powers_on(&bench), 0);
}

#[test]
fn s6_92_a_fence_that_fails_ends_the_drill_and_nothing_is_switched_on() {
    let mut bench = Bench::primary(plain());
    bench.command(Command::Drill).unwrap();
    bench.answer_fence(FenceResult::Unknown);
    assert!(bench.events().contains(&Event::DrillFailed), "{:#?}", bench.events());
    alone(&mut bench);
    bench.silence(30_000);
    assert_eq!(powers_on(&bench), 0);
}

#[test]
fn s6_94_a_standby_that_is_heard_on_and_on_was_never_off() {
    let mut bench = fenced(plain());
    bench.contact(3000);
    assert!(bench.events().contains(&Event::DrillFailed), "{:#?}", bench.events());
    alone(&mut bench);
    bench.silence(30_000);
    assert_eq!(powers_on(&bench), 0);
}

#[test]
fn s6_93_a_node_that_stops_being_primary_gives_the_drill_up() {
    let mut bench = fenced(plain());
    bench.input(Input::GenerationIdChanged);
    assert_ne!(bench.role(), Role::Primary);
    assert!(bench.events().contains(&Event::DrillFailed), "{:#?}", bench.events());
    bench.silence(60_000);
    assert_eq!(powers_on(&bench), 0);
}
