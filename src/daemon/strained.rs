//! What is up and of little use on this node: its disk is full, or its interface has no carrier. Where the other node could
//! serve, the service goes there; until then it stays, for a stop would help nobody (casebook C26 B, C31 B).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::control::ResourceState;
use crate::core::{Epoch, Hindrance, Input};
use crate::os::clock;
use crate::resource::{Failure, Group};

use super::group::Teller;
use super::past::Past;

/// How soon is seen that a strain is over: nobody waits for that but the screen.
const LOOK: Duration = Duration::from_secs(1);

/// Of one life of the resources.
#[derive(Debug)]
pub struct Strained {
    group: Arc<Group>,
    teller: Teller,
    past: Past,
    epoch: Epoch,
    handover: watch::Receiver<Option<Hindrance>>,
    /// The last that was told, in the journal and of each resource.
    hindrance: Option<Hindrance>,
    names: Vec<String>,
}

impl Strained {
    pub fn new(
        group: Arc<Group>,
        teller: Teller,
        past: Past,
        epoch: Epoch,
        handover: watch::Receiver<Option<Hindrance>>,
    ) -> Strained {
        Strained { group, teller, past, epoch, handover, hindrance: None, names: Vec::new() }
    }

    /// Until all of them are well again, or have to go.
    pub async fn bear(mut self) {
        loop {
            let strained = self.group.strained();
            self.relieve(&strained);
            if strained.is_empty() {
                return;
            }
            let hindrance = *self.handover.borrow_and_update();
            match hindrance {
                // A move would come too late to help anybody: both are back, as after their switch.
                None if self.group.is_mending() => {}
                None => return self.hand_over(strained).await,
                Some(because) => self.stay(strained, because),
            }
            tokio::select! {
                changed = self.handover.changed() => if changed.is_err() { return },
                () = sleep(LOOK) => {}
            }
        }
    }

    fn stay(&mut self, strained: Vec<Failure>, because: Hindrance) {
        let is_news = self.hindrance.replace(because) != Some(because) || strained.len() > self.names.len();
        for Failure { resource, what } in &strained {
            let text = format!("{what}; it stays here, since {}", why_not(because));
            if is_news {
                tracing::warn!("resource {resource}: {text}");
            }
            self.teller.one(resource, ResourceState::Failed, Some(text));
        }
        self.names = strained.into_iter().map(|failure| failure.resource).collect();
    }

    /// Tells of those that were told and are well now.
    fn relieve(&mut self, strained: &[Failure]) {
        self.names.retain(|name| {
            let lasts = strained.iter().any(|failure| failure.resource == *name);
            if !lasts {
                tracing::info!("resource {name} is well again, and was never stopped");
                self.teller.one(name, ResourceState::Up, None);
            }
            lasts
        });
    }

    async fn hand_over(&self, strained: Vec<Failure>) {
        let told: Vec<String> = strained.iter().map(|f| format!("resource {}: {}", f.resource, f.what)).collect();
        let text = format!("{}; the other node could serve", told.join("; "));
        tracing::error!("handing over: {text}");
        for Failure { resource, what } in strained {
            self.teller.one(&resource, ResourceState::Failed, Some(what));
        }
        // Told first: remembering it may wait for a disk, the service must not.
        self.teller.input(Input::ResourcesFailed(self.epoch));
        self.past.note_failed(clock::wall(), text).await;
    }
}

/// For who reads of one full disk, and has to look at two.
fn why_not(because: Hindrance) -> String {
    match because {
        Hindrance::PeerNotReady => {
            "the other node could not serve either (`leasehold status` there says why)".to_owned()
        }
        _ => format!("it cannot be handed over: {}", because.cause()),
    }
}
