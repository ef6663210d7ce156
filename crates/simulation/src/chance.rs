//! Chance by a seed. Each part of a run draws from a generator of its own, so that a further draw in one part leaves the
//! course of the others as it was.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::trace::fold;

/// A seeded generator.
#[derive(Debug, Clone)]
pub struct Chance(ChaCha8Rng);

impl Chance {
    /// The generator of one part of a seed's run.
    #[must_use]
    pub fn of(seed: u64, part: &str) -> Self {
        Self(ChaCha8Rng::seed_from_u64(fold(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, part.as_bytes())))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.random()
    }

    /// A number below `bound`, which isn't 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }

    /// A number of a range, both ends included.
    pub fn among(&mut self, least: u64, most: u64) -> u64 {
        self.0.random_range(least..=most)
    }

    /// Whether something with this share of chances happens.
    pub fn yes(&mut self, share: f64) -> bool {
        self.0.random_bool(share)
    }

    /// A time between two, to a microsecond.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.among(micros(least), micros(most)))
    }

    /// A time that is `mean` in the middle.
    pub fn about(&mut self, mean: Duration) -> Duration {
        self.between(Duration::from_micros(1), mean * 2)
    }

    /// One of some things.
    pub fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        let at = self.below(u64::try_from(things.len()).unwrap_or(1));
        things[usize::try_from(at).unwrap_or(0)]
    }
}
