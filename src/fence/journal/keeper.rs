//! The thread that keeps the journal: whoever hands over a case never waits for a disk.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::file::JournalFile;
use super::{Case, LIMIT};
use crate::fence::Stamp;

/// Cases that may wait for a stalled disk; one takes a few kilobytes. What comes on top is counted and told.
const QUEUE: usize = 64;

/// What the keeper tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Entry `number` is durable; `head` is its hash.
    Written { number: u64, head: String },
    /// The journal itself wants an operator's eye: damage that was set aside.
    Told(String),
    /// An attempt is not in the journal; `missed` are by now.
    Failed { error: String, missed: u64 },
}

/// A handle to the journal. Cheap to clone; the last one that goes ends the thread.
#[derive(Debug, Clone)]
pub struct Journal {
    queue: SyncSender<Case>,
    overflow: Arc<Mutex<u64>>,
}

/// Completes when the thread has written what was handed over.
#[derive(Debug)]
pub struct Ended(Receiver<()>);

impl Journal {
    /// Opens the journal in the state directory, on its own thread. `tell` is called there.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        directory: &Path,
        stamp: Stamp,
        tell: impl Fn(News) + Send + 'static,
    ) -> std::io::Result<(Journal, Ended)> {
        let (queue, cases) = sync_channel::<Case>(QUEUE);
        let (end, ended) = channel();
        let overflow = Arc::new(Mutex::new(0));
        let (directory, lost) = (directory.to_owned(), Arc::clone(&overflow));
        std::thread::Builder::new().name("fence-journal".to_owned()).spawn(move || {
            let mut file = JournalFile::open(&directory, LIMIT, &stamp());
            tell_all(&mut file, &tell);
            for case in cases {
                keep(&mut file, &case, take(&lost), &tell);
            }
            drop(end);
        })?;
        Ok((Journal { queue, overflow }, Ended(ended)))
    }

    /// Hands a case over. Never waits.
    pub fn record(&self, case: Case) {
        match self.queue.try_send(case) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                *self.overflow.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
        }
    }
}

impl Ended {
    /// Waits until the thread has ended, but not longer than this. `true`: everything was written.
    pub fn wait(&self, limit: Duration) -> bool {
        self.0.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }
}

fn take(lost: &Mutex<u64>) -> u64 {
    std::mem::take(&mut *lost.lock().unwrap_or_else(PoisonError::into_inner))
}

fn keep(file: &mut JournalFile, case: &Case, lost: u64, tell: &impl Fn(News)) {
    file.note_missed(lost);
    let result = file.append(case);
    tell_all(file, tell);
    tell(match result {
        Ok((number, head)) => News::Written { number, head },
        Err(error) => News::Failed { error: error.to_string(), missed: file.missed() },
    });
}

fn tell_all(file: &mut JournalFile, tell: &impl Fn(News)) {
    file.take_told().into_iter().map(News::Told).for_each(tell);
}
