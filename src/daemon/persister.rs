//! Writes the record on a thread of its own: a stalled disk delays a promotion, never a heartbeat.

use std::sync::mpsc::{SyncSender, sync_channel};

use crate::core::{Generation, Input, Record};
use crate::os::clock;
use crate::os::record::RecordFile;

use super::note::{Inbox, Note};

/// The core has one write under way at a time; one more is room for its successor.
const QUEUE: usize = 2;

/// The loop's end.
#[derive(Debug)]
pub struct Persister {
    queue: SyncSender<(Generation, Record)>,
}

impl Persister {
    /// # Errors
    /// No thread can be started.
    pub fn start(mut file: RecordFile, inbox: Inbox) -> std::io::Result<Persister> {
        let (queue, orders) = sync_channel::<(Generation, Record)>(QUEUE);
        std::thread::Builder::new().name("record".to_owned()).spawn(move || {
            for (generation, record) in orders {
                let begun = clock::now();
                let result = file.write(&record);
                let took = clock::now().since(begun);
                let error = result.err().map(|e| e.to_string());
                let input = match error {
                    None => Input::Persisted(generation),
                    Some(_) => Input::PersistFailed(generation),
                };
                // The loop may have ended; then nobody waits.
                let _ = inbox.send(Note::Written { took, error });
                let _ = inbox.send(Note::Input(input));
            }
        })?;
        Ok(Persister { queue })
    }

    /// Never blocks: the core waits for the answer before it asks again.
    pub fn write(&self, generation: Generation, record: Record) {
        self.queue.try_send((generation, record)).expect("the core has one write under way at a time");
    }
}
