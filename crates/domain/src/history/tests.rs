use std::time::Duration;

use proptest::prelude::*;
use waybill_event::config::{Change, Changed, Channel, ChannelModel, ConfigChange, CredentialRef, Key, StoredHash};
use waybill_event::control::LossReason;
use waybill_event::failure::{BlockVerdict, Health, Sent, Strength};
use waybill_event::money::{TokenCount, Usage, UsageReport};
use waybill_event::selection::{Chosen, Next, Skip, SkipReason};
use waybill_event::traffic::{
    AttemptFinished, AttemptStarted, Evidence, FinalState, Protocol, RequestAdmitted, RequestFinished, SourceOutcome,
};
use waybill_event::{
    Actor, Body, Boot, ChannelId, ConfigPosition, Draft, Event, FailureKind, FallbackReason, GroupId, Identity, KeyId,
    LogTime, Mark, Position, RequestId, Source, SourceRef,
};

use super::*;
use crate::loss::{self, Owner};

fn at(ms: u64) -> LogTime {
    "2026-11-29T12:00:00Z".parse::<LogTime>().unwrap() + Duration::from_millis(ms)
}

fn channel(id: u64) -> Source {
    ChannelId::new(id).into()
}

fn placed(n: u64, ms: u64, source: Option<u64>, body: impl Into<Body>) -> Placed {
    let mark = Mark { producer: "proxy-1".parse().unwrap(), boot: Boot::new(at(0), 7), n };
    let draft = Draft {
        request: Some((RequestId::from_parts(at(0), [3; 10]), u32::try_from(n).unwrap())),
        source: source.map(|id| SourceRef { source: channel(id), rev: 4 }),
        config: Some(ConfigPosition(12)),
        ..Draft::new(at(ms), body)
    };
    let event = Event { identity: Identity::Sequenced(mark), draft };
    Placed { event, position: Position::new(100 + n / 3, u16::try_from(n % 3).unwrap()), stored_at: at(ms + 5) }
}

fn admitted() -> RequestAdmitted {
    RequestAdmitted {
        key: KeyId::new(5),
        group: GroupId::new(3),
        protocol: Protocol::OpenaiChat,
        client_model: "gpt\0".to_owned(),
        model: "gpt-4o".to_owned(),
        route: None,
        needs: Vec::new(),
        stream: true,
        body_bytes: u64::MAX,
        deadline_ms: 300_000,
        table: None,
        candidates: vec![channel(1), channel(2)],
        candidate_count: 2,
        skips: Vec::new(),
        client_retry: None,
        client_request_id: None,
        session: None,
    }
}

fn started(attempt: u32, why: Chosen) -> AttemptStarted {
    AttemptStarted {
        attempt,
        model: "gpt-4o".to_owned(),
        upstream_model: "gpt-4o-2024".to_owned(),
        why,
        priority: 100,
        place: attempt - 1,
        target: 0,
        table: None,
        skips: vec![Skip { source: channel(9), why: SkipReason::SourceBreakerOpen }],
        credential_revision: 8,
        timeout_ms: 60_000,
    }
}

fn ended(attempt: u32, kind: FailureKind, status: u16, next: Option<Next>) -> AttemptFinished {
    AttemptFinished {
        attempt,
        model: "gpt-4o".to_owned(),
        upstream_model: "gpt-4o-2024".to_owned(),
        kind,
        rule: "openai/429@v1".to_owned(),
        status: Some(status),
        first_content_ms: None,
        took_ms: 80,
        sent: Sent::Response,
        maybe_billed: false,
        next,
        evidence: Some(Evidence { code: Some("slow\0down".to_owned()), ..Evidence::default() }),
        upstream_request_id: None,
        shadow: None,
    }
}

fn outcome(kind: FailureKind, source_health: Health, block: Option<BlockVerdict>) -> SourceOutcome {
    SourceOutcome {
        upstream_model: "gpt-4o-2024".to_owned(),
        kind,
        source_health,
        model_health: Health::None,
        latency_ms: Some(80),
        block,
        attempts: 1,
        credential_revision: 8,
        base_url_revision: 1,
        probe: false,
        usage: None,
    }
}

fn fail_over() -> Vec<Placed> {
    let usage =
        Usage { prompt_tokens: Some(TokenCount(12)), completion_tokens: Some(TokenCount(0)), ..Usage::default() };
    let block = BlockVerdict::Block { strength: Strength::Hint, model_only: true, duration_ms: 20_000 };
    vec![
        placed(1, 0, None, admitted()),
        placed(2, 0, Some(1), started(1, Chosen::First)),
        placed(3, 80, Some(1), ended(1, FailureKind::RateLimited, 429, Some(Next::Elsewhere))),
        placed(4, 80, Some(1), outcome(FailureKind::RateLimited, Health::Busy, Some(block))),
        placed(5, 81, Some(2), started(2, Chosen::FailOver)),
        placed(6, 900, Some(2), ended(2, FailureKind::Success, 200, None)),
        placed(7, 900, Some(2), outcome(FailureKind::Success, Health::Ok, None)),
        placed(
            8,
            900,
            Some(2),
            RequestFinished {
                state: FinalState::Succeeded,
                status: 200,
                error: None,
                served_model: Some("gpt-4o-2024".to_owned()),
                attempts: 2,
                fallback: Some(FallbackReason::RateLimited),
                degraded: false,
                missing: Vec::new(),
                skips: Vec::new(),
                usage: UsageReport::Reported(usage),
                first_content_ms: Some(210),
                took_ms: 900,
                maybe_billed: false,
            },
        ),
    ]
}

fn fold(events: &[Placed]) -> TrafficRows {
    let mut rows = TrafficRows::default();
    for event in events {
        assert_eq!(rows.apply(event), Applied::Rows);
    }
    rows
}

fn words(rows: &TrafficRows) -> String {
    let request = rows.requests.values().next().unwrap();
    let attempts: Vec<AttemptRow> = rows.attempts.values().cloned().collect();
    let outcomes: Vec<OutcomeRow> = rows.outcomes.values().cloned().collect();
    let mut text = String::new();
    for line in lines(request, &attempts, &outcomes) {
        text.push_str(&format!("{} {} {}\n", line.position, line.at, line.text));
        for detail in line.details {
            text.push_str(&format!("    {detail}\n"));
        }
    }
    text
}

#[test]
fn a_fail_over_in_words() {
    insta::assert_snapshot!(words(&fold(&fail_over())));
}

#[test]
fn rows_hold_what_the_events_say() {
    insta::assert_debug_snapshot!(fold(&fail_over()));
}

#[test]
fn a_request_is_open_until_its_end_is_known() {
    let events = fail_over();
    let (id, _) = events[0].event.draft.request.unwrap();
    assert_eq!(fold(&events[..7]).requests[&id].state, RequestState::Open);
    let rows = fold(&events[7..]);
    assert_eq!(rows.requests[&id].state, RequestState::Ended(FinalState::Succeeded));
    assert_eq!(rows.requests[&id].admitted_at, None);
}

fn lost(why: LossReason) -> Placed {
    let first = placed(1, 0, None, admitted());
    let (id, _) = first.event.draft.request.unwrap();
    let owner = Owner { replica: "proxy-1".parse().unwrap(), boot: Boot::new(at(0), 7) };
    let event = loss::declaration(id, &owner, why, at(5_000), "projector-1".parse().unwrap());
    Placed { event, position: Position::new(200, 0), stored_at: at(5_001) }
}

#[test]
fn a_lost_owner_is_a_provisional_end() {
    let events = fail_over();
    let declared = lost(LossReason::Drained);
    let (id, _) = events[0].event.draft.request.unwrap();
    let begun = [&events[..7], std::slice::from_ref(&declared)].concat();
    let rows = fold(&begun);
    assert_eq!(rows.requests[&id].state, RequestState::OwnerLost);
    let again = fold(&[&begun[..], &[lost(LossReason::Absent)]].concat());
    assert_eq!(again, rows, "a second declaration changes nothing");
    insta::assert_snapshot!("a_lost_owner_in_words", words(&rows));

    // The real end was on its way all the time.
    let mut end = events[7].clone();
    end.position = Position::new(300, 0);
    let rows = fold(&[&begun[..], &[end]].concat());
    assert_eq!(rows.requests[&id].state, RequestState::Ended(FinalState::Succeeded));
    insta::assert_snapshot!("a_late_end_in_words", words(&rows));
}

#[test]
fn a_second_event_of_the_same_kind_changes_nothing() {
    let mut events = fail_over();
    let once = fold(&events);
    let mut other = events[7].clone();
    if let Body::RequestFinished(data) = &mut other.event.draft.body {
        data.status = 500;
    }
    events.push(other);
    assert_eq!(fold(&events), once);
}

#[test]
fn an_event_that_lacks_what_its_row_needs_is_told() {
    let mut rows = TrafficRows::default();
    assert_eq!(rows.apply(&placed(1, 0, None, started(1, Chosen::First))), Applied::Incomplete("it names no source"));
    let mut event = placed(1, 0, None, admitted());
    event.event.draft.request = None;
    assert_eq!(rows.apply(&event), Applied::Incomplete("it names no request"));
    assert_eq!(rows, TrafficRows::default());
}

proptest! {
    #[test]
    fn the_order_of_a_requests_events_does_not_matter(
        events in Just([fail_over(), vec![lost(LossReason::Absent)]].concat()).prop_shuffle(),
    ) {
        prop_assert_eq!(fold(&events), fold(&[fail_over(), vec![lost(LossReason::Absent)]].concat()));
    }

    #[test]
    fn folding_on_what_is_there_is_folding_at_once(cut in 0usize..8) {
        let events = fail_over();
        let mut rows = fold(&events[..cut]);
        for event in &events {
            rows.apply(event);
        }
        prop_assert_eq!(rows, fold(&events));
    }
}

fn edit(sequence: u64, change: impl Into<ConfigChange>) -> Placed {
    let draft = Draft {
        actor: Some(Actor::AdminToken { id: 1, name: "root".to_owned() }),
        reason: Some("half the traffic".to_owned()),
        ..Draft::new(at(sequence), change.into())
    };
    let identity = Identity::Derived { id: format!("edit-{sequence}"), producer: "admin-1".parse().unwrap() };
    Placed { event: Event { identity, draft }, position: Position::new(sequence, 0), stored_at: at(sequence + 1) }
}

fn channel_edit(change: Change, models: &[&str], groups: &[u64], version: u64) -> ConfigChange {
    ConfigChange::Channel(Changed {
        change,
        changed: vec!["models".to_owned()],
        state: Channel {
            id: ChannelId::new(42),
            name: "primary".to_owned(),
            provider: "openai".to_owned(),
            base_url: "https://api.example.com/v1".to_owned(),
            base_url_revision: 1,
            credential: Some(CredentialRef { revision: 9, fingerprint: "c0ffee".to_owned() }),
            models: models.iter().map(|&name| ChannelModel::named(name)).collect(),
            groups: groups.iter().copied().map(GroupId::new).collect(),
            priority: 100,
            weight: 5,
            limits: waybill_event::config::Limits::default(),
            multiplier_milli: 1000,
            allow_private: false,
            probe: Default::default(),
            enabled: true,
            version,
        },
    })
}

fn configured(edits: &[Placed]) -> ConfigRows {
    let mut rows = ConfigRows::default();
    for edit in edits {
        rows.apply(edit).unwrap();
    }
    rows
}

#[test]
fn abilities_follow_their_source() {
    let edits = [
        edit(1, channel_edit(Change::Created, &["a", "b", "a"], &[1, 2, 1], 1)),
        edit(2, channel_edit(Change::Edited, &["b"], &[2], 2)),
        edit(3, channel_edit(Change::Deleted, &["b"], &[2], 3)),
    ];
    let keys = |edits: &[Placed]| -> Vec<(u64, String)> {
        configured(edits).abilities.into_keys().map(|(group, model, _)| (group.get(), model)).collect()
    };
    let ability = |group, model: &str| (group, model.to_owned());
    assert_eq!(keys(&edits[..1]), [ability(1, "a"), ability(1, "b"), ability(2, "a"), ability(2, "b")]);
    assert_eq!(keys(&edits[..2]), [ability(2, "b")]);
    assert_eq!(keys(&edits), []);
    let rows = configured(&edits);
    assert!(rows.sources[&channel(42)].deleted);
    assert_eq!(rows.sources[&channel(42)].created_at, at(1));
    assert_eq!(rows.history.len(), 3);
    assert_eq!(configured(&[&edits[..], &edits[..]].concat()), rows, "an edit folded twice changes nothing");
}

#[test]
fn no_hash_reaches_the_rows() {
    let key = Key {
        id: KeyId::new(5),
        name: "ci".to_owned(),
        group: GroupId::new(3),
        prefix: "wb-key-3f9a".to_owned(),
        hash: StoredHash { pepper: "p1".to_owned(), mac: "5ec2e7".to_owned() },
        models: Vec::new(),
        expires_at: None,
        limits: Default::default(),
        user_limits: Default::default(),
        enabled: true,
        version: 1,
    };
    let changed = Changed { change: Change::Created, state: key, changed: Vec::new() };
    let rows = configured(&[edit(1, ConfigChange::Key(changed))]);
    assert!(!format!("{rows:?}").contains("5ec2e7"));
    insta::assert_debug_snapshot!(rows);
}

#[test]
fn an_unknown_edit_stops_the_fold() {
    let bytes =
        br#"{"id":"x","producer":"admin-1","type":"tenant_created","v":1,"at":"2026-11-29T12:00:00Z","data":{}}"#;
    let event = waybill_event::decode_one(bytes).unwrap();
    let stop = ConfigRows::default().apply(&Placed { event, position: Position::new(7, 0), stored_at: at(0) });
    let stop = stop.unwrap_err();
    assert_eq!((stop.position, stop.kind.as_str(), stop.version), (ConfigPosition(7), "tenant_created", 1));
}
