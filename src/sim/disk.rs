//! The record store of one node, with what disks do: slow, stalled, full, failing, torn, restored from an old copy.

use std::collections::VecDeque;

use crate::core::{Generation, Record};

use super::text::Range;

/// What the disk does with the next writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskMode {
    Works,
    /// Every write takes this long.
    Slow(Range),
    /// Nothing comes back until it works again.
    Stalled,
    /// Writing fails before anything has changed.
    Full,
    /// The sync fails; nobody knows what reached the platter.
    FailingSync,
}

/// One write on its way.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    pub generation: Generation,
    pub record: Record,
    /// Serial of its completion event; an event of another serial is stale.
    pub serial: u32,
    scheduled: bool,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Durable(Generation),
    Failed(Generation),
}

/// Two alternating slots: a write that is cut off leaves the older one, whole.
#[derive(Debug)]
pub struct Disk {
    pub mode: DiskMode,
    /// What a reader would find now.
    pub durable: Option<Record>,
    /// The newest record of whose durability the daemon has heard.
    pub acknowledged: Option<Record>,
    /// Durable records of which the daemon has not heard yet.
    unheard: VecDeque<(Generation, Record)>,
    /// A copy taken for a later restore.
    saved: Option<Option<Record>>,
    /// Neither slot has a right checksum.
    pub damaged: bool,
    /// A write failed in this daemon's life: the file is not written again.
    pub poisoned: bool,
    queue: VecDeque<Write>,
    serial: u32,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            mode: DiskMode::Works,
            durable: None,
            acknowledged: None,
            unheard: VecDeque::new(),
            saved: None,
            damaged: false,
            poisoned: false,
            queue: VecDeque::new(),
            serial: 0,
        }
    }
}

impl Disk {
    /// Queues a write; they are done one at a time, in order.
    pub fn write(&mut self, generation: Generation, record: Record) {
        self.serial += 1;
        self.queue.push_back(Write { generation, record, serial: self.serial, scheduled: false });
    }

    /// The write whose completion has to be scheduled now, if the disk works at all.
    pub fn unscheduled(&mut self) -> Option<u32> {
        let front = self.queue.front_mut().filter(|w| !w.scheduled)?;
        if self.mode == DiskMode::Stalled {
            return None;
        }
        front.scheduled = true;
        Some(front.serial)
    }

    /// The time that the write in front takes.
    pub fn latency(&self, usual: Range) -> Range {
        if let DiskMode::Slow(range) = self.mode { range } else { usual }
    }

    /// The write of this serial is over; `landed` says what a failing sync left behind.
    pub fn done(&mut self, serial: u32, landed: bool) -> Option<Written> {
        let write = *self.queue.front().filter(|w| w.serial == serial)?;
        if self.mode == DiskMode::Stalled {
            self.queue[0].scheduled = false;
            return None;
        }
        self.queue.pop_front();
        match self.mode {
            _ if self.poisoned => Some(Written::Failed(write.generation)),
            DiskMode::Full => {
                self.poisoned = true;
                Some(Written::Failed(write.generation))
            }
            DiskMode::FailingSync => {
                self.poisoned = true;
                self.keep(write.record, landed);
                Some(Written::Failed(write.generation))
            }
            DiskMode::Works | DiskMode::Slow(_) | DiskMode::Stalled => {
                self.keep(write.record, true);
                self.unheard.push_back((write.generation, write.record));
                Some(Written::Durable(write.generation))
            }
        }
    }

    /// The daemon hears that this generation is durable.
    pub fn heard(&mut self, generation: Generation) {
        while let Some((_, record)) = self.unheard.front().copied().filter(|(g, _)| *g <= generation) {
            self.acknowledged = Some(record);
            self.unheard.pop_front();
        }
    }

    /// The daemon or the machine died: the write in flight `landed` whole or is torn, the rest never began.
    pub fn cut_off(&mut self, landed: bool) {
        if let Some(write) = self.queue.pop_front() {
            let reaches = landed && !self.poisoned && self.mode != DiskMode::Full;
            self.keep(write.record, reaches);
        }
        self.queue.clear();
        self.unheard.clear();
        self.poisoned = false;
    }

    fn keep(&mut self, record: Record, landed: bool) {
        if landed {
            self.durable = Some(record);
        }
    }

    pub fn save(&mut self) {
        self.saved = Some(self.durable);
    }

    /// Puts the saved copy back (or nothing, when none was saved): an operator restored the machine's disk.
    pub fn restore(&mut self) {
        self.durable = self.saved.flatten();
        self.acknowledged = self.durable;
        self.damaged = false;
    }

    pub fn wipe(&mut self) {
        self.durable = None;
        self.acknowledged = None;
        self.damaged = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_write_leaves_the_older_record() {
        let mut disk = Disk::default();
        disk.write(Generation(1), Record::missing());
        let serial = disk.unscheduled().expect("the disk works");
        assert_eq!(disk.done(serial, true), Some(Written::Durable(Generation(1))));
        let newer = Record { frozen: true, ..Record::missing() };
        disk.write(Generation(2), newer);
        disk.cut_off(false);
        assert_eq!(disk.durable, Some(Record::missing()));
    }

    #[test]
    fn a_stalled_disk_acknowledges_nothing() {
        let mut disk = Disk { mode: DiskMode::Stalled, ..Disk::default() };
        disk.write(Generation(1), Record::missing());
        assert_eq!(disk.unscheduled(), None);
        disk.mode = DiskMode::Works;
        assert!(disk.unscheduled().is_some());
    }
}
