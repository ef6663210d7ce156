//! Where conversations fall: weighted rendezvous hashing. Each conversation has an order of all sources of its own; who
//! comes first gets it, in proportion to the weights, and a source that comes or goes moves only what falls to it.

use smallvec::SmallVec;

use super::table::Row;
use super::wheel::{mix, number_of};

/// The place of each row in a conversation's order: smaller comes first, never 0.
pub(super) fn orders(rows: &[Row], number: u64) -> SmallVec<[u64; 8]> {
    rows.iter().map(|row| order(row, number)).collect()
}

fn order(row: &Row, number: u64) -> u64 {
    let lot = mix(number ^ mix(number_of(row.source.source)));
    // Uniform in (0, 1): never the ends, of which one has no logarithm and the other's is nothing.
    let uniform = ((lot >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    // The smallest of exponentials whose rates are the weights falls to each in proportion to its weight.
    let place = -uniform.ln() / f64::from(row.weight.max(1));
    1 + (place * 1e12).min(9e18) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use waybill_event::config::Capabilities;
    use waybill_event::traffic::Factors;
    use waybill_event::{Source, SourceKind, SourceRef};

    use super::*;

    fn rows(weights: &[(u64, u32)]) -> Vec<Row> {
        let row = |(id, weight): &(u64, u32)| Row {
            source: SourceRef { source: Source { kind: SourceKind::Account, id: *id }, rev: 1 },
            upstream_model: "m".into(),
            priority: 0,
            weight: *weight,
            capabilities: Capabilities::default(),
            p95_ms: None,
            max_concurrent: None,
            factors: Factors { health: 100, latency: 100, load: 100, recovery: 100 },
            effective: 1,
            skip: None,
            half_open: None,
            probes: 1,
            returns_at: None,
            busy: false,
            limited: None,
            position: None,
            own: None,
        };
        weights.iter().map(row).collect()
    }

    fn first(rows: &[Row], number: u64) -> u64 {
        let orders = orders(rows, mix(number));
        let (at, _) = orders.iter().enumerate().min_by_key(|(_, order)| **order).unwrap();
        rows[at].source.source.id
    }

    #[test]
    fn conversations_fall_in_proportion_to_weights_and_few_move_when_one_comes() {
        let before = rows(&[(1, 1), (2, 1), (3, 2)]);
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        let mut moved = 0;
        let after = rows(&[(1, 1), (2, 1), (3, 2), (4, 1)]);
        for number in 0..10_000 {
            *counts.entry(first(&before, number)).or_default() += 1;
            let now = first(&after, number);
            if now != first(&before, number) {
                assert_eq!(now, 4, "nothing moves but to the one that came");
                moved += 1;
            }
        }
        let near = |count: u32, expected: u32| assert!(count.abs_diff(expected) < 250, "{count} of {expected}");
        near(counts[&1], 2_500);
        near(counts[&2], 2_500);
        near(counts[&3], 5_000);
        near(moved, 2_000);
    }
}
