//! One world: a pair becomes whole, a fault happens to it at a random moment, and what became of the service is noted.

use crate::config::Checked;
use crate::core::NodeId;
use crate::sim::text::{NODES, show_time};
use crate::sim::{Action, Case, Guarantee, Rng, World, surviving};

use super::faults::{Drawing, Drawn, Fault};
use super::figures::Figures;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// How often a world is looked at while it becomes whole.
const LOOK: u64 = 250 * MS;
/// A pair that is not whole by then, with both nodes up, never will be.
const BECOMES_WHOLE: u64 = 120 * SECOND;
/// The fault comes at a moment of this span: long beside a heartbeat, whose beat it must not follow.
const MOMENTS: u64 = 10 * SECOND;
/// Before a stall the pair runs undisturbed for this long, with losses only.
const CALM: u64 = 60 * SECOND;

/// A world before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    pub fault: Fault,
    pub seed: u64,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub job: Job,
    /// How long the pair was whole, with nothing but losses happening, in nanoseconds.
    pub calm: u64,
    /// How much time passed in it, in nanoseconds.
    pub length: u64,
    pub end: End,
    /// Guarantees that were broken.
    pub broken: Vec<Guarantee>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The pair did not even begin.
    NeverWhole,
    /// A healthy primary was shot or stopped before the fault: by losses alone.
    FailedInCalm,
    Ran(Ran),
}

/// What was seen from the fault on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Time in which no node served.
    pub outage: u64,
    /// Nobody served when the world ended.
    pub still_down: bool,
    /// The service was started anew, on whichever node, or the node that was primary was shot.
    pub failed_over: bool,
    /// The node that was primary, and the one that stood by.
    pub shot: [bool; 2],
    /// Both acted for the service at one moment, whether or not an assumption was broken before.
    pub both_acted: bool,
    /// The node that stalled was the primary, and for how long.
    pub stall: Option<(bool, u64)>,
}

impl Ran {
    /// Each node shot the other.
    pub fn both_shot(&self) -> bool {
        self.shot == [true, true]
    }
}

/// A world after its end.
#[derive(Debug)]
pub struct Played {
    pub world: World,
    pub end: End,
    pub calm: u64,
}

/// Runs one world. A panic of the core is a broken guarantee like any other.
pub fn run(checked: &Checked, figures: &Figures, job: Job) -> Sample {
    let played = surviving(|| {
        let played = play(checked, figures, job, false);
        let broken = played.world.judges.violations.iter().map(|v| v.guarantee).collect();
        Sample { job, calm: played.calm, length: played.world.now, end: played.end, broken }
    });
    played.unwrap_or_else(|_| Sample { job, calm: 0, length: 0, end: End::NeverWhole, broken: vec![Guarantee::Panic] })
}

/// Plays the world of this job to its end.
pub fn play(checked: &Checked, figures: &Figures, job: Job, tracing: bool) -> Played {
    let mut rng = Rng::new(job.seed);
    let setup = figures.setup(checked, &mut rng);
    let start = NODES.map(|node| (0, Action::Start(node)));
    let mut world = World::new(setup, start.to_vec(), tracing);
    let Some(primary) = become_whole(&mut world) else {
        return Played { world, end: End::NeverWhole, calm: 0 };
    };
    let whole_since = world.now;
    let before = Marks::of(&world);
    let calm = if job.fault == Fault::Stall { CALM } else { 0 };
    let at = whole_since + calm + rng.below(MOMENTS / MS) * MS;
    world.run_until(at);
    let calm = at - whole_since;
    if Marks::of(&world) != before {
        return Played { world, end: End::FailedInCalm, calm };
    }
    let n = &world.setup.nodes[0];
    let mut drawing = Drawing { rng: &mut rng, primary, dead_after: n.dead_after, stalls: figures.stalls };
    let drawn = drawing.draw(job.fault, at);
    let end = suffer(&mut world, drawn, at, before, primary);
    Played { world, end, calm }
}

fn become_whole(world: &mut World) -> Option<NodeId> {
    while world.now < BECOMES_WHOLE {
        world.run_until(world.now + LOOK);
        if let Ok(primary) = world.whole() {
            return Some(primary);
        }
    }
    None
}

/// The fault, and what comes of it.
fn suffer(world: &mut World, drawn: Drawn, at: u64, before: Marks, primary: NodeId) -> End {
    for (at, action) in drawn.actions {
        world.plan(at, action);
    }
    world.run_until((drawn.ends + aftermath(world)).next_multiple_of(SECOND));
    world.finish();
    let after = Marks::of(world);
    let shot = |node: NodeId| after.shots[node.index()] > before.shots[node.index()];
    End::Ran(Ran {
        outage: outage(world, at),
        still_down: !world.judges.deeds.iter().any(|d| d.serves),
        failed_over: after.promotions > before.promotions || shot(primary),
        shot: [shot(primary), shot(primary.peer())],
        both_acted: world.judges.both_active > 0,
        stall: drawn.stall.map(|(node, length)| (node == primary, length)),
    })
}

/// Long enough for a take-over that fails twice: what is down after that, is down until somebody comes.
fn aftermath(world: &World) -> u64 {
    let n = &world.setup.nodes[0];
    let silence = n.dead_after + n.head_start + 4 * n.interval;
    silence + 3 * n.fence_bound + n.term + n.stop_budget + n.settle + 2 * n.start.1
}

/// What has happened so far that tells of a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    shots: [u32; 2],
    promotions: usize,
}

impl Marks {
    fn of(world: &World) -> Marks {
        Marks { shots: [0, 1].map(|i| world.bmcs[i].shots), promotions: world.judges.promotions.len() }
    }
}

/// The time from `from` until now in which neither node served.
fn outage(world: &World, from: u64) -> u64 {
    let mut spans: Vec<(u64, u64)> = world.judges.served.iter().flatten().copied().collect();
    spans.sort_unstable();
    let (mut gaps, mut reached) = (0, from);
    for (begin, end) in spans {
        gaps += begin.saturating_sub(reached).min(world.now.saturating_sub(reached));
        reached = reached.max(end.min(world.now));
    }
    gaps + world.now.saturating_sub(reached)
}

/// The world as lines that say what it is made of and what is done to it.
pub fn script(played: &Played) -> Vec<String> {
    let world = &played.world;
    let case = Case { setup: world.setup.clone(), schedule: world.schedule().to_vec(), until: world.now, heals: false };
    let text = case.script(&format!("seed, settings and faults of a world of {}", show_time(world.now)));
    text.lines().map(str::to_owned).collect()
}
