//! Who was woken how late, and when to warn of it: before the margin is used up, and once for each new worst.

use super::note::Told;
use crate::control::{Late, Lateness, Stalls};
use crate::core::{Instant, Severity, Span};
use crate::os::shared::Said as GuardSaid;
use crate::os::stall::{self, StallMeter};

/// What goes on for hours is told this often.
const AGAIN: Span = Span::from_secs(600);

/// What was told of the loop and of the guard.
#[derive(Debug)]
pub struct LatenessAlarm {
    /// P
    allowed: Span,
    daemon: Worst,
    guard: Worst,
}

#[derive(Debug, Default)]
struct Worst {
    late: Span,
    told_at: Option<Instant>,
}

impl LatenessAlarm {
    pub fn new(allowed: Span) -> LatenessAlarm {
        LatenessAlarm { allowed, daemon: Worst::default(), guard: Worst::default() }
    }

    /// `daemon`: how late this loop was just now; `guard`: how late the guard was at most since it started.
    pub fn weigh(&mut self, daemon: Span, guard: Span, now: Instant) -> Vec<Told> {
        // A guard that was started anew has forgotten what the former one told.
        self.guard.late = self.guard.late.min(guard);
        let repeats = self.daemon.told_at.is_some_and(|at| now.since(at) >= AGAIN);
        let news = [
            self.daemon
                .is_news(daemon, self.allowed, repeats, now)
                .then(|| told("this daemon's loop", daemon, self.allowed)),
            self.guard.is_news(guard, self.allowed, false, now).then(|| told("the guard", guard, self.allowed)),
        ];
        news.into_iter().flatten().collect()
    }
}

impl Worst {
    fn is_news(&mut self, late: Span, allowed: Span, repeats: bool, now: Instant) -> bool {
        let is_news = late >= allowed.half() && (late > self.late || repeats);
        if is_news {
            (self.late, self.told_at) = (late, Some(now));
        }
        is_news
    }
}

fn told(who: &str, late: Span, allowed: Span) -> Told {
    let over = if late > allowed { "more than" } else { "and" };
    let text = format!(
        "{who} was woken {late} late, {over} the margin of the lease has {allowed} for that (lease.pause): find what stops \
         it (suspend, hypervisor, memory pressure, a busy CPU), or raise lease.pause"
    );
    Told::new(Severity::Warning, "woken-late", text)
}

/// Who has to be woken in time.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'a> {
    /// The loop of this daemon.
    pub meter: &'a StallMeter,
    /// What the guard says of itself, if one runs.
    pub guard: Option<GuardSaid>,
}

impl Watched<'_> {
    /// As `status` tells it, beside the pause that the margin allows.
    pub fn stalls(&self, allowed: Span) -> Stalls {
        let summary = self.meter.summary();
        Stalls {
            longest_ms: summary.longest.as_ms(),
            allowed_ms: allowed.as_ms(),
            long: self.meter.longer_than(allowed.half()),
            daemon: lateness(summary, self.meter.last_hour()),
            guard: self.guard.map(|said| lateness(said.late, said.late_hour)),
        }
    }
}

fn lateness(since_start: stall::Stalls, last_hour: stall::Stalls) -> Lateness {
    let late = |stalls: stall::Stalls| {
        let us = |span: Span| span.0 / 1000;
        let stall::Stalls { count, p50, p99_9, longest } = stalls;
        Late { count, p50_us: us(p50), p99_9_us: us(p99_9), longest_us: us(longest) }
    };
    Lateness { since_start: late(since_start), last_hour: late(last_hour) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_pause_warns_each_new_worst_is_told_and_the_same_again_only_later() {
        let mut alarm = LatenessAlarm::new(Span::from_secs(1));
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let mut count = |daemon, guard, now| alarm.weigh(Span::from_ms(daemon), Span::from_ms(guard), at(now)).len();
        assert_eq!(count(499, 499, 1), 0);
        assert_eq!(count(500, 0, 2), 1);
        assert_eq!(count(500, 0, 3), 0);
        assert_eq!(count(600, 700, 4), 2);
        assert_eq!(count(10, 700, 5), 0);
        assert_eq!(count(600, 700, 700), 1, "it goes on");
        assert_eq!(count(10, 0, 701), 0);
        assert_eq!(count(10, 700, 702), 1, "of another guard");
    }

    #[test]
    fn the_words_say_who_how_late_and_what_to_do() {
        let mut alarm = LatenessAlarm::new(Span::from_secs(1));
        let told = alarm.weigh(Span::from_ms(1700), Span::ZERO, Instant(0)).remove(0);
        assert!(told.text.starts_with("this daemon's loop was woken 1.7"), "{}", told.text);
        assert!(told.text.contains("more than the margin") && told.text.contains("raise lease.pause"), "{}", told.text);
    }
}
