//! What drills measured, in the state directory: `drills.json`, the newest last.
//!
//! Nothing rests on this file. One that cannot be read is begun anew, and one that cannot be written costs a warning.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::control::{Drill, DrillState};
use crate::core::{Event, FenceResult, Instant};
use crate::os::{clock, keep};

const FILE: &str = "drills.json";
/// A drill a month for two years.
const KEPT: usize = 24;

/// The drills that this node made as primary.
#[derive(Debug)]
pub struct Drills {
    path: PathBuf,
    kept: VecDeque<Drill>,
    /// When the one that runs was decided.
    begun: Option<Instant>,
}

impl Drills {
    pub fn load(state: &Path) -> Drills {
        let path = state.join(FILE);
        let kept = read(&path);
        Drills { path, kept, begun: None }
    }

    pub fn last(&self) -> Option<Drill> {
        self.kept.back().cloned()
    }

    /// Measures by the events of a drill; `standby` is whom it is made with.
    pub fn note(&mut self, event: &Event, standby: &str, now: Instant) {
        if *event == Event::DrillBegun {
            self.begin(standby, now);
        } else if let (Some(begun), Some(drill)) = (self.begun, self.kept.back_mut()) {
            measure(drill, event, now.since(begun).as_ms());
            if drill.state != DrillState::Running {
                self.begun = None;
                self.save();
            }
        }
    }

    fn begin(&mut self, standby: &str, now: Instant) {
        self.begun = Some(now);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Drill {
            node: standby.to_owned(),
            at: clock::wall(),
            state: DrillState::Running,
            off_ms: None,
            on_ms: None,
            contact_ms: None,
            ready_ms: None,
        });
    }

    /// Only one that is over. Off the loop, which a stalled disk must not hold up.
    fn save(&self) {
        let (path, kept) = (self.path.clone(), self.kept.clone());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = keep::save(&path, &kept) {
                tracing::warn!(%error, "the figures of the drill are not kept");
            }
        });
    }
}

fn measure(drill: &mut Drill, event: &Event, ms: u64) {
    match event {
        Event::OperatorFenceDone { result: FenceResult::Confirmed { .. } } => drill.off_ms = Some(ms),
        Event::DrillPowersOn => drill.on_ms = Some(ms),
        Event::ContactMade { .. } | Event::ContactRegained | Event::PeerRestarted { .. }
            if drill.off_ms.is_some() && drill.contact_ms.is_none() =>
        {
            drill.contact_ms = Some(ms);
        }
        Event::DrillDone => {
            drill.ready_ms = Some(ms);
            drill.state = DrillState::Ready;
        }
        Event::DrillFailed => drill.state = DrillState::Failed,
        _ => {}
    }
}

fn read(path: &Path) -> VecDeque<Drill> {
    let kept = keep::load(path).unwrap_or_else(|error| {
        tracing::warn!(%error, "the figures of former drills");
        None
    });
    kept.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::core::{AgentSet, Scope, Span};

    use super::*;

    const OFF: Event = Event::OperatorFenceDone {
        result: FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet::EMPTY },
    };

    /// A drill of these events, 100 ms apart.
    fn noted(drills: &mut Drills, events: &[Event]) -> Drill {
        let mut now = Instant(7);
        for event in events {
            drills.note(event, "plover", now);
            now = now.after(Span::from_ms(100));
        }
        drills.last().unwrap()
    }

    #[tokio::test]
    async fn every_step_is_dated_from_the_decision_and_the_file_outlives_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let mut drills = Drills::load(dir.path());
        let events = [
            Event::DrillBegun,
            OFF,
            Event::DrillPowersOn,
            Event::ContactRegained,
            Event::AccessFailed,
            Event::DrillDone,
        ];
        let drill = noted(&mut drills, &events);
        let figures = (drill.off_ms, drill.on_ms, drill.contact_ms, drill.ready_ms, drill.state);
        assert_eq!(figures, (Some(100), Some(200), Some(300), Some(500), DrillState::Ready));
        keep::save(&drills.path, &drills.kept).unwrap();
        assert_eq!(Drills::load(dir.path()).last(), Some(drill));
    }

    #[tokio::test]
    async fn contact_outside_a_drill_is_none_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut drills = Drills::load(dir.path());
        let over = noted(&mut drills, &[Event::DrillBegun, Event::DrillFailed, Event::ContactRegained, OFF]);
        assert_eq!((over.state, over.contact_ms, over.off_ms), (DrillState::Failed, None, None));
    }

    #[tokio::test]
    async fn the_file_is_bounded_and_damage_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{not json").unwrap();
        let mut drills = Drills::load(dir.path());
        assert_eq!(drills.last(), None);
        (0..100).for_each(|_| drop(noted(&mut drills, &[Event::DrillBegun, OFF, Event::DrillDone])));
        assert_eq!(drills.kept.len(), KEPT);
    }
}
