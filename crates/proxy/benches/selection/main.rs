//! What a selection costs: from key and model to the first candidate, with the lock of the tier, and what else a request
//! may ask of its plan. Started by `cargo xtask selection-bench`; fails when a target is missed.

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

mod measure;
mod world;

use std::hint::black_box;
use std::process::ExitCode;

use measure::least_ns;
use world::World;

const ROUNDS: u32 = 60;
const TURNS: u32 = 2_000;

/// Most nanoseconds that a first candidate may cost, by how many there are.
const TARGETS_NS: [(u64, f64); 2] = [(10, 1_000.0), (100, 5_000.0)];
const CHANNELS: [u64; 2] = [10, 10_000];
/// The most sources that a request asks (`request.max_walk`).
const WALK: usize = 32;

fn main() -> ExitCode {
    println!(
        "| candidates | channels | first candidate | target | | longest walk | whole list | half of them unfit | \
         table made anew |"
    );
    println!("|---:|---:|---:|---:|---|---:|---:|---:|---:|");
    let mut missed = false;
    for (candidates, target) in TARGETS_NS {
        let unfit = World::half_unfit(candidates);
        for channels in CHANNELS {
            let world = World::of(candidates, channels);
            assert_eq!(world.drawn(usize::MAX), usize::try_from(candidates).unwrap_or(0), "all of them are candidates");
            let [first, walk, whole, fit, anew] = least_ns(
                ROUNDS,
                TURNS,
                [
                    &|| drop(black_box(world.first())),
                    &|| _ = black_box(world.drawn(WALK)),
                    &|| _ = black_box(world.drawn(usize::MAX)),
                    &|| drop(black_box(unfit.first())),
                    &|| drop(black_box(world.anew())),
                ],
            );
            let met = first <= target;
            missed |= !met;
            println!(
                "| {candidates} | {} | {} | ≤ {} | {} | {} | {} | {} | {} |",
                channels.max(candidates),
                micros(first),
                micros(target),
                if met { "met" } else { "**missed**" },
                micros(walk),
                micros(whole),
                micros(fit),
                micros(anew),
            );
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn micros(ns: f64) -> String {
    format!("{:.2} µs", ns / 1_000.0)
}
