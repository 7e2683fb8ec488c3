//! The record as wanted and the record as written: what must be durable before an act is asked of the second.

use super::io::Generation;
use super::record::Record;

/// One write at a time; changes that come meanwhile go out together with the next.
#[derive(Debug, Clone, Hash)]
pub struct Durable {
    wanted: Record,
    generation: Generation,
    written: Record,
    in_flight: Option<(Generation, Record)>,
    failed: bool,
}

impl Durable {
    pub fn new(record: Record) -> Durable {
        Durable { wanted: record, generation: Generation(0), written: record, in_flight: None, failed: false }
    }

    /// What the record shall say.
    pub fn wanted(&self) -> &Record {
        &self.wanted
    }

    /// What the disk says for sure.
    pub fn written(&self) -> &Record {
        &self.written
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Record)) {
        let before = self.wanted;
        change(&mut self.wanted);
        if self.wanted != before {
            self.generation.0 += 1;
        }
    }

    /// No write is under way.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    /// An error of a sync is final: nothing is written any more.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The next write to start, if one is due.
    pub fn next_write(&mut self) -> Option<(Generation, Record)> {
        if self.failed || self.in_flight.is_some() || self.wanted == self.written {
            return None;
        }
        self.in_flight = Some((self.generation, self.wanted));
        self.in_flight
    }

    pub fn persisted(&mut self, generation: Generation) {
        if let Some((_, record)) = self.in_flight.take_if(|(g, _)| *g == generation) {
            self.written = record;
        }
    }

    /// Whether this failure is of the write under way.
    pub fn fail(&mut self, generation: Generation) -> bool {
        let ours = self.in_flight.take_if(|(g, _)| *g == generation).is_some();
        self.failed |= ours;
        ours
    }
}
