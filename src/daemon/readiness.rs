//! Whether this node could serve: asked again and again in a task of its own, told when it changes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::core::Input;
use crate::os::clock;
use crate::resource::Group;

use super::enforcer::Enforcer;
use super::group::GUARD_EVERY;
use super::note::{Inbox, Note};
use super::past::Past;

/// Those who are asked: the resources, the memory of the last failure, the guard.
pub struct Readiness {
    pub group: Arc<Group>,
    pub past: Past,
    pub verdict: Arc<Verdict>,
    pub enforcer: Arc<Enforcer>,
}

/// What the loop was told last.
#[derive(Debug)]
pub struct Verdict {
    inbox: Inbox,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// Why not; `Some(None)`: it could serve.
    told: Option<Option<String>>,
    /// How often the answer was overruled: one that was asked for before says nothing any more.
    overruled: u64,
}

impl Readiness {
    pub async fn watch(self, every: Duration) {
        loop {
            let asked = self.verdict.last().overruled;
            let why_not = self.why_not().await;
            self.verdict.take(asked, why_not);
            let guarded = self.enforcer.stands(clock::now()).is_ok();
            tokio::time::sleep(if guarded { every } else { GUARD_EVERY.min(every) }).await;
        }
    }

    async fn why_not(&self) -> Option<String> {
        // Asked first: what follows runs commands, and is not worth that while no start is possible.
        if let Err(why) = self.enforcer.stands(clock::now()) {
            return Some(why);
        }
        if let Some(failed) = self.past.held_back(clock::wall()) {
            let when = failed.at.strftime("%H:%M:%S UTC");
            return Some(format!(
                "{}, at {when}; it waits out service.flap_window, or `leasehold clear-alarms`",
                failed.what
            ));
        }
        self.group.readiness().await.err().map(|error| error.to_string())
    }
}

impl Verdict {
    pub fn new(inbox: Inbox) -> Verdict {
        Verdict { inbox, last: Mutex::default() }
    }

    /// What was true a moment ago is not any more: told at once, until the resources are asked again.
    pub fn overrule(&self, why_not: String) {
        let mut last = self.last();
        last.overruled += 1;
        self.tell(&mut last, Some(why_not));
    }

    /// The answer to a question that was asked after so many overrulings.
    fn take(&self, asked: u64, why_not: Option<String>) {
        let mut last = self.last();
        if last.overruled == asked {
            self.tell(&mut last, why_not);
        }
    }

    /// Only what has changed.
    fn tell(&self, last: &mut Last, why_not: Option<String>) {
        if last.told.as_ref() == Some(&why_not) {
            return;
        }
        match &why_not {
            None => tracing::info!("this node is ready to serve"),
            Some(why) => tracing::warn!("this node is not ready to serve: {why}"),
        }
        let _ = self.inbox.send(Note::NotReady(why_not.clone()));
        if last.told.as_ref().is_none_or(|former| former.is_none() != why_not.is_none()) {
            let _ = self.inbox.send(Note::Input(Input::Readiness(why_not.is_none())));
        }
        last.told = Some(why_not);
    }

    /// A panic while the lock was held leaves whole values behind.
    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(notes: &mut tokio::sync::mpsc::UnboundedReceiver<Note>) -> Vec<bool> {
        let mut told = Vec::new();
        while let Ok(note) = notes.try_recv() {
            if let Note::Input(Input::Readiness(ready)) = note {
                told.push(ready);
            }
        }
        told
    }

    #[test]
    fn an_answer_from_before_a_stop_makes_nobody_ready() {
        let (inbox, mut notes) = tokio::sync::mpsc::unbounded_channel();
        let verdict = Verdict::new(inbox);
        verdict.take(0, None);
        assert_eq!(told(&mut notes), [true]);
        verdict.overrule("it was stopped".to_owned());
        verdict.take(0, None);
        assert_eq!(told(&mut notes), [false]);
        verdict.take(1, None);
        assert_eq!(told(&mut notes), [true]);
        verdict.take(1, None);
        assert!(told(&mut notes).is_empty());
    }
}
