//! Shares over a fleet: each replica has a wheel of its own that began at a phase of its own, and requests come to them in
//! any order. Over all of them the shares follow the effective weights.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use waybill_event::traffic::Factors;

use super::plans::{first, row, table, with_factors};
use crate::selector::Wheel;
use crate::selector::factors::effective;

const WORST: Factors = Factors { health: 1, latency: 20, load: 1, recovery: 10 };
const PICKS: usize = 10_000;
const REPLICAS: usize = 3;

/// Weights and factors of the members for a while, and how long the while is.
type While = (Vec<(u32, Factors)>, usize);

fn factors() -> impl Strategy<Value = Factors> {
    let banded = || proptest::sample::select(vec![100u8, 100, 80, 50, 20]);
    (banded(), banded(), banded(), 10u8..=100).prop_map(|(health, latency, load, recovery)| Factors {
        health,
        latency,
        load,
        recovery,
    })
}

fn members(count: usize) -> impl Strategy<Value = Vec<(u32, Factors)>> {
    proptest::collection::vec((1u32..20, factors()), count)
}

/// Some members over one to four whiles.
fn whiles() -> impl Strategy<Value = Vec<While>> {
    let lengths = proptest::collection::vec(1usize..10, 1..5);
    (2usize..8, lengths).prop_flat_map(|(count, lengths)| {
        let total: usize = lengths.iter().sum();
        lengths.into_iter().map(|length| (members(count), Just(PICKS * length / total))).collect::<Vec<_>>()
    })
}

/// Who was picked how often, where request `n` comes to the replica that `turns` says.
fn picks(whiles: &[While], phases: [u64; REPLICAS], turns: &[Index]) -> BTreeMap<u64, u32> {
    let mut wheels = phases.map(Wheel::new);
    let mut counts = BTreeMap::new();
    let mut turns = turns.iter().cycle();
    for (second, (members, length)) in (1..).zip(whiles) {
        let rows = (1..).zip(members).map(|(id, (weight, factors))| with_factors(row(id, 100, *weight), *factors));
        let table = table(rows.collect(), second);
        for _ in 0..*length {
            let replica = turns.next().map_or(0, |turn| turn.index(REPLICAS));
            *counts.entry(first(&table, &mut wheels[replica])).or_insert(0) += 1;
        }
    }
    counts
}

/// What each member's share of the picks should be.
fn expected(whiles: &[While]) -> BTreeMap<u64, f64> {
    let mut shares = BTreeMap::new();
    for (members, length) in whiles {
        let weigh = |(weight, factors): &(u32, Factors)| effective(*weight, *factors) as f64;
        let total: f64 = members.iter().map(weigh).sum();
        for (id, member) in (1..).zip(members) {
            *shares.entry(id).or_insert(0.0) += weigh(member) / total * *length as f64;
        }
    }
    shares
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn over_three_replicas_in_random_turns_shares_are_within_two_percent_of_the_effective_weights(
        whiles in whiles(),
        phases: [u64; REPLICAS],
        turns in proptest::collection::vec(any::<Index>(), 1..500),
    ) {
        let counts = picks(&whiles, phases, &turns);
        // A wheel is off by a pick at most wherever it stands, and starts afresh where the weights change.
        let off = (REPLICAS * whiles.len()) as f64;
        for (id, expected) in expected(&whiles) {
            let got = f64::from(counts.get(&id).copied().unwrap_or(0));
            prop_assert!((got - expected).abs() <= 0.02 * expected + off, "{}: {} instead of {}", id, got, expected);
        }
    }

    #[test]
    fn one_to_two_stays_one_to_two_over_three_replicas_with_all_factors_at_worst(
        phases: [u64; REPLICAS],
        turns in proptest::collection::vec(any::<Index>(), 1..500),
    ) {
        let counts = picks(&[(vec![(1, WORST), (2, WORST)], PICKS)], phases, &turns);
        prop_assert!((3_330..=3_337).contains(&counts[&1]), "{counts:?}");
    }
}
