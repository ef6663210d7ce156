//! Plans and the wheel: order, last resorts, what is given back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use waybill_event::config::{Capabilities, Capability};
use waybill_event::selection::SkipReason;
use waybill_event::traffic::Factors;
use waybill_event::{ConfigPosition, GroupId, SourceRef};

use super::fixture::*;
use crate::candidate::Candidate;
use crate::needs::Needs;
use crate::selector::factors::{FULL, effective};
use crate::selector::plan::{Manner, Moment, Session};
use crate::selector::table::{Row, Table, recorded_hash};
use crate::selector::{Plan, Wheel};

pub(super) fn row(id: u64, priority: i32, weight: u32) -> Row {
    Row {
        source: SourceRef { source: source(id), rev: 1 },
        upstream_model: MODEL.into(),
        priority,
        weight,
        capabilities: Capabilities::default(),
        p95_ms: None,
        max_concurrent: None,
        factors: FULL,
        effective: effective(weight, FULL),
        skip: None,
        half_open: None,
        probes: 1,
        returns_at: None,
        busy: false,
        limited: None,
        position: None,
        own: None,
    }
}

fn out(row: Row, skip: SkipReason) -> Row {
    let half_open = (skip == SkipReason::Probing).then(|| format!("opening-{}", row.source.source.id).into());
    Row { skip: Some(skip), half_open, ..row }
}

pub(super) fn with_factors(row: Row, factors: Factors) -> Row {
    Row { factors, effective: effective(row.weight, factors), ..row }
}

pub(super) fn table(rows: Vec<Row>, second: i64) -> Arc<Table> {
    Arc::new(Table::of((GroupId::new(1), MODEL.into()), rows, at(second), ConfigPosition(1), 100))
}

pub(super) fn first(table: &Arc<Table>, wheel: &mut Wheel) -> u64 {
    Plan::new(Arc::clone(table), wheel, Manner::default(), &mut Free(false)).next_candidate().unwrap().source.source.id
}

fn drawn(table: &Arc<Table>, phase: u64, probe_free: bool) -> Vec<Candidate> {
    let mut plan = Plan::new(Arc::clone(table), &mut Wheel::new(phase), Manner::default(), &mut Free(probe_free));
    let all: Vec<Candidate> = std::iter::from_fn(|| plan.next_candidate()).collect();
    assert_eq!(usize::try_from(plan.candidate_count()).unwrap(), all.len());
    assert!(all.iter().zip(0..).all(|(candidate, place)| candidate.place == place));
    all
}

fn ids(candidates: &[Candidate]) -> Vec<u64> {
    candidates.iter().map(|candidate| candidate.source.source.id).collect()
}

#[test]
fn the_order_is_tiers_then_probes_then_weightless_then_softly_blocked() {
    let rows = vec![
        row(1, 100, 5),
        out(row(2, 100, 5), SkipReason::SoftBlocked),
        row(3, 100, 0),
        out(row(4, 100, 5), SkipReason::HardBlocked),
        row(5, 50, 5),
        out(row(6, 50, 5), SkipReason::HintBlocked),
        out(row(7, 50, 5), SkipReason::SourceBreakerOpen),
        out(row(8, 50, 5), SkipReason::SoftBlocked),
        out(row(9, 50, 5), SkipReason::Disabled),
    ];
    let all = drawn(&table(rows, 1), 1, true);
    assert_eq!(ids(&all), [1, 5, 3, 2, 8]);
    let last_resorts: Vec<bool> = all.iter().map(|candidate| candidate.last_resort).collect();
    assert_eq!(last_resorts, [false, false, false, true, true]);
}

#[test]
fn a_half_open_source_with_a_free_permit_is_first_in_its_tier() {
    let check = |rows: Vec<Row>, probe_free: bool, expected: &[u64]| {
        let table = table(rows, 1);
        for phase in 0..20 {
            let all = drawn(&table, phase, probe_free);
            assert_eq!(ids(&all), expected);
            assert!(
                all.iter().all(|c| c.probe_of.is_some() == table.row_of(c.source.source).unwrap().half_open.is_some())
            );
        }
    };
    let probing = |id, priority| out(row(id, priority, 5), SkipReason::Probing);
    check(vec![row(1, 100, 5), probing(2, 100), row(3, 50, 5)], true, &[2, 1, 3]);
    check(vec![row(1, 100, 5), probing(2, 100), row(3, 50, 5)], false, &[1, 3]);
    check(vec![row(1, 100, 5), row(3, 50, 5), probing(2, 50)], true, &[1, 2, 3]);
    check(vec![row(1, 100, 5), row(3, 10, 5), probing(2, 50)], true, &[1, 2, 3]);
    check(vec![probing(2, 100), row(3, 50, 5)], true, &[2, 3]);
    check(vec![row(1, 100, 5), probing(2, 50)], true, &[1, 2]);
    check(vec![row(1, 100, 5), probing(2, 100), probing(4, 50), row(5, 10, 0)], true, &[2, 1, 4, 5]);
    check(vec![probing(2, 100)], false, &[]);
}

#[test]
fn edits_and_factors_keep_the_turn_of_those_that_stay() {
    // A member's factor falls to the worst and comes back, over and over; the other members share as before.
    let rows = |health: u8| {
        let worst = with_factors(row(1, 100, 5), Factors { health, ..FULL });
        vec![worst, row(2, 100, 5), row(3, 100, 10)]
    };
    let mut wheel = Wheel::new(4);
    let mut counts = BTreeMap::new();
    for second in 0..1_000 {
        let table = table(rows(if second % 2 == 0 { 1 } else { 100 }), second);
        for _ in 0..10 {
            *counts.entry(first(&table, &mut wheel)).or_insert(0) += 1;
        }
    }
    // Half of the time 0.05 of 15.05 parts, half of the time 5 of 20.
    let check = |id: u64, share: f64| {
        let got = f64::from(counts[&id]) / 10_000.0;
        assert!((got - share).abs() < 0.02, "{id}: {got} instead of {share}");
    };
    check(1, (0.05 / 15.05 + 0.25) / 2.0);
    check(2, (5.0 / 15.05 + 0.25) / 2.0);
    check(3, (10.0 / 15.05 + 0.5) / 2.0);
}

#[test]
fn a_place_given_back_is_as_if_never_taken() {
    let table = table(vec![row(1, 100, 3), row(2, 100, 2), row(3, 100, 1)], 1);
    let mut plain = Wheel::new(5);
    let mut other = Wheel::new(5);
    for _ in 0..50 {
        let unused = Plan::new(Arc::clone(&table), &mut other, Manner::default(), &mut Free(false));
        other.give_back(unused.commit().unwrap());
        assert_eq!(first(&table, &mut plain), first(&table, &mut other));
    }
}

#[test]
fn further_places_of_lower_tiers_are_shared_by_weight_too() {
    let table = table(vec![row(1, 100, 1), row(2, 50, 1), row(3, 50, 2)], 1);
    let mut wheel = Wheel::new(11);
    let mut twos = 0;
    for _ in 0..9_000 {
        let mut plan = Plan::new(Arc::clone(&table), &mut wheel, Manner::default(), &mut Free(false));
        plan.next_candidate();
        twos += u32::from(plan.next_candidate().unwrap().source.source.id == 2);
    }
    assert!((2_800..3_200).contains(&twos), "{twos}");
}

#[test]
fn a_table_is_named_by_what_it_records() {
    let one = table(vec![row(2, 100, 5), out(row(1, 50, 5), SkipReason::Probing)], 1);
    let event = one.to_event();
    assert_eq!(recorded_hash(&event), one.hash());
    let read = Table::from_event(&event, ConfigPosition(1), 100).unwrap();
    assert_eq!((read.hash(), ids(&drawn(&Arc::new(read), 1, true))), (one.hash(), ids(&drawn(&one, 1, true))));
    let mut forged = event;
    forged.candidates[0].weight += 1;
    assert!(Table::from_event(&forged, ConfigPosition(1), 100).is_none());
    insta::assert_snapshot!(one.hash());
}

#[test]
fn planning_stays_within_its_budget() {
    // A generous bound for a debug build, met by the fastest of several pieces: the machine is shared.
    let table = table((1..=10).map(|id| row(id, 100, 5)).collect(), 1);
    let mut wheel = Wheel::new(1);
    let mut piece = || {
        let begun = Instant::now();
        for _ in 0..1_000 {
            let mut plan = Plan::new(Arc::clone(&table), &mut wheel, Manner::default(), &mut Free(false));
            assert!(plan.next_candidate().is_some());
        }
        begun.elapsed() / 1_000
    };
    let each = (0..20).map(|_| piece()).min().unwrap();
    println!("one plan of ten candidates: {each:?}");
    assert!(each < Duration::from_micros(50), "{each:?}");
}

fn planned(table: &Arc<Table>, manner: Manner, moment: &mut dyn Moment) -> Plan {
    Plan::new(Arc::clone(table), &mut Wheel::new(3), manner, moment)
}

fn all(mut plan: Plan) -> Vec<Candidate> {
    let all: Vec<Candidate> = std::iter::from_fn(|| plan.next_candidate()).collect();
    assert_eq!(usize::try_from(plan.candidate_count()).unwrap(), all.len());
    all
}

struct Busy(BTreeMap<u64, u32>);

impl Moment for Busy {
    fn probe_free(&mut self, _: &Row) -> bool {
        false
    }

    fn in_flight(&self, row: &Row) -> u32 {
        self.0.get(&row.source.source.id).copied().unwrap_or(0)
    }
}

#[test]
fn each_strategy_has_its_order() {
    use waybill_event::config::Strategy as By;
    let limited = |row: Row, most| Row { max_concurrent: Some(most), ..row };
    let measured = |row: Row, p95| Row { p95_ms: Some(p95), ..row };
    let check = |strategy: By, rows: Vec<Row>, busy: &[(u64, u32)], expected: &[u64]| {
        let manner = Manner { strategy, ..Manner::default() };
        let mut moment = Busy(busy.iter().copied().collect());
        let plan = planned(&table(rows, 1), manner, &mut moment);
        assert!(plan.commit().is_none(), "no turn of the wheel is taken");
        assert_eq!(ids(&all(plan)), expected, "{strategy:?}");
    };
    let three = || vec![row(1, 100, 1), row(2, 100, 1), row(3, 50, 1)];
    check(By::LeastBusy, three(), &[(1, 5), (2, 4)], &[2, 1, 3]);
    let most = || vec![limited(row(1, 100, 1), 100), limited(row(2, 100, 1), 10)];
    check(By::LeastBusy, most(), &[(1, 20), (2, 4)], &[1, 2]);
    let times = || vec![measured(row(1, 100, 1), 900), measured(row(2, 100, 1), 400), row(3, 100, 1)];
    check(By::LowestLatency, times(), &[], &[3, 2, 1]);
}

#[test]
fn equals_of_a_strategy_share_by_weight() {
    use waybill_event::config::Strategy as By;
    for strategy in [By::WeightedRandom, By::LeastBusy, By::LowestLatency] {
        let times = |id: u64, weight, p95| Row { p95_ms: Some(p95), ..row(id, 100, weight) };
        let table = table(vec![times(1, 1, 1_100), times(2, 3, 1_140)], 1);
        let mut wheel = Wheel::new(1);
        let manner = Manner { strategy, ..Manner::default() };
        let ones = (0..8_000).filter(|_| {
            let mut plan = Plan::new(Arc::clone(&table), &mut wheel, manner, &mut Free(false));
            plan.next_candidate().unwrap().source.source.id == 1
        });
        let ones = ones.count();
        assert!((1_850..2_150).contains(&ones), "{strategy:?}: {ones}");
    }
}

#[test]
fn who_lacks_what_is_needed_is_passed_over_and_takes_no_turn() {
    let without =
        |row: Row| Row { capabilities: Capabilities { tools: Some(false), ..Capabilities::default() }, ..row };
    let rows = vec![row(1, 100, 1), without(row(2, 100, 5)), row(3, 100, 1), without(row(4, 50, 1)), row(5, 10, 1)];
    let table = table(rows, 1);
    let manner = Manner { needs: Needs { tools: true, ..Needs::default() }, ..Manner::default() };
    let plan = planned(&table, manner, &mut Free(false));
    let skipped: Vec<(u64, SkipReason)> = plan.skips().iter().map(|skip| (skip.source.id, skip.why)).collect();
    assert_eq!(skipped, [(2, SkipReason::CapabilityMissing), (4, SkipReason::CapabilityMissing)]);
    assert_eq!(plan.missing(), [Capability::Tools]);
    let mut found = ids(&all(plan));
    assert_eq!(found.pop(), Some(5));
    found.sort_unstable();
    assert_eq!(found, [1, 3]);
    let mut wheel = Wheel::new(7);
    let ones = (0..1_000).filter(|_| {
        let mut plan = Plan::new(Arc::clone(&table), &mut wheel, manner, &mut Free(false));
        plan.next_candidate().unwrap().source.source.id == 1
    });
    let ones = ones.count();
    assert!((499..=501).contains(&ones), "{ones}");
    // What the route declares of the target counts where the source says nothing itself.
    let declared = Capabilities { tools: Some(false), ..Capabilities::default() };
    assert!(all(planned(&table, Manner { declared, ..manner }, &mut Free(false))).is_empty());
}

#[test]
fn a_filtered_place_given_back_is_as_if_never_taken() {
    let without =
        Row { capabilities: Capabilities { vision: Some(false), ..Capabilities::default() }, ..row(2, 100, 2) };
    let table = table(vec![row(1, 100, 3), without, row(3, 100, 1)], 1);
    let manner = Manner { needs: Needs { vision: true, ..Needs::default() }, ..Manner::default() };
    let (mut plain, mut other) = (Wheel::new(5), Wheel::new(5));
    for _ in 0..50 {
        let unused = Plan::new(Arc::clone(&table), &mut other, manner, &mut Free(false));
        other.give_back(unused.commit().unwrap());
        assert_eq!(first(&table, &mut plain), first(&table, &mut other));
    }
}

#[test]
fn open_breakers_take_at_most_their_share_of_a_tier_out() {
    let open = |id, weight| out(row(id, 100, weight), SkipReason::SourceBreakerOpen);
    let rows = || vec![row(1, 100, 1), open(2, 1), open(3, 9), open(4, 1), out(row(5, 50, 1), SkipReason::HardBlocked)];
    let check = |percent: u32, expected: &[u64]| {
        let rows = Table::of((GroupId::new(1), MODEL.into()), rows(), at(1), ConfigPosition(1), percent);
        let table = Arc::new(rows);
        let found = all(planned(&table, Manner::default(), &mut Free(false)));
        let mut spared: Vec<u64> = ids(&found);
        spared.sort_unstable();
        assert_eq!(spared, expected, "{percent} %");
        assert!(found.iter().all(|c| c.despite_open == (c.source.source.id != 1)));
        let read = Table::from_event(&table.to_event(), ConfigPosition(1), percent).unwrap();
        assert_eq!(read.spared, table.spared, "the same by what is recorded");
    };
    check(100, &[1]);
    check(75, &[1]);
    check(50, &[1, 3]);
    check(25, &[1, 2, 3]);
    check(0, &[1, 2, 3, 4]);
}

#[test]
fn the_least_bad_is_the_one_that_opens_soonest() {
    let open = |id, second| Row { returns_at: Some(at(second)), ..out(row(id, 100, 1), SkipReason::ModelBreakerOpen) };
    let table = table(vec![open(1, 30), open(2, 20), out(row(3, 100, 1), SkipReason::HardBlocked)], 1);
    let least_bad = Manner { least_bad: true, ..Manner::default() };
    let found = all(planned(&table, least_bad, &mut Free(false)));
    assert_eq!((ids(&found), found[0].despite_open), (vec![2], true));
    assert!(all(planned(&table, Manner::default(), &mut Free(false))).is_empty());
}

fn of_session(number: u64, bound: Option<u64>) -> Manner {
    let source = |id| row(id, 0, 1).source.source;
    Manner { session: Some(Session { number, bound: bound.map(source) }), ..Manner::default() }
}

#[test]
fn a_conversation_has_one_order_of_sources_and_its_home_stays_its_home_while_that_is_out() {
    let tier = |skip: Option<u64>| {
        let lower = row(9, 50, 1);
        let row = |id| if Some(id) == skip { out(row(id, 100, 1), SkipReason::HardBlocked) } else { row(id, 100, 1) };
        table((1..=5).map(row).chain([lower]).collect(), 1)
    };
    let mut homes = BTreeSet::new();
    for number in 0..40 {
        let plan = planned(&tier(None), of_session(number, None), &mut Free(false));
        let home = plan.home().unwrap();
        homes.insert(home.id);
        let order = all(plan);
        assert_eq!((ids(&order)[0], order[0].sticky, order[1].sticky), (home.id, true, false));
        assert_eq!(ids(&order)[5], 9, "the lower tier comes last");
        // The same everywhere, whatever a wheel has turned to.
        assert_eq!(ids(&all(planned(&tier(None), of_session(number, None), &mut Free(false)))), ids(&order));
        // While its home is out the next in order serves, and the home is still known as such.
        let plan = planned(&tier(Some(home.id)), of_session(number, None), &mut Free(false));
        assert_eq!(plan.home(), Some(home));
        assert_eq!(ids(&all(plan)), ids(&order)[1..]);
    }
    assert_eq!(homes.len(), 5, "conversations are spread over the highest tier, and that alone");
}

#[test]
fn no_conversation_belongs_to_a_last_resort_unless_there_is_nothing_else() {
    let homes = |rows: Vec<Row>| {
        let table = table(rows, 1);
        let home = |number| planned(&table, of_session(number, None), &mut Free(false)).home().map(|home| home.id);
        (0..40).filter_map(home).collect::<BTreeSet<u64>>()
    };
    assert_eq!(homes(vec![row(1, 100, 1), row(2, 100, 0), row(3, 100, 1)]), [1, 3].into());
    assert_eq!(homes(vec![row(1, 100, 0), row(2, 50, 1), row(3, 50, 0)]), [2].into());
    assert_eq!(homes(vec![row(1, 100, 0), row(2, 100, 0)]), [1, 2].into());
}

#[test]
fn a_bound_conversation_goes_there_first_of_whatever_tier_and_comes_once() {
    let rows = || vec![row(1, 100, 1), row(2, 100, 1), row(3, 50, 1), row(4, 50, 1)];
    for number in 0..10 {
        let plan = planned(&table(rows(), 1), of_session(number, Some(4)), &mut Free(false));
        assert_eq!(plan.home().map(|home| home.id), Some(4));
        let mut order = ids(&all(plan));
        assert_eq!(order[0], 4);
        order.sort_unstable();
        assert_eq!(order, [1, 2, 3, 4], "each once");
        // One that is gone binds nothing.
        let plan = planned(&table(rows(), 1), of_session(number, Some(7)), &mut Free(false));
        assert!(plan.home().is_some_and(|home| home.id <= 2));
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let skip = prop_oneof![
        3 => Just(None),
        1 => Just(Some(SkipReason::SoftBlocked)),
        1 => Just(Some(SkipReason::HardBlocked)),
        1 => Just(Some(SkipReason::SourceBreakerOpen)),
        1 => Just(Some(SkipReason::Probing)),
    ];
    proptest::collection::vec((1i32..4, 0u32..6, skip), 0..12).prop_map(|drawn| {
        let row = |(id, (priority, weight, skip)): (u64, (i32, u32, Option<SkipReason>))| match skip {
            Some(skip) => out(row(id, priority, weight), skip),
            None => row(id, priority, weight),
        };
        (1..).zip(drawn).map(row).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_usable_source_comes_once_and_no_other_ever(rows in rows(), phase: u64, probe_free: bool) {
        let table = table(rows, 1);
        let mut got = ids(&drawn(&table, phase, probe_free));
        got.sort_unstable();
        let usable = |row: &&Row| match row.skip {
            None | Some(SkipReason::SoftBlocked) => true,
            Some(SkipReason::Probing) => probe_free,
            Some(_) => false,
        };
        let mut expected: Vec<u64> = table.rows().iter().filter(usable).map(|row| row.source.source.id).collect();
        expected.sort_unstable();
        prop_assert_eq!(got, expected);
    }
}
