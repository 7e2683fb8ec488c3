//! Brings a device to a state and believes only what it reads: the one loop that all switching agents share.

use std::time::Duration;

use tokio::time::sleep;

use super::{Attempt, Outcome, Reading};

/// How often a device that says no is asked again. A busy one may mean "later"; one that says no three times, with
/// the target still on, means it, and the next level of the plan deserves the time.
const MAX_REFUSALS: u32 = 3;

/// What a device answered to a command. None of these is a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It will do it, now or later.
    Accepted,
    /// It understood and said no.
    Refused,
    /// No answer, or none that can be understood.
    Failed,
}

/// A device that can be read and switched.
pub trait Switch: Sync {
    /// One reading, noted in the attempt.
    fn read(&self, attempt: &Attempt) -> impl Future<Output = Reading> + Send;

    /// One command, noted in the attempt.
    fn switch(&self, to: Reading, attempt: &Attempt) -> impl Future<Output = Answer> + Send;

    /// How many readings in a row count as stable, and how far apart they are.
    fn pace(&self) -> (u32, Duration);
}

/// One settled reading: `Off` only if it reads off as often as the device's pace demands.
pub async fn settled<S: Switch>(device: &S, attempt: &Attempt) -> Reading {
    let (stable, apart) = device.pace();
    for left in (0..stable.max(1)).rev() {
        let reading = device.read(attempt).await;
        if reading != Reading::Off || left == 0 {
            return reading;
        }
        sleep(apart).await;
    }
    Reading::Unknown
}

/// Reads, switches unless the target is already as wanted, and reads until it stably is. Ends by itself only when
/// that is so, or when the device refuses for good; the caller drops it when the time is over.
pub async fn drive<S: Switch>(device: &S, want: Reading, attempt: &Attempt) -> Outcome {
    let (stable, apart) = device.pace();
    let (mut seen, mut accepted, mut refusals) = (0, false, 0);
    loop {
        match device.read(attempt).await {
            Reading::Unknown => seen = 0,
            reading if reading == want => {
                // What comes back after this (a power button, a restore policy) needs a new command.
                (seen, accepted) = (seen + 1, false);
                if seen >= stable.max(1) {
                    return Outcome::Confirmed;
                }
            }
            _ if refusals >= MAX_REFUSALS => return attempt.verdict(),
            _ => {
                seen = 0;
                if !accepted {
                    match device.switch(want, attempt).await {
                        Answer::Accepted => {
                            // Read at once: a quick device costs no pause, and a slow one only a reading more.
                            accepted = true;
                            attempt.accepted();
                            continue;
                        }
                        Answer::Refused => refusals += 1,
                        Answer::Failed => {}
                    }
                }
            }
        }
        sleep(apart).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use Answer::*;
    use Reading::*;

    use super::*;

    /// A device that plays a script of readings and of answers to commands; the last of each repeats.
    struct Script {
        readings: Mutex<VecDeque<Reading>>,
        answers: Mutex<VecDeque<Answer>>,
        commands: Mutex<u32>,
    }

    impl Script {
        fn new(readings: &[Reading], answer: Answer) -> Script {
            Script::answering(readings, &[answer])
        }

        fn answering(readings: &[Reading], answers: &[Answer]) -> Script {
            let (readings, answers) = (readings.iter().copied().collect(), answers.iter().copied().collect());
            Script { readings: Mutex::new(readings), answers: Mutex::new(answers), commands: Mutex::new(0) }
        }

        async fn off(&self) -> (Outcome, u32) {
            let attempt = Attempt::new("script", String::new);
            let limit = Duration::from_millis(500);
            let outcome = tokio::time::timeout(limit, drive(self, Off, &attempt)).await;
            (outcome.unwrap_or_else(|_| attempt.verdict()), *self.commands.lock().unwrap())
        }
    }

    fn next<T: Copy>(script: &Mutex<VecDeque<T>>) -> T {
        let mut script = script.lock().unwrap();
        let next = if script.len() > 1 { script.pop_front() } else { script.front().copied() };
        next.expect("a script is not empty")
    }

    impl Switch for Script {
        async fn read(&self, attempt: &Attempt) -> Reading {
            let reading = next(&self.readings);
            attempt.reading("status", &format!("{reading:?}"), reading);
            reading
        }

        async fn switch(&self, _to: Reading, attempt: &Attempt) -> Answer {
            *self.commands.lock().unwrap() += 1;
            let answer = next(&self.answers);
            if answer == Refused {
                attempt.refusal("off", "0xd5", None);
            }
            answer
        }

        fn pace(&self) -> (u32, Duration) {
            (3, Duration::from_millis(1))
        }
    }

    #[tokio::test]
    async fn off_already_is_confirmed_without_a_command() {
        assert_eq!(Script::new(&[Off], Refused).off().await, (Outcome::Confirmed, 0));
    }

    #[tokio::test]
    async fn a_refusal_is_followed_by_a_reading_that_decides() {
        assert_eq!(Script::new(&[On, Off], Refused).off().await, (Outcome::Confirmed, 1));
        assert_eq!(Script::new(&[On], Refused).off().await, (Outcome::Refused { highest: None }, MAX_REFUSALS));
    }

    #[tokio::test]
    async fn a_target_that_stays_on_after_an_accepted_command_is_unknown() {
        assert_eq!(Script::new(&[On], Accepted).off().await, (Outcome::Unknown, 1));
    }

    #[tokio::test]
    async fn a_refusal_counts_no_more_once_a_later_command_is_accepted() {
        let script = Script::answering(&[On], &[Refused, Accepted]);
        assert_eq!(script.off().await, (Outcome::Unknown, 2));
    }

    #[tokio::test]
    async fn one_reading_that_flips_back_proves_nothing() {
        let script = Script::new(&[On, Off, Off, On], Accepted);
        assert_eq!(script.off().await, (Outcome::Unknown, 2));
        let script = Script::new(&[Off, Unknown, Off, Unknown], Accepted);
        assert_eq!(script.off().await, (Outcome::Unknown, 0));
    }

    #[tokio::test]
    async fn a_command_that_was_lost_is_given_again() {
        assert_eq!(Script::new(&[On, On, On, Off], Failed).off().await, (Outcome::Confirmed, 3));
    }

    #[tokio::test]
    async fn a_settled_reading_is_off_only_if_it_holds() {
        let attempt = Attempt::new("script", String::new);
        assert_eq!(settled(&Script::new(&[Off], Accepted), &attempt).await, Off);
        assert_eq!(settled(&Script::new(&[Off, Off, On], Accepted), &attempt).await, On);
        assert_eq!(settled(&Script::new(&[Off, Unknown], Accepted), &attempt).await, Unknown);
    }
}
