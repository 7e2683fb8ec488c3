//! What happens next: a heap by (time, serial), so that one seed always gives one order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::core::NodeId;

/// Something that is going to happen. Small and `Copy`: datagrams and answers lie in slabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The daemon of this life has a timer due.
    Wake { node: NodeId, life: u32 },
    /// A datagram reaches this machine.
    Deliver { to: NodeId, slot: u32 },
    /// An answer to something that the daemon of this life asked for.
    Answer { node: NodeId, life: u32, slot: u32 },
    /// An operator's word reaches the daemon that runs here.
    Operator { node: NodeId, slot: u32 },
    /// The record write in flight has reached the disk.
    DiskDone { node: NodeId, write: u32 },
    /// A step of the resource group's start or stop is over.
    Group { node: NodeId, op: u32 },
    /// The guard looks at its deadline.
    Guard { node: NodeId, boot: u32 },
    /// The kernel is up.
    Booted { node: NodeId, boot: u32 },
    /// The service manager starts the daemon.
    StartDaemon { node: NodeId, boot: u32 },
    /// A pause ends.
    Resume { node: NodeId, pause: u32 },
    /// A fence device or the storage gets on with a job.
    Job { slot: u32 },
    /// A command that was under way for long reaches the device.
    Landing { slot: u32 },
    /// The reset that the guard ordered takes effect.
    Reset { node: NodeId, boot: u32 },
    /// The script acts.
    Act { index: u32 },
}

impl Event {
    /// The machine whose kernel must run for this to happen.
    pub fn guest(self) -> Option<NodeId> {
        match self {
            Event::Wake { node, .. }
            | Event::Answer { node, .. }
            | Event::Operator { node, .. }
            | Event::DiskDone { node, .. }
            | Event::Group { node, .. }
            | Event::Guard { node, .. }
            | Event::StartDaemon { node, .. }
            | Event::Deliver { to: node, .. } => Some(node),
            Event::Booted { .. }
            | Event::Resume { .. }
            | Event::Job { .. }
            | Event::Landing { .. }
            | Event::Reset { .. }
            | Event::Act { .. } => None,
        }
    }

    /// Whether it comes from outside the pair, so that what the pair promises counts from here.
    pub fn disturbs(self) -> bool {
        match self {
            Event::Booted { .. }
            | Event::Resume { .. }
            | Event::Landing { .. }
            | Event::Reset { .. }
            | Event::StartDaemon { .. }
            | Event::Operator { .. }
            | Event::Act { .. } => true,
            Event::Wake { .. }
            | Event::Deliver { .. }
            | Event::Answer { .. }
            | Event::DiskDone { .. }
            | Event::Group { .. }
            | Event::Guard { .. }
            | Event::Job { .. } => false,
        }
    }

    /// Whether the daemon's own process must run for this to happen.
    pub fn needs_daemon(self) -> bool {
        match self {
            Event::Wake { .. }
            | Event::Answer { .. }
            | Event::Operator { .. }
            | Event::Group { .. }
            | Event::Deliver { .. } => true,
            Event::DiskDone { .. }
            | Event::Guard { .. }
            | Event::Booted { .. }
            | Event::StartDaemon { .. }
            | Event::Resume { .. }
            | Event::Job { .. }
            | Event::Landing { .. }
            | Event::Reset { .. }
            | Event::Act { .. } => false,
        }
    }
}

/// The queue of events, earliest first; at equal times, first come first served.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
}

impl Queue {
    pub fn push(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.heap.push(Reverse((at, self.serial, event)));
    }

    /// The next event at or before `until`.
    pub fn pop_until(&mut self, until: u64) -> Option<(u64, Event)> {
        if self.heap.peek()?.0.0 > until {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// Values at numbered places that are used again: no allocation for each datagram.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn put(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.places[slot as usize] = Some(value);
            return slot;
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u32
    }

    pub fn take(&mut self, slot: u32) -> Option<T> {
        let value = self.places.get_mut(slot as usize)?.take();
        if value.is_some() {
            self.free.push(slot);
        }
        value
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.places.get_mut(slot as usize)?.as_mut()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_equal_times_the_first_pushed_comes_first() {
        let mut queue = Queue::default();
        queue.push(5, Event::Act { index: 9 });
        queue.push(5, Event::Act { index: 1 });
        queue.push(2, Event::Act { index: 4 });
        let order: Vec<_> = std::iter::from_fn(|| queue.pop_until(5)).collect();
        assert_eq!(order, [(2, Event::Act { index: 4 }), (5, Event::Act { index: 9 }), (5, Event::Act { index: 1 })]);
    }
}
