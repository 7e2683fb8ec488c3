//! Breadth first, so that the first trace found is a shortest one.
//!
//! Own and not `stateright`: a panic of the core's own invariants has to end in a trace like any other violation,
//! states share their unchanged node, and what is decided without a choice is no state of its own. That is this file.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use leasehold::core::Token;

use super::judge::Violation;
use super::setup::Setup;
use super::world::{Action, Step, World};

/// Steps that leave no choice are taken at once, but not for ever: an idle pair goes round.
const FORCED: u32 = 40;

#[derive(Debug)]
pub struct Found {
    pub violation: Violation,
    pub trace: Vec<String>,
}

#[derive(Debug)]
pub struct Outcome {
    pub name: &'static str,
    pub states: usize,
    pub transitions: u64,
    pub depth: u32,
    /// Paths not followed because tokens rose above the bound.
    pub bounded: u64,
    /// Everything within the bounds was visited.
    pub exhausted: bool,
    pub took: Duration,
    pub found: Vec<Found>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<34} {:>9} states {:>10} transitions, depth {:>3}, {}{}, {:.1} s",
            self.name,
            self.states,
            self.transitions,
            self.depth,
            if self.exhausted { "exhausted" } else { "cut short" },
            if self.bounded > 0 { format!(" ({} beyond the token bound)", self.bounded) } else { String::new() },
            self.took.as_secs_f64()
        )
    }
}

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub states: usize,
    pub time: Duration,
    pub token: Token,
    /// How many different violations to collect before giving up.
    pub violations: usize,
}

/// A fingerprint is as good as any hash of it.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers of 64 bits");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

struct Search {
    /// How each state was reached: from which, by what.
    parents: Vec<(u32, Action)>,
    seen: HashSet<u64, BuildHasherDefault<AsItIs>>,
    queue: VecDeque<(u32, u32, World)>,
}

/// How many models are explored at once: one a core of a small machine.
pub const THREADS: usize = 2;

/// Explores each model; their outcomes in the same order.
pub fn explore_each(models: &[&'static Setup], bounds: Bounds) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        while let Some(setup) = models.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = explore(setup, bounds);
            outcomes.lock().expect("no thread panics while it holds the outcomes").push(outcome);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let mut outcomes = outcomes.into_inner().expect("no thread panicked");
    outcomes.sort_by_key(|o: &Outcome| models.iter().position(|m| m.name == o.name));
    outcomes
}

/// Visits every state within the bounds.
pub fn explore(setup: &'static Setup, bounds: Bounds) -> Outcome {
    let begun = Instant::now();
    let first = World::new(setup);
    let mut search = Search { parents: vec![(0, Action::Advance)], seen: HashSet::default(), queue: VecDeque::new() };
    search.seen.insert(first.fingerprint());
    search.queue.push_back((0, 0, first));
    let (mut transitions, mut depth, mut bounded) = (0, 0, 0);
    let mut found: Vec<Found> = Vec::new();
    let mut kinds: HashSet<String> = HashSet::new();
    while let Some((index, level, world)) = search.queue.pop_front() {
        depth = level;
        let full = search.seen.len() >= bounds.states || begun.elapsed() >= bounds.time;
        if full || found.len() >= bounds.violations {
            search.queue.push_front((index, level, world));
            break;
        }
        for action in world.actions() {
            transitions += 1;
            let mut next = world.clone();
            match guarded(&mut next, action) {
                Err(violation) => {
                    if kinds.insert(kind(&violation)) {
                        let trace = retrace(setup, &search.parents, index, action);
                        found.push(Found { violation, trace });
                    }
                }
                Ok(()) if next.highest_token() > bounds.token => bounded += 1,
                Ok(()) => {
                    if search.seen.insert(next.fingerprint()) {
                        let id = u32::try_from(search.parents.len()).expect("the bound of states is lower");
                        search.parents.push((index, action));
                        search.queue.push_back((id, level + 1, next));
                    }
                }
            }
        }
    }
    Outcome {
        name: setup.name,
        states: search.seen.len(),
        transitions,
        depth,
        bounded,
        exhausted: search.queue.is_empty(),
        took: begun.elapsed(),
        found,
    }
}

/// The violation without its numbers: one of a kind is enough.
fn kind(violation: &Violation) -> String {
    violation.0.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
}

/// One action, and then everything that leaves no choice. A panic of the core is a violation like any other.
fn guarded(world: &mut World, action: Action) -> Step {
    panic::catch_unwind(AssertUnwindSafe(|| run(world, action))).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|s| String::from(*s)));
        Err(Violation(format!("panic: {}", text.unwrap_or_default())))
    })
}

fn run(world: &mut World, action: Action) -> Step {
    world.apply(action)?;
    for _ in 0..FORCED {
        match world.actions()[..] {
            [only] => world.apply(only)?,
            _ => break,
        }
    }
    Ok(())
}

/// The same path once more, telling what happens.
fn retrace(setup: &'static Setup, parents: &[(u32, Action)], last: u32, action: Action) -> Vec<String> {
    let mut path = vec![action];
    let mut index = last;
    while index != 0 {
        let (parent, by) = parents[index as usize];
        path.push(by);
        index = parent;
    }
    let mut world = World::new(setup);
    world.trace = Some(Vec::new());
    for action in path.into_iter().rev() {
        if guarded(&mut world, action).is_err() {
            break;
        }
    }
    world.trace.unwrap_or_default()
}
