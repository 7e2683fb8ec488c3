//! The links between the nodes: loss, delay, reordering, duplication, one-way cuts, flapping, and the exact holds and
//! drops that a script asks for.

use crate::core::{Datagram, NodeId};

use super::matching::Pattern;
use super::rng::Rng;
use super::setup::Setup;
use super::text::Range;

/// How one direction of one link behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    pub cut: bool,
    pub delay: Range,
    pub loss: u32,
    /// Share of datagrams that wait up to `LATE` longer than the others.
    pub reorder: u32,
    pub duplicate: u32,
    /// Share of datagrams that arrive changed; they never open, so they are as good as lost.
    pub corrupt: u32,
    /// Up for the first span, down for the second, for ever.
    pub flap: Option<(u64, u64)>,
}

/// How long a reordered datagram may hang behind, at most.
const LATE: u64 = 3_000_000_000;

/// What a rule does with what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Drop,
    /// Delivered at this time instead.
    HoldUntil(u64),
    /// Delivered as usual, and once more at this time.
    RepeatAt(u64),
}

/// A script's word about single datagrams, on all links of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub from: NodeId,
    pub pattern: Pattern,
    pub fate: Fate,
    /// How many datagrams (not copies) it still applies to; `None` for all.
    pub left: Option<u32>,
    /// When it ends.
    pub until: Option<u64>,
    /// Sequence of the datagram that was counted last: its copies on the other links share its fate.
    last: Option<crate::core::Seq>,
}

impl Rule {
    pub fn new(from: NodeId, pattern: Pattern, fate: Fate, left: Option<u32>, until: Option<u64>) -> Rule {
        Rule { from, pattern, fate, left, until, last: None }
    }

    /// It does nothing more.
    pub fn is_over(&self, now: u64) -> bool {
        self.left == Some(0) || self.until.is_some_and(|u| now > u)
    }

    fn applies(&mut self, datagram: &Datagram, now: u64) -> bool {
        let over = self.until.is_some_and(|u| now > u) || datagram.sender != self.from;
        if over || !self.pattern.matches(datagram) {
            return false;
        }
        if self.last == Some(datagram.seq) {
            return true;
        }
        if self.left == Some(0) {
            return false;
        }
        self.left = self.left.map(|n| n - 1);
        self.last = Some(datagram.seq);
        true
    }
}

/// All links, both directions.
#[derive(Debug)]
pub struct Links {
    /// `paths[sender][link]`
    pub paths: [Vec<Path>; 2],
    pub rules: Vec<Rule>,
}

/// When the copies of one datagram arrive: at most two.
pub type Arrivals = [Option<u64>; 2];

impl Links {
    pub fn new(setup: &Setup) -> Links {
        let path = Path {
            cut: false,
            delay: setup.delay,
            loss: setup.loss,
            reorder: setup.reorder,
            duplicate: setup.duplicate,
            corrupt: 0,
            flap: None,
        };
        let all = vec![path; usize::from(setup.links)];
        Links { paths: [all.clone(), all], rules: Vec::new() }
    }

    pub fn count(&self) -> usize {
        self.paths[0].len()
    }

    /// Every path again as the setup says, and every rule gone.
    pub fn heal(&mut self, setup: &Setup) {
        *self = Links::new(setup);
    }

    /// What a script's rules do with this datagram; asked once, before the links are.
    pub fn ruled(&mut self, datagram: &Datagram, now: u64) -> Option<Fate> {
        self.rules.iter_mut().find_map(|r| r.applies(datagram, now).then_some(r.fate))
    }

    /// Whether a datagram that gets through on `link` arrives changed.
    pub fn changes(&self, from: NodeId, link: usize, rng: &mut Rng) -> bool {
        rng.chance(self.paths[from.index()][link].corrupt)
    }

    /// When a datagram sent now on `link` arrives, if it does.
    pub fn arrivals(&self, from: NodeId, link: usize, now: u64, rng: &mut Rng) -> Arrivals {
        let path = &self.paths[from.index()][link];
        let down = path.flap.is_some_and(|(up, down)| now % (up + down).max(1) >= up);
        if path.cut || down || rng.chance(path.loss) {
            return [None, None];
        }
        let second = rng.chance(path.duplicate).then(|| path.arrival(now, rng));
        [Some(path.arrival(now, rng)), second]
    }
}

impl Path {
    /// Up, and no worse than the setup says, which is no worse than a lost datagram now and then.
    pub fn is_good(&self, setup: &Setup) -> bool {
        let Path { delay, loss, reorder, duplicate, corrupt, flap, cut } = *self;
        let usual = delay == setup.delay && duplicate == setup.duplicate;
        !cut && usual && flap.is_none() && loss == 0 && reorder == 0 && corrupt == 0
    }

    fn arrival(&self, now: u64, rng: &mut Rng) -> u64 {
        let late = if rng.chance(self.reorder) { rng.below(LATE) } else { 0 };
        now + rng.between(self.delay.0, self.delay.1) + late
    }
}
