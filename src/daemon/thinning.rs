//! What fails the same way for hours is told at growing gaps with a count (casebook C35): a thousand equal lines would
//! push out of `why` how it all began.

use std::collections::BTreeMap;

use crate::core::{Event, Instant, Span};

/// A failure that lasts is told at least this often.
const AT_LEAST_EVERY: Span = Span::from_secs(3600);

/// Stories told apart; what comes on top counts as one, so that a device with ever new words does not flood either.
const MOST_STORIES: usize = 16;

/// What becomes of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weight {
    Tell,
    /// Told with this after its text.
    TellWith(String),
    /// It is like the last ones; the count goes on.
    Hold,
}

/// The failures that repeat themselves, by their kind and story. Two stories may take turns.
#[derive(Debug, Default)]
pub struct Thinning {
    stories: BTreeMap<String, Repeated>,
    /// The newest of them.
    last: String,
}

#[derive(Debug)]
struct Repeated {
    count: u64,
    held: u64,
    told_at: Instant,
}

impl Thinning {
    /// Weighs an event; `reason` are the last words of the agents, which say how it failed.
    pub fn weigh(&mut self, event: &Event, reason: &str, now: Instant) -> Weight {
        match event {
            Event::AttemptFailed { result, .. } => self.failed(event, &format!("{result} {reason}"), now),
            Event::TakeFailed { .. } | Event::AccessFailed => self.failed(event, &event.to_string(), now),
            Event::AttemptStarted { .. } => self.started(now),
            Event::PeerLost { .. }
            | Event::ContactRegained
            | Event::BecameStandby { .. }
            | Event::ProofObtained { .. }
            | Event::Promoted { .. }
            | Event::OperatorFence => {
                self.stories.clear();
                Weight::Tell
            }
            _ => Weight::Tell,
        }
    }

    fn failed(&mut self, event: &Event, story: &str, now: Instant) -> Weight {
        let key = format!("{} {}", event.kind(), without_numbers(story));
        let room = self.stories.len() < MOST_STORIES || self.stories.contains_key(&key);
        self.last = if room { key } else { event.kind() };
        let fresh = Repeated { count: 0, held: 0, told_at: now };
        let repeated = self.stories.entry(self.last.clone()).or_insert(fresh);
        repeated.count += 1;
        if !repeated.is_due(repeated.count, now) {
            repeated.held += 1;
            return Weight::Hold;
        }
        repeated.told_at = now;
        match std::mem::take(&mut repeated.held) {
            0 => Weight::Tell,
            held => Weight::TellWith(format!(" ({} times the same by now, {held} of them not told)", repeated.count)),
        }
    }

    /// The beginning of an attempt is told if its end will be, should it fail like the one before.
    fn started(&self, now: Instant) -> Weight {
        let held = self.stories.get(&self.last).is_some_and(|r| !r.is_due(r.count + 1, now));
        if held { Weight::Hold } else { Weight::Tell }
    }
}

impl Repeated {
    fn is_due(&self, count: u64, now: Instant) -> bool {
        count.is_power_of_two() || now.since(self.told_at) >= AT_LEAST_EVERY
    }
}

/// Times and counts differ from one failure to the next of the same kind.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().replace(" ( times)", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{FenceResult, Token};

    const FAILED: Event = Event::AttemptFailed { result: FenceResult::Unknown, retry_in: Span::from_secs(5) };

    fn started(number: u32) -> Event {
        Event::AttemptStarted { token: Token(4), number }
    }

    fn at(seconds: u64) -> Instant {
        Instant(0).after(Span::from_secs(seconds))
    }

    #[test]
    fn an_hour_of_equal_failures_is_a_few_lines_with_a_count() {
        let mut thinning = Thinning::default();
        let mut told = Vec::new();
        for n in 0..1000_u32 {
            let now = at(u64::from(n) * 3);
            told.extend((thinning.weigh(&started(n + 1), "", now) != Weight::Hold).then(|| "started".to_owned()));
            match thinning.weigh(&FAILED, &format!("no answer since 03:{n:02}"), now) {
                Weight::Tell => told.push("failed".to_owned()),
                Weight::TellWith(count) => told.push(count),
                Weight::Hold => {}
            }
        }
        assert_eq!(told.len(), 20, "{told:#?}");
        assert_eq!(told.last().unwrap(), " (512 times the same by now, 255 of them not told)");
    }

    #[test]
    fn a_failure_of_another_kind_is_told_at_once() {
        let mut thinning = Thinning::default();
        let mut told = |reason: &str| thinning.weigh(&FAILED, reason, at(1)) != Weight::Hold;
        assert_eq!([told("no answer"), told("no answer"), told("no answer")], [true, true, false]);
        assert!(told("wrong password"));
    }

    #[test]
    fn stories_that_take_turns_or_are_ever_new_do_not_flood() {
        for stories in [2, 1000_u32] {
            let mut thinning = Thinning::default();
            let words = |n: u32| "x".repeat((n % stories) as usize);
            let told = (0..1000).filter(|n| thinning.weigh(&FAILED, &words(*n), at(1)) != Weight::Hold).count();
            assert!(told <= 30, "{told} of {stories} stories");
        }
    }

    #[test]
    fn one_that_lasts_is_told_every_hour() {
        let mut thinning = Thinning::default();
        (0..5000).for_each(|_| drop(thinning.weigh(&FAILED, "", at(1))));
        assert_eq!(thinning.weigh(&FAILED, "", at(2)), Weight::Hold);
        assert!(matches!(thinning.weigh(&FAILED, "", at(3700)), Weight::TellWith(_)));
    }

    #[test]
    fn what_ends_the_trouble_ends_the_count() {
        let mut thinning = Thinning::default();
        (0..3).for_each(|_| drop(thinning.weigh(&FAILED, "", at(1))));
        assert_eq!(thinning.weigh(&started(4), "", at(1)), Weight::Tell, "the fourth is told");
        assert_eq!(thinning.weigh(&Event::ContactRegained, "", at(1)), Weight::Tell);
        assert_eq!(thinning.weigh(&FAILED, "", at(1)), Weight::Tell);
    }
}
