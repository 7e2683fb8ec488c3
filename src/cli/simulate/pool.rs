//! Runs worlds on two threads, and says how far it is where somebody waits at a terminal.

use std::io::{IsTerminal, Write};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use crate::config::Checked;
use crate::core::{Instant, Span};
use crate::os::clock;

use super::figures::Figures;
use super::worlds::{self, Job, Sample};

/// A machine that runs a pair has other things to do.
const THREADS: usize = 2;
/// Whoever waits for less than this needs no progress.
const SOON: Span = Span::from_secs(1);
const OFTEN: Span = Span::from_ms(200);

/// Where progress is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Silent,
    OnStderr,
}

impl Progress {
    pub fn on_a_terminal() -> Progress {
        if std::io::stderr().is_terminal() { Progress::OnStderr } else { Progress::Silent }
    }
}

/// All worlds, in the order of the jobs, and how many hours were simulated.
pub fn run(checked: &Checked, figures: &Figures, jobs: &[Job], progress: Progress) -> (Vec<Sample>, f64) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = channel();
    let mut samples: Vec<(usize, Sample)> = Vec::with_capacity(jobs.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((index, job)) = take(next, jobs) {
                    // The receiver lives until all have sent.
                    let _ = sender.send((index, worlds::run(checked, figures, *job)));
                }
            });
        }
        drop(sender);
        let mut teller = Teller::new(progress, jobs.len());
        for sample in receiver {
            samples.push(sample);
            teller.tell(samples.len());
        }
        teller.end();
    });
    samples.sort_by_key(|(index, _)| *index);
    let samples: Vec<Sample> = samples.into_iter().map(|(_, sample)| sample).collect();
    let hours = samples.iter().map(|s| s.length as f64).sum::<f64>() / 3.6e12;
    (samples, (hours * 10.0).round() / 10.0)
}

fn take<'a>(next: &AtomicUsize, jobs: &'a [Job]) -> Option<(usize, &'a Job)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(index).map(|job| (index, job))
}

/// One line on stderr, drawn over.
#[derive(Debug)]
struct Teller {
    progress: Progress,
    all: usize,
    begun: Instant,
    told: Option<Instant>,
}

impl Teller {
    fn new(progress: Progress, all: usize) -> Teller {
        Teller { progress, all, begun: clock::now(), told: None }
    }

    fn tell(&mut self, done: usize) {
        if self.progress == Progress::Silent {
            return;
        }
        let now = clock::now();
        let due = self.told.map_or(now.since(self.begun) >= SOON, |told| now.since(told) >= OFTEN);
        if due {
            self.told = Some(now);
            self.say(&format!("\r{done} of {} worlds", self.all));
        }
    }

    /// The line is wiped, since the report follows.
    fn end(&self) {
        if self.told.is_some() {
            self.say("\r\x1b[K");
        }
    }

    fn say(&self, text: &str) {
        let mut stderr = std::io::stderr();
        // Progress that nobody can read is no loss.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}
