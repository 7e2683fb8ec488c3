//! Which machine a BMC controls: asked in every attempt, believed or sent nothing before it is answered.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::IdentityCheck;
use crate::core::SystemUuid;

use super::super::drive::{Answer, Switch};
use super::super::{Attempt, Identity, Reading};
use super::Ipmi;
use super::answer::{Reply, Verb, forms};

impl Ipmi {
    /// Whether the BMC controls the machine that is meant. Not asked where there is nothing to compare.
    async fn aim(&self, attempt: &Attempt) -> Aim {
        let Some(expected) = attempt.expected().filter(|_| self.config.identity == IdentityCheck::Uuid) else {
            return Aim::Right;
        };
        match self.exchange(Verb::Guid, attempt).await {
            Reply::Guid(seen, _) => match attempt.identify_among(&forms(seen)) {
                Identity::Proven | Identity::Unknown => Aim::Right,
                Identity::Foreign => Aim::Wrong(self.foreign(expected, seen)),
            },
            reply if reply.is_answer() => Aim::Right,
            _ => Aim::Silent,
        }
    }

    pub(super) fn foreign(&self, expected: SystemUuid, seen: SystemUuid) -> String {
        format!(
            "the BMC at {} controls the machine {seen}, but the one to be fenced is {expected}: nothing is sent; correct \
             `address`, or write `identity = \"none\"` if this BMC shows a GUID that is not its machine's UUID",
            self.config.address
        )
    }
}

/// Whom the BMC controls.
#[derive(Debug, PartialEq, Eq)]
enum Aim {
    /// The machine that is meant, or nothing speaks against it.
    Right,
    Wrong(String),
    /// It did not answer.
    Silent,
}

/// The BMC in one attempt: who it is, is asked along with the first reading, and nothing is believed or sent before
/// that is answered.
#[derive(Debug)]
pub struct Aimed<'a> {
    ipmi: &'a Ipmi,
    right: AtomicBool,
    /// Whether the question has been put already.
    asked: AtomicBool,
    wrong: OnceLock<String>,
    found: Notify,
}

impl<'a> Aimed<'a> {
    pub fn new(ipmi: &'a Ipmi) -> Aimed<'a> {
        Aimed {
            ipmi,
            right: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            wrong: OnceLock::new(),
            found: Notify::new(),
        }
    }

    /// Completes, with the reason, when the BMC turned out to be another machine's.
    pub async fn wrong(&self) -> String {
        self.found.notified().await;
        self.wrong.get().cloned().unwrap_or_default()
    }

    async fn first_reading(&self, attempt: &Attempt) -> Reading {
        // Both at once is quickest; a BMC that has no session for the second is asked one by one from then on.
        let answers = match self.asked.swap(true, Ordering::Relaxed) {
            false => tokio::join!(self.ipmi.aim(attempt), self.ipmi.power(attempt)),
            true => (self.ipmi.aim(attempt).await, self.ipmi.power(attempt).await),
        };
        match answers {
            (Aim::Right, reading) => {
                self.right.store(true, Ordering::Relaxed);
                reading
            }
            (Aim::Silent, _) => Reading::Unknown,
            (Aim::Wrong(why), _) => {
                self.wrong.get_or_init(|| why);
                self.found.notify_one();
                // Whoever waits for the reading has to stop waiting now.
                std::future::pending().await
            }
        }
    }
}

impl Switch for Aimed<'_> {
    async fn read(&self, attempt: &Attempt) -> Reading {
        match self.right.load(Ordering::Relaxed) {
            true => self.ipmi.power(attempt).await,
            false => self.first_reading(attempt).await,
        }
    }

    async fn switch(&self, to: Reading, attempt: &Attempt) -> Answer {
        let verb = if to == Reading::On { Verb::On } else { Verb::Off };
        match self.ipmi.exchange(verb, attempt).await {
            Reply::Accepted(_) => Answer::Accepted,
            Reply::Refused(_) => Answer::Refused,
            Reply::Power(..) | Reply::Guid(..) | Reply::Privilege(..) | Reply::Failed(_) | Reply::Silent(_) => {
                Answer::Failed
            }
        }
    }

    fn pace(&self) -> (u32, Duration) {
        (self.ipmi.config.stable_reads, self.ipmi.config.poll.into())
    }
}
