//! The seeds that every change runs, and the proof that they would notice.

use waybill_simulation::{Bug, run};

fn check(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let outcome = run(seed, None, false);
        let how = format!("see it with `cargo xtask simulate --seed {seed}`");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}\n{how}", outcome.violations);
    }
}

// Five parts, so that they can run side by side.

#[test]
fn seeds_from_0_on() {
    check(0..100);
}

#[test]
fn seeds_from_100_on() {
    check(100..200);
}

#[test]
fn seeds_from_200_on() {
    check(200..300);
}

#[test]
fn seeds_from_300_on() {
    check(300..400);
}

#[test]
fn seeds_from_400_on() {
    check(400..500);
}

#[test]
fn a_seed_goes_the_same_way_again() {
    for seed in [3, 14, 58, 111, 286] {
        assert_eq!(run(seed, None, false), run(seed, None, false));
    }
}

#[test]
fn every_planted_bug_is_caught() {
    for bug in Bug::ALL {
        let caught = (0..1_000).find(|seed| !run(*seed, Some(bug), false).violations.is_empty());
        assert!(caught.is_some(), "{bug} is never noticed");
        println!("{bug} is caught at seed {}", caught.unwrap());
    }
}
