//! What a selection costs doesn't depend on how many channels there are, and grows no faster than its candidates. Ratios
//! of CPU time within one run: the figures themselves are the benchmark's (`cargo xtask selection-bench`).

#[path = "../benches/selection/measure.rs"]
mod measure;
#[path = "../benches/selection/world.rs"]
mod world;

use std::hint::black_box;

use measure::least_ns;
use world::World;

const ROUNDS: u32 = 25;
const TURNS: u32 = 40;

#[test]
fn selection_costs_the_same_with_10_and_with_10_000_channels() {
    for candidates in [10, 100] {
        let (few, many) = (World::of(candidates, candidates), World::of(candidates, 10_000));
        let [few, many] =
            least_ns(ROUNDS, TURNS, [&|| drop(black_box(few.first())), &|| drop(black_box(many.first()))]);
        assert!(
            many <= 1.5 * few,
            "{candidates} candidates: {few:.0} ns among few, {many:.0} ns among 10,000 channels"
        );
    }
}

#[test]
fn a_hundred_candidates_cost_at_most_ten_times_as_much_as_ten() {
    let check = |what: &str, ten: &dyn Fn(), hundred: &dyn Fn()| {
        let [ten, hundred] = least_ns(ROUNDS, TURNS, [ten, hundred]);
        assert!(hundred <= 10.0 * ten, "{what}: {ten:.0} ns for 10, {hundred:.0} ns for 100");
    };
    let (ten, hundred) = (World::of(10, 10), World::of(100, 100));
    check("first candidate", &|| drop(black_box(ten.first())), &|| drop(black_box(hundred.first())));
    check("ten drawn", &|| _ = black_box(ten.drawn(10)), &|| _ = black_box(hundred.drawn(10)));
    let (ten_unfit, hundred_unfit) = (World::half_unfit(10), World::half_unfit(100));
    check("half unfit", &|| drop(black_box(ten_unfit.first())), &|| drop(black_box(hundred_unfit.first())));
    check("table made anew", &|| drop(black_box(ten.anew())), &|| drop(black_box(hundred.anew())));
}
