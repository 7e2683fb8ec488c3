//! The file of the journal: appended and synced, cut to its bound, set aside when it is damaged. Blocks; for a thread of
//! its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::chain::{self, Anchor, History};
use super::{Action, Case, Entry, Verdict};

/// The file in the state directory.
pub const FILE: &str = "fence-journal";
/// The most bytes of the file: some thousand attempts with their evidence, or days of one that fails the same way.
pub const LIMIT: u64 = 2 << 20;
/// Damaged journals kept beside it; with more, the oldest goes, and that is told.
const ASIDE_KEPT: usize = 8;

/// Why an attempt is not in the journal. Fencing goes on; the next entry says how many are missing.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {step} {}: {source}", path.display())]
    Io { step: &'static str, path: PathBuf, source: io::Error },
    #[error("an entry of {length} bytes does not fit into a journal of {limit}")]
    TooLong { length: u64, limit: u64 },
}

/// Reads the journal of a state directory; `None` where there is none yet.
///
/// # Errors
/// It cannot be read.
pub fn history(directory: &Path) -> Result<Option<History>, JournalError> {
    let path = directory.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(chain::read(&bytes))),
        Err(e) if e.kind() == ErrorKind::NotFound && directory.is_dir() => Ok(None),
        Err(source) => Err(JournalError::Io { step: "read", path, source }),
    }
}

/// The journal, open for appending.
#[derive(Debug)]
pub struct JournalFile {
    directory: PathBuf,
    limit: u64,
    /// `None` until it could be opened, and after an error that leaves in doubt what is on the disk.
    open: Option<Open>,
    missed: u64,
    /// Sentences for an operator, since they were last taken.
    told: Vec<String>,
}

#[derive(Debug)]
struct Open {
    file: File,
    history: History,
    length: u64,
}

impl JournalFile {
    /// Opens or makes it. What is wrong is told and tried again with the first entry.
    pub fn open(directory: &Path, limit: u64, now: &str) -> JournalFile {
        let mut journal =
            JournalFile { directory: directory.to_owned(), limit, open: None, missed: 0, told: Vec::new() };
        if let Err(error) = journal.ensure_open(now) {
            journal.told.push(format!("the fence journal cannot be opened: {error}"));
        }
        journal
    }

    /// What an operator should know, since this was last asked.
    pub fn take_told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// Attempts since the last entry that are not in the journal.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Attempts that never came this far.
    pub fn note_missed(&mut self, more: u64) {
        self.missed += more;
    }

    /// Writes one entry and syncs it; gives the entry's number and its hash.
    ///
    /// # Errors
    /// It is not in the journal, and counted as missed.
    pub fn append(&mut self, case: &Case) -> Result<(u64, String), JournalError> {
        let result = self.ensure_open(&case.at).and_then(|()| self.append_open(case));
        self.missed += u64::from(result.is_err());
        result
    }

    fn append_open(&mut self, case: &Case) -> Result<(u64, String), JournalError> {
        let line = self.line_of(case);
        let length = line.len() as u64 + 1;
        if length > self.limit / 4 {
            return Err(JournalError::TooLong { length, limit: self.limit });
        }
        if self.length() + length > self.limit {
            self.compact()?;
        }
        // Compaction changes neither number nor hash of the newest, so the line stays right.
        self.write(&line)?;
        // The entry has told how many.
        self.missed = 0;
        let open = self.open.as_mut().expect("ensure_open came first");
        open.length += length;
        let entry: Entry = serde_json::from_slice(&line).expect("this very line was made of an entry");
        open.history.head = chain::hash(&line);
        let number = entry.number;
        open.history.entries.push(entry);
        open.history.lines.push(line);
        Ok((number, open.history.head.clone()))
    }

    fn length(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.length)
    }

    fn line_of(&self, case: &Case) -> Vec<u8> {
        let history = &self.open.as_ref().expect("ensure_open came first").history;
        let same_as = history.same_as(case);
        let case = match same_as {
            Some(_) => Case { evidence: Vec::new(), ..case.clone() },
            None => case.clone(),
        };
        let number = history.last_number() + 1;
        chain::line(&Entry { number, previous: history.head.clone(), missed: self.missed, same_as, case })
    }

    /// After a failed write the file is as long as before. After a failed sync nobody knows what is on the disk, and
    /// a second sync would lie: the next entry goes into a file that is written anew.
    fn write(&mut self, line: &[u8]) -> Result<(), JournalError> {
        let path = self.directory.join(FILE);
        let open = self.open.as_mut().expect("ensure_open came first");
        let text = [line, b"\n"].concat();
        if let Err(source) = (&open.file).write_all(&text) {
            // Where even this fails, the next opening finds a cut-off line, and sets it aside.
            if open.file.set_len(open.length).is_err() {
                self.open = None;
            }
            return Err(JournalError::Io { step: "write to", path, source });
        }
        if let Err(source) = open.file.sync_data() {
            let whole = open.history.clone();
            self.open = None;
            let told = match self.publish(&whole) {
                Ok(()) => "a sync of the fence journal failed; it was written anew".to_owned(),
                Err(error) => format!("a sync of the fence journal failed, and writing it anew too: {error}"),
            };
            self.told.push(told);
            return Err(JournalError::Io { step: "sync", path, source });
        }
        Ok(())
    }

    fn ensure_open(&mut self, now: &str) -> Result<(), JournalError> {
        if self.open.is_some() {
            return Ok(());
        }
        match history(&self.directory)? {
            None => self.publish(&History { head: Anchor::default().hash, ..History::default() }),
            Some(History { trouble: None, .. }) => self.reopen(),
            Some(damaged) => self.set_aside(damaged, now),
        }
    }

    fn reopen(&mut self) -> Result<(), JournalError> {
        let path = self.directory.join(FILE);
        let failed = |source| JournalError::Io { step: "open", path: path.clone(), source };
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        let bytes = fs::read(&path).map_err(failed)?;
        self.open = Some(Open { file, length: bytes.len() as u64, history: chain::read(&bytes) });
        Ok(())
    }

    /// Keeps the damaged file under another name, and goes on with what is whole of it.
    fn set_aside(&mut self, mut whole: History, now: &str) -> Result<(), JournalError> {
        let trouble = whole.trouble.take().map_or_else(String::new, |trouble| trouble.to_string());
        let aside = self.copy_aside()?;
        self.publish(&whole)?;
        let name = aside.display();
        let text = format!("the fence journal was damaged: {trouble}; the whole file is kept as {name}");
        let case = Case {
            at: now.to_owned(),
            until: now.to_owned(),
            action: Action::Damage,
            target: String::new(),
            token: None,
            verdict: Verdict::Unknown,
            result: text.clone(),
            over_limit: false,
            agents: Vec::new(),
            evidence: Vec::new(),
            left_out: 0,
        };
        self.told.push(text);
        self.append_open(&case).map(drop)
    }

    fn copy_aside(&mut self) -> Result<PathBuf, JournalError> {
        let from = self.directory.join(FILE);
        let numbers = self.aside_numbers();
        let to = self.aside(numbers.last().map_or(1, |last| last + 1));
        let copied = fs::copy(&from, &to).and_then(|_| File::open(&to)?.sync_all());
        copied.map_err(|source| JournalError::Io { step: "set aside as", path: to.clone(), source })?;
        let excess = (numbers.len() + 1).saturating_sub(ASIDE_KEPT);
        for number in numbers.into_iter().take(excess) {
            let old = self.aside(number);
            let removed =
                fs::remove_file(&old).map_or_else(|e| format!("cannot be removed: {e}"), |()| "was removed".to_owned());
            self.told.push(format!("{ASIDE_KEPT} damaged fence journals are kept: {} {removed}", old.display()));
        }
        Ok(to)
    }

    fn aside(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{FILE}.damaged-{number}"))
    }

    fn aside_numbers(&self) -> Vec<u32> {
        let prefix = format!("{FILE}.damaged-");
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut numbers: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Drops the oldest entries, down to half of the bound; the anchor names the last that went.
    fn compact(&mut self) -> Result<(), JournalError> {
        let history = &self.open.as_ref().expect("ensure_open came first").history;
        let mut room = self.limit / 2;
        let mut kept = 0;
        for line in history.lines.iter().rev() {
            let Some(left) = room.checked_sub(line.len() as u64 + 1) else { break };
            (room, kept) = (left, kept + 1);
        }
        let gone = history.lines.len() - kept;
        let anchor = match history.lines[..gone].last() {
            None => history.anchor.clone(),
            Some(line) => {
                Anchor { dropped: history.entries[gone - 1].number, hash: chain::hash(line), ..Anchor::default() }
            }
        };
        let shorter = History {
            anchor,
            entries: history.entries[gone..].to_vec(),
            lines: history.lines[gone..].to_vec(),
            head: history.head.clone(),
            trouble: None,
        };
        self.publish(&shorter)
    }

    /// Puts this in the file's place, whole or not at all, and opens it.
    fn publish(&mut self, history: &History) -> Result<(), JournalError> {
        let (path, new) = (self.directory.join(FILE), self.directory.join(format!("{FILE}.new")));
        let lines = std::iter::once(chain::line(&history.anchor)).chain(history.lines.iter().cloned());
        let text: Vec<u8> = lines.flat_map(|line| line.into_iter().chain([b'\n'])).collect();
        let written = write_whole(&new, &text).and_then(|()| fs::rename(&new, &path));
        let durable = written.and_then(|()| File::open(&self.directory)?.sync_all());
        if let Err(source) = durable {
            // A half-written one would only take room on a disk that may be full.
            let _ = fs::remove_file(&new);
            return Err(JournalError::Io { step: "write", path: new, source });
        }
        self.reopen()
    }
}

fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

impl History {
    /// The newest entry that has evidence, if this is its story again.
    fn same_as(&self, case: &Case) -> Option<u64> {
        let newest = self.entries.iter().rev().find(|entry| entry.case.action != Action::Damage)?;
        let first = match newest.same_as {
            Some(number) => self.entries.iter().rev().find(|entry| entry.number == number)?,
            None => newest,
        };
        first.case.tells_the_same(case).then_some(first.number)
    }
}
