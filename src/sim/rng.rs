//! The one source of chance: splitmix64, so that a world is a seed and nothing else.

/// A small, fast, seedable generator. Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng(u64);

/// Probabilities are whole numbers of this many parts.
pub const PARTS: u32 = 1_000_000;

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0. The bias of the multiplication is far below what a simulation can see.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if low >= high { low } else { low + self.below(high - low + 1) }
    }

    /// True in `parts` of `PARTS` cases; draws nothing when the answer is certain.
    pub fn chance(&mut self, parts: u32) -> bool {
        match parts {
            0 => false,
            _ if parts >= PARTS => true,
            _ => self.below(u64::from(PARTS)) < u64::from(parts),
        }
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_world() {
        let draws = |seed| {
            std::iter::repeat_with({
                let mut rng = Rng::new(seed);
                move || rng.draw()
            })
            .take(8)
            .collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!((3..=5).contains(&rng.between(3, 5)));
            assert!(!rng.chance(0) && rng.chance(PARTS));
        }
    }
}
