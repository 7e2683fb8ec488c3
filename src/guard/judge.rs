//! What the guard does at an instant: pure, so that every moment can be tried.
//!
//! ```text
//!   deadline               + kill_after                + reset_after
//!   |---- cut ----------------|---- killing, looking -----|---- reset unless nothing is left, seen
//!         the daemon lives and stops in good order: it has this long; else the killing begins at the deadline
//! ```

use crate::core::{Instant, Span};
use crate::os::shared::{Standing, Told};

/// How long a daemon that lives has, from the deadline on, to say that it stops in good order: both wake at the same
/// instant, and it may be the second.
const FIRST_WORD: Span = Span::from_ms(100);
/// A guard that was itself stopped beyond the reset point first tries what takes milliseconds.
const LEAST_TRY: Span = Span::from_ms(100);
/// How soon what was killed is looked at again.
pub const NEXT_LOOK: Span = Span::from_ms(10);
/// How often it is looked at after nothing was left: a start that was under way in the kernel may still end.
const LATER_LOOK: Span = Span::from_ms(500);

/// What to do now, and when to look again at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing runs here, or the deadline is ahead.
    Quiet { look: Instant },
    /// The deadline has passed. The clients are refused; the daemon still stops the rest in good order.
    Cut { look: Instant },
    /// Everything is killed and looked for.
    Kill { look: Instant },
    /// Too late for less.
    Reset,
}

/// What the guard has seen of this deadline's episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// When it first found the deadline passed.
    pub since: Instant,
    /// Nothing was left when it last looked.
    pub nothing_left: bool,
}

/// `tick`: how long the guard sleeps at most.
pub fn judge(told: &Told, beat_at: Instant, seen: Seen, now: Instant, tick: Span) -> Verdict {
    let idle = now.after(tick);
    if told.standing == Standing::Idle {
        return Verdict::Quiet { look: idle };
    }
    if now < told.deadline {
        return Verdict::Quiet { look: idle.min(told.deadline) };
    }
    let lives = now.since(beat_at) <= told.beat_within;
    // Its own stop commands must not be taken for what is left: a daemon that lives again makes sure by itself.
    if seen.nothing_left && lives && told.standing == Standing::Stopping {
        return Verdict::Quiet { look: now.after(LATER_LOOK).min(idle) };
    }
    let reset_at = told.deadline.after(told.reset_after).max(seen.since.after(LEAST_TRY));
    if now >= reset_at && !seen.nothing_left {
        return Verdict::Reset;
    }
    let good_order = told.deadline.after(if lives { patience(told) } else { Span::ZERO });
    if now < good_order {
        return Verdict::Cut { look: now.after(NEXT_LOOK).min(good_order) };
    }
    match seen.nothing_left {
        true => Verdict::Kill { look: now.after(LATER_LOOK) },
        false => Verdict::Kill { look: now.after(NEXT_LOOK).min(reset_at) },
    }
}

/// How long after the deadline a daemon that lives is left alone.
fn patience(told: &Told) -> Span {
    match told.standing {
        Standing::Stopping => kill_after(told),
        Standing::Armed => FIRST_WORD.min(kill_after(told)),
        Standing::Idle => Span::ZERO,
    }
}

/// Something of the time before the reset always belongs to the killing.
fn kill_after(told: &Told) -> Span {
    let reserve = Span::from_ms(250).min(Span(told.reset_after.0 / 4));
    told.kill_after.min(told.reset_after.minus(reserve))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Token;

    const TICK: Span = Span::from_secs(1);
    const DEADLINE: Instant = Instant(100_000_000_000);

    fn told(standing: Standing) -> Told {
        Told {
            standing,
            deadline: DEADLINE,
            token: Token(42),
            right: Span::from_secs(10),
            kill_after: Span::from_secs(2),
            reset_after: Span::from_secs(3),
            beat_within: Span::from_ms(500),
            plan: 1,
            daemon: 1,
        }
    }

    fn at(ms: u64) -> Instant {
        DEADLINE.after(Span::from_ms(ms))
    }

    /// Of a daemon whose last beat was `beat` ms after the deadline.
    fn verdict(standing: Standing, beat: u64, nothing_left: bool, ms: u64) -> Verdict {
        judge(&told(standing), at(beat), Seen { since: DEADLINE, nothing_left }, at(ms), TICK)
    }

    #[test]
    fn while_the_deadline_is_ahead_or_nothing_runs_here_it_only_looks_again() {
        let seen = Seen { since: Instant(0), nothing_left: false };
        let early = DEADLINE.before(Span::from_ms(400));
        for standing in [Standing::Armed, Standing::Stopping] {
            let verdict = judge(&told(standing), Instant(0), seen, early, TICK);
            assert_eq!(verdict, Verdict::Quiet { look: DEADLINE });
            let verdict = judge(&told(standing), Instant(0), seen, DEADLINE.before(Span::from_secs(9)), TICK);
            assert_eq!(verdict, Verdict::Quiet { look: DEADLINE.before(Span::from_secs(8)) });
        }
        let long_after = at(3_600_000);
        let verdict = judge(&told(Standing::Idle), Instant(0), seen, long_after, TICK);
        assert_eq!(verdict, Verdict::Quiet { look: long_after.after(TICK) });
    }

    #[test]
    fn a_dead_daemon_is_given_no_time_at_all() {
        let dead =
            judge(&told(Standing::Armed), at(0).before(TICK), Seen { since: at(0), nothing_left: false }, at(0), TICK);
        assert_eq!(dead, Verdict::Kill { look: at(10) });
        let died_while_stopping = verdict(Standing::Stopping, 300, false, 801);
        assert_eq!(died_while_stopping, Verdict::Kill { look: at(811) });
    }

    #[test]
    fn a_daemon_that_lives_has_a_moment_to_say_so_and_then_its_stop_budget() {
        assert_eq!(verdict(Standing::Armed, 0, false, 0), Verdict::Cut { look: at(10) });
        assert_eq!(verdict(Standing::Armed, 99, false, 99), Verdict::Cut { look: at(100) });
        assert_eq!(verdict(Standing::Armed, 100, false, 100), Verdict::Kill { look: at(110) });
        assert_eq!(verdict(Standing::Stopping, 1999, false, 1999), Verdict::Cut { look: at(2000) });
        assert_eq!(verdict(Standing::Stopping, 2000, false, 2000), Verdict::Kill { look: at(2010) });
    }

    #[test]
    fn what_is_not_seen_to_be_gone_at_the_reset_point_is_reset() {
        for standing in [Standing::Armed, Standing::Stopping] {
            assert_eq!(verdict(standing, 2999, false, 2999), Verdict::Kill { look: at(3000) });
            assert_eq!(verdict(standing, 3000, false, 3000), Verdict::Reset);
            assert_eq!(verdict(standing, 0, true, 3000), Verdict::Kill { look: at(3500) }, "of a dead daemon");
        }
        assert_eq!(verdict(Standing::Armed, 3000, true, 3000), Verdict::Kill { look: at(3500) });
    }

    #[test]
    fn a_daemon_that_comes_back_after_all_was_gone_makes_sure_by_itself() {
        assert_eq!(verdict(Standing::Stopping, 9000, true, 9000), Verdict::Quiet { look: at(9500) });
        assert_eq!(verdict(Standing::Stopping, 9000, true, 9501), Verdict::Kill { look: at(10001) }, "it died again");
    }

    #[test]
    fn a_guard_that_slept_beyond_the_reset_point_tries_for_a_moment_then_resets() {
        let seen = Seen { since: at(9000), nothing_left: false };
        assert_eq!(judge(&told(Standing::Armed), at(0), seen, at(9000), TICK), Verdict::Kill { look: at(9010) });
        assert_eq!(judge(&told(Standing::Armed), at(0), seen, at(9100), TICK), Verdict::Reset);
    }

    #[test]
    fn a_stop_budget_as_long_as_the_margin_leaves_time_to_kill() {
        let tight = Told { kill_after: Span::from_secs(3), ..told(Standing::Stopping) };
        let seen = Seen { since: DEADLINE, nothing_left: false };
        assert_eq!(judge(&tight, at(2750), seen, at(2750), TICK), Verdict::Kill { look: at(2760) });
        assert_eq!(judge(&tight, at(2749), seen, at(2749), TICK), Verdict::Cut { look: at(2750) });
    }
}
