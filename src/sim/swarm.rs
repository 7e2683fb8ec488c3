//! Worlds drawn from seeds: each seed draws which faults exist and how heavy they are. A safety phase with faults, then
//! a healing phase after which the pair must be whole again without an operator (protocol L2).

use super::action::Action;
use super::draw::{draw_schedule, draw_setup};
use super::judges::{Guarantee, Violation};
use super::rng::Rng;
use super::setup::Setup;
use super::text::show_time;
use super::world::World;

/// One world of the swarm, before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub setup: Setup,
    pub schedule: Vec<(u64, Action)>,
    pub until: u64,
    /// At the end there must be a primary and a ready standby.
    pub heals: bool,
}

/// What many worlds came to.
#[derive(Debug, Default, Clone)]
pub struct Figures {
    pub seeds: u64,
    /// Simulated time of all worlds, in nanoseconds.
    pub simulated: u128,
    pub steps: u64,
    pub promotions: u64,
    /// Worlds in which S1 was void, because an assumption was broken on purpose.
    pub void: u64,
    pub failed: u64,
}

/// What one world came to.
#[derive(Debug)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    pub steps: u64,
    pub promotions: u64,
    pub void: bool,
}

/// The world of this seed.
pub fn draw(seed: u64) -> Case {
    let mut rng = Rng::new(seed);
    let setup = draw_setup(seed, &mut rng);
    let (schedule, until) = draw_schedule(&setup, &mut rng);
    Case { setup, schedule, until, heals: true }
}

/// Runs one world. A panic of the core is a violation like any other.
pub fn run(case: &Case) -> Verdict {
    super::quiet::surviving(|| run_to_its_end(case)).unwrap_or_else(|text| {
        let violation = Violation { at: 0, guarantee: Guarantee::Panic, text };
        Verdict { violations: vec![violation], steps: 0, promotions: 0, void: false }
    })
}

fn run_to_its_end(case: &Case) -> Verdict {
    let mut world = World::new(case.setup.clone(), case.schedule.clone(), false);
    world.run_until(case.until);
    world.finish();
    if let (true, Err(why)) = (case.heals, world.whole()) {
        world.judges.accuse(case.until, Guarantee::L2, why);
    }
    Verdict {
        steps: world.steps,
        promotions: world.judges.promotions.len() as u64,
        void: world.judges.is_void(Guarantee::S1),
        violations: world.judges.violations,
    }
}

/// Runs the worlds of these seeds; `failed` hears of each that breaks a guarantee.
pub fn run_many(seeds: std::ops::Range<u64>, mut failed: impl FnMut(u64, &Case, &[Violation])) -> Figures {
    let mut figures = Figures::default();
    for seed in seeds {
        let case = draw(seed);
        let verdict = run(&case);
        figures.seeds += 1;
        figures.simulated += u128::from(case.until);
        figures.steps += verdict.steps;
        figures.promotions += verdict.promotions;
        figures.void += u64::from(verdict.void);
        if !verdict.violations.is_empty() {
            figures.failed += 1;
            failed(seed, &case, &verdict.violations);
        }
    }
    figures
}

impl Figures {
    pub fn hours(&self) -> f64 {
        self.simulated as f64 / 3.6e12
    }

    /// Adds what another thread ran.
    pub fn add(&mut self, other: &Figures) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.steps += other.steps;
        self.promotions += other.promotions;
        self.void += other.void;
        self.failed += other.failed;
    }
}

impl Case {
    /// The case as a scenario that anyone can run again.
    pub fn script(&self, title: &str) -> String {
        let mut text = format!("# {title}\n");
        for line in self.setup.lines() {
            text.push_str(&format!("{line}\n"));
        }
        for (at, action) in &self.schedule {
            text.push_str(&format!("at {} {action}\n", show_time(*at)));
        }
        text.push_str(&format!("run {}\n", show_time(self.until)));
        if self.heals {
            text.push_str("expect whole at end\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::script::Scenario;

    #[test]
    fn a_drawn_world_reads_back_from_its_script() {
        for seed in 0..200 {
            let case = draw(seed);
            let read = Scenario::parse(&case.script("drawn")).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(read.setup, case.setup, "seed {seed}");
            assert_eq!(read.schedule, case.schedule, "seed {seed}");
            assert_eq!(read.until, case.until);
            assert_eq!(case.setup.broken_rule(), None, "seed {seed}");
        }
    }
}
