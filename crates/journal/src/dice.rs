//! Chance as a value: whoever needs random numbers is given them, so that a simulation can repeat a course.

use std::sync::Arc;

/// Gives random numbers.
pub type Dice = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The thread's own generator, seeded by the operating system.
#[must_use]
pub fn system() -> Dice {
    Arc::new(rand::random)
}

/// A random share of `whole` that lies between one half and all of it: spreads what would else happen at once.
#[must_use]
pub fn spread(dice: &Dice, whole: std::time::Duration) -> std::time::Duration {
    let part = u32::try_from(dice() % 1_024).unwrap_or(0);
    whole / 2 + whole / 2 * part / 1_024
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_spread_lies_between_half_and_whole() {
        let check = |number: u64, expected_us: u64| {
            let dice: Dice = Arc::new(move || number);
            assert_eq!(spread(&dice, Duration::from_micros(2_048)), Duration::from_micros(expected_us), "{number}");
        };
        check(0, 1_024);
        check(1_023, 2_047);
        check(u64::MAX, 2_047);
    }
}
