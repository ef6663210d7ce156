//! The fold's properties: total, deterministic, the same under any batching and any double delivery.

use proptest::prelude::*;
use waybill_event::config::{Change, PolicyScope, SelectorPolicy};
use waybill_event::failure::{Health, Recovery, Strength};
use waybill_event::{ConfigPosition, Event, FailureKind, Position};

use super::fixture::*;
use crate::selector::fleet::{Anomaly, FleetState};
use crate::selector::state::SourceState;
use crate::selector::view::View;
use crate::selector::{Place, apply};

#[derive(Debug, Clone, Copy)]
enum Kind {
    Outcome(u8),
    Block(u8, u64),
    Disable(bool),
    Probe(bool),
    Applied,
}

/// Events of two producers about two sources, in order of time, some stored late.
fn events() -> impl Strategy<Value = Vec<(Event, i64)>> {
    let kind = prop_oneof![
        8 => (0u8..4).prop_map(Kind::Outcome),
        2 => (0u8..3, 1u64..40).prop_map(|(s, d)| Kind::Block(s, d)),
        1 => any::<bool>().prop_map(Kind::Disable),
        2 => any::<bool>().prop_map(Kind::Probe),
        1 => Just(Kind::Applied),
    ];
    let one = (kind, 0usize..2, 1u64..3, 0i64..8, prop_oneof![9 => 0i64..3, 1 => 10i64..40]);
    proptest::collection::vec(one, 1..120).prop_map(|drawn| {
        let (mut n, mut now, mut config) = ([0u64; 2], 0, 0);
        let mut opening = String::new();
        let event = |(kind, who, id, passed, delay): (Kind, usize, u64, i64, i64)| {
            now += passed;
            n[who] += 1;
            let producer = ["p1", "p2"][who];
            let plain = |health| outcome(producer, n[who], id, now, health);
            let event = match kind {
                Kind::Outcome(0) => plain(Health::Ok),
                Kind::Outcome(1) => plain(Health::Busy),
                Kind::Outcome(_) => plain(Health::Fail),
                Kind::Block(0, s) => blocking(plain(Health::None), FailureKind::RateLimited, Strength::Soft, s),
                Kind::Block(1, s) => blocking(plain(Health::None), FailureKind::RateLimited, Strength::Hint, s),
                Kind::Block(_, s) => blocking(plain(Health::None), FailureKind::WindowExhausted, Strength::Hard, s),
                Kind::Disable(by_probe) => {
                    disabling(plain(Health::None), if by_probe { Recovery::Probe } else { Recovery::Operator })
                }
                Kind::Probe(ok) => probe(producer, n[who], id, now, &opening, ok),
                Kind::Applied => {
                    n[who] -= 1;
                    config += 1;
                    applied(u64::min(config, 6), now)
                }
            };
            if let Some(mark) = event.identity.mark() {
                opening = format!("source:channel:{id}@{mark}");
            }
            (event, now + delay)
        };
        drawn.into_iter().map(event).collect()
    })
}

fn edits() -> Vec<Event> {
    let quick = SelectorPolicy { late_after_ms: 5_000, ..SelectorPolicy::default() };
    let mut rekeyed = channel(2, 100, 5);
    rekeyed.credential.as_mut().unwrap().revision = 2;
    vec![
        channel_edit(channel(1, 100, 5), Change::Created),
        channel_edit(channel(2, 100, 5), Change::Created),
        policy_edit(PolicyScope::Global, quick),
        channel_edit(channel(1, 50, 1), Change::Enabled),
        channel_edit(rekeyed, Change::Edited),
        channel_edit(channel(2, 100, 5), Change::Deleted),
    ]
}

fn fed() -> FleetState {
    let mut fleet = FleetState::default();
    for (position, edit) in (1..).zip(edits()) {
        fleet.feed_config(&edit, ConfigPosition(position)).unwrap();
    }
    fleet
}

fn states(fleet: &FleetState) -> Vec<SourceState> {
    fleet.sources().map(|state| SourceState { position: Position::default(), ..state.clone() }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_batching_and_double_delivery_give_the_same_state(
        events in events(),
        twice in proptest::collection::vec(any::<bool>(), 120),
        sizes in proptest::collection::vec(1u16..6, 120),
    ) {
        let mut once = fed();
        for (sequence, (event, stored)) in (1..).zip(&events) {
            once.apply(event, Position::new(sequence, 0), at(*stored)).unwrap();
        }
        // Cut into messages, some events stored again in the next message, every message delivered twice.
        let mut other = fed();
        let (mut sequence, mut index, mut sizes) = (1, 0, sizes.into_iter().cycle());
        let mut size = sizes.next().unwrap();
        for ((event, stored), again) in events.iter().zip(twice) {
            for _ in 0..=u8::from(again) {
                let place = Position::new(sequence, index);
                other.apply(event, place, at(*stored)).unwrap();
                prop_assert!(other.apply(event, place, at(*stored)).unwrap().duplicate);
                index += 1;
                if index >= size {
                    (sequence, index, size) = (sequence + 1, 0, sizes.next().unwrap());
                }
            }
        }
        prop_assert_eq!(states(&once), states(&other));
    }

    #[test]
    fn a_restart_anywhere_changes_nothing(events in events(), checkpoint in 0usize..120, value in 0usize..120) {
        let (checkpoint, value) = (checkpoint.min(value).min(events.len()), value.min(events.len()));
        let apply = |fleet: &mut FleetState, from: usize, to: usize| {
            for (number, (event, stored)) in events.iter().enumerate().take(to).skip(from) {
                let position = Position::new(u64::try_from(number).unwrap() + 1, 0);
                fleet.apply(event, position, at(*stored)).unwrap();
            }
        };
        let mut whole = fed();
        apply(&mut whole, 0, checkpoint);
        let saved = serde_json::to_string(&whole.checkpoint(1)).unwrap();
        apply(&mut whole, checkpoint, value);
        let values: Vec<String> = [1, 2]
            .into_iter()
            .filter_map(|id| whole.value(source(id), 1))
            .map(|value| serde_json::to_string(&value).unwrap())
            .collect();
        let values = values.iter().map(|value| serde_json::from_str(value).unwrap());

        let mut restored = FleetState::restore(serde_json::from_str(&saved).unwrap(), values);
        for (position, edit) in (1..).zip(edits()) {
            restored.feed_config(&edit, ConfigPosition(position)).unwrap();
        }
        restored.reconcile();
        apply(&mut restored, checkpoint, events.len());
        apply(&mut whole, value, events.len());
        for id in [1, 2] {
            prop_assert_eq!(restored.value(source(id), 1), whole.value(source(id), 1));
        }
        prop_assert_eq!(restored.checkpoint(1), whole.checkpoint(1));
    }

    #[test]
    fn a_view_that_has_all_of_its_events_acknowledged_is_the_shared_value(events in events(), cut in 0usize..120) {
        let mut fleet = fed();
        let mut view = View::new(source(1), "p1".parse().unwrap(), boot(1));
        for (number, (event, stored)) in events.iter().enumerate() {
            view.own(event);
            let position = Position::new(u64::try_from(number).unwrap() + 1, 0);
            fleet.apply(event, position, at(*stored)).unwrap();
            if number % (cut + 1) == 0 && let Some(value) = fleet.value(source(1), 1) {
                view.replace(value);
            }
        }
        if let Some(value) = fleet.value(source(1), 1) {
            view.replace(value.clone());
            prop_assert_eq!(view.state(), &value);
            prop_assert_eq!(view.own_range(), None);
        }
    }
}

#[test]
fn a_view_never_goes_backwards() {
    let mut fleet = fed();
    let old =
        fleet.apply(&applied(1, 1), Position::new(1, 0), at(1)).map(|_| fleet.value(source(1), 2)).unwrap().unwrap();
    fleet.apply(&outcome("p2", 1, 1, 2, Health::Fail), Position::new(2, 0), at(2)).unwrap();
    let new = fleet.value(source(1), 2).unwrap();
    let lower_epoch = SourceState { epoch: 1, position: Position::new(9, 0), ..new.clone() };
    let mut view = View::new(source(1), "p1".parse().unwrap(), boot(1));
    view.replace(new.clone());
    view.replace(old);
    view.replace(lower_epoch);
    assert_eq!(view.state(), &new);
}

#[test]
fn a_boot_that_drained_with_a_hole_is_an_anomaly() {
    let check = |ns: &[u64], last: u64, low_water: Option<u64>| {
        let mut fleet = fed();
        for (sequence, n) in (1..).zip(ns) {
            let event = outcome("p1", *n, 1, 2, Health::Ok);
            fleet.apply(&event, Position::new(sequence, 0), at(2)).unwrap();
        }
        let mut event = drained("p1", 99, 3, last);
        event.identity = waybill_event::Identity::Sequenced(waybill_event::Mark { boot: boot(2), ..mark("p1", 1) });
        let effects = fleet.apply(&event, Position::new(91, 0), at(3)).unwrap();
        let expected = low_water.map(|low_water| Anomaly::Missing { last: mark("p1", last), low_water });
        assert_eq!(effects.anomaly, expected);
    };
    check(&[1, 2, 3], 3, None);
    check(&[1, 3], 3, Some(1));
}

#[test]
fn a_source_remembers_a_bounded_number_of_models() {
    let mut state = fed().sources().next().cloned().unwrap_or_else(|| {
        SourceState::new(source(1), crate::selector::Revisions::default(), SelectorPolicy::default(), ConfigPosition(0))
    });
    for n in 1..=1_000 {
        let event = outcome("p1", n, 1, i64::try_from(n).unwrap(), Health::Ok);
        let event = with(event, |outcome| outcome.upstream_model = format!("m{n}"));
        apply(&mut state, &event, Place::OWN);
    }
    assert_eq!(state.models.len(), crate::selector::state::MODELS_MAX);
    assert!(state.models.contains_key("m1000") && !state.models.contains_key("m1"));
}

#[test]
fn the_written_value_reads_as_it_is() {
    let mut fleet = fed();
    fleet.apply(&applied(4, 1), Position::new(1, 0), at(1)).unwrap();
    for (n, health) in (1..).zip([Health::Ok, Health::Fail, Health::Fail, Health::Fail]) {
        fleet.apply(&outcome("p1", n, 1, 10, health), Position::new(n + 1, 0), at(10)).unwrap();
    }
    let limited = blocking(outcome("p1", 5, 1, 11, Health::None), FailureKind::RateLimited, Strength::Soft, 5);
    fleet.apply(&limited, Position::new(6, 0), at(11)).unwrap();
    insta::assert_json_snapshot!(fleet.value(source(1), 3).unwrap());
}

#[test]
fn an_event_costs_the_same_however_many_came_before() {
    let mut fleet = fed();
    fleet.apply(&applied(4, 1), Position::new(1, 0), at(1)).unwrap();
    let events: Vec<Event> = (1..=20_000)
        .map(|n| {
            outcome(
                "p1",
                n,
                1 + n % 2,
                i64::try_from(n / 100).unwrap(),
                [Health::Ok, Health::Fail][usize::from(n % 9 == 0)],
            )
        })
        .collect();
    let mut sequence = 1;
    let mut took = Vec::new();
    for piece in events.chunks(1_000) {
        let begun = std::time::Instant::now();
        for event in piece {
            sequence += 1;
            fleet.apply(event, Position::new(sequence, 0), event.draft.at).unwrap();
        }
        took.push(begun.elapsed());
    }
    // The fastest of several: what else the machine does slows some of them, hardly ever all.
    let (early, late) = (took[..10].iter().min().unwrap(), took[10..].iter().min().unwrap());
    println!("1,000 outcomes: {early:?} at first, {late:?} later");
    assert!(*late < *early * 3, "{took:?}");
}
