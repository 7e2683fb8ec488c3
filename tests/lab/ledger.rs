//! What the service wrote, whatever the daemons believed: followed line by line, and held against the judges at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use leasehold::cli::demo::checker;
use leasehold::cli::demo::history::{self, Line};
use leasehold::core::Span;
use leasehold::os::clock;

const BLOCK: usize = 512;
/// How often a disk is read for news.
const LOOK: Duration = Duration::from_millis(20);

/// By which clock the writes are dated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    /// All writers have ours.
    Ours,
    /// Each has its own: what counts is when a write was seen here.
    OfEachWriter,
}

impl Clocks {
    fn date(self, line: Line) -> Line {
        match self {
            Clocks::Ours => line,
            Clocks::OfEachWriter => Line { boottime_ns: clock::now().0, ..line },
        }
    }
}

/// The shared file of both hosts.
pub struct Ledger {
    path: PathBuf,
    clocks: Clocks,
    news: Receiver<Line>,
    pub lines: Vec<Line>,
}

impl Ledger {
    pub fn follow(path: &Path, clocks: Clocks) -> Ledger {
        let (queue, news) = channel();
        let followed = path.to_owned();
        // It ends with the file.
        std::thread::spawn(move || history::follow(&followed, |line| queue.send(clocks.date(line)).is_ok()));
        Ledger { path: path.to_owned(), clocks, news, lines: Vec::new() }
    }

    /// The same on a disk: a line a block, and zeros after the last.
    pub fn follow_disk(path: &Path, clocks: Clocks) -> Ledger {
        let (queue, news) = channel();
        let followed = path.to_owned();
        std::thread::spawn(move || -> anyhow::Result<()> {
            let (file, mut at) = (File::open(&followed)?, 0);
            // It ends with the laboratory's folder.
            while followed.exists() {
                let mut block = [0; BLOCK];
                match file.read_exact_at(&mut block, at) {
                    Ok(()) if block[0] != 0 => at += BLOCK as u64,
                    _ => {
                        std::thread::sleep(LOOK);
                        continue;
                    }
                }
                queue.send(clocks.date(serde_json::from_slice(&block)?))?;
            }
            Ok(())
        });
        Ledger { path: path.to_owned(), clocks, news, lines: Vec::new() }
    }

    /// Takes what was written, waiting at most `limit` for the first of it.
    pub fn take(&mut self, limit: Duration) {
        self.lines.extend(self.news.recv_timeout(limit).ok());
        self.lines.extend(self.news.try_iter());
    }

    pub fn last(&self) -> Option<&Line> {
        self.lines.last()
    }

    /// The first write on this host under a higher token.
    pub fn first_above(&self, host: &str, token: u64) -> Option<&Line> {
        self.lines.iter().rev().take_while(|line| line.token > token).filter(|line| line.node == host).last()
    }

    /// The longest time between two writes, from the line `from` on.
    pub fn longest_gap(&self, from: usize) -> Span {
        let pairs = self.lines[from..].windows(2);
        Span(pairs.map(|pair| pair[1].boottime_ns.saturating_sub(pair[0].boottime_ns)).max().unwrap_or_default())
    }

    /// No two nodes active, tokens rise, one writer a token, no write lost: by the whole file.
    pub fn judge(&mut self) -> anyhow::Result<()> {
        self.take(Duration::ZERO);
        let mut lines = history::read(&self.path)?;
        if self.clocks == Clocks::OfEachWriter {
            // Of the newest nobody knows yet when they were seen.
            let mut seen = self.lines.iter().map(|line| line.boottime_ns).chain(std::iter::repeat(u64::MAX));
            lines.iter_mut().flatten().for_each(|line| line.boottime_ns = seen.next().expect("it has no end"));
        }
        // What nobody has written yet on a disk.
        lines.retain(|line| !line.as_ref().is_err_and(|text| text.chars().all(|letter| letter == '\0')));
        tell_boots_apart(&mut lines);
        let mut broken: Vec<_> = checker::judge(&lines).into_iter().filter(|check| !check.holds()).collect();
        // A protection that breaks breaks with every write.
        broken.iter_mut().for_each(|check| check.findings.truncate(5));
        anyhow::ensure!(broken.is_empty(), "{broken:#?}");
        Ok(())
    }
}

/// A host counts its processes anew with each boot: the same number is another process under another token.
fn tell_boots_apart(lines: &mut [Result<Line, String>]) {
    let mut writers: BTreeMap<(String, u32, u64), u32> = BTreeMap::new();
    for line in lines.iter_mut().flatten() {
        let next = u32::try_from(writers.len()).expect("few writers") + 1;
        line.pid = *writers.entry((line.node.clone(), line.pid, line.token)).or_insert(next);
    }
}

#[test]
fn the_same_process_number_after_a_boot_is_another_writer() {
    let line =
        |token, counter| Ok(Line { token, node: "heron".into(), pid: 7, counter, boottime_ns: token * 10 + counter });
    let mut lines = vec![line(2, 1), line(2, 2), line(4, 1)];
    assert!(checker::judge(&lines).iter().any(|check| !check.holds()));
    tell_boots_apart(&mut lines);
    assert!(checker::judge(&lines).iter().all(checker::Check::holds));
}
