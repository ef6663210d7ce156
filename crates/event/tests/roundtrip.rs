//! What is written reads back as what it was, for arbitrary content.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use proptest::prelude::*;
use waybill_event::config::{
    Capabilities, Change, Changed, Channel, ChannelModel, ConfigChange, CredentialRef, Limits,
};
use waybill_event::control::BreakerOpened;
use waybill_event::failure::{FailureKind, Sent};
use waybill_event::money::{TokenCount, Usage, UsageReport};
use waybill_event::selection::{Next, Skip, SkipReason};
use waybill_event::traffic::{AttemptFinished, Evidence, FinalState, RequestFinished, Shadow};
use waybill_event::{
    Actor, Body, Boot, ChannelId, ConfigPosition, Draft, Event, GroupId, Identity, LogTime, Mark, Position, RequestId,
    Scope, Source, SourceKind, SourceRef, decode_batch, decode_one,
};

fn time() -> impl Strategy<Value = LogTime> {
    (0i64..4_000_000_000_000_000).prop_map(LogTime::from_micros)
}

fn source() -> impl Strategy<Value = Source> {
    (prop_oneof![Just(SourceKind::Channel), Just(SourceKind::Account)], any::<u64>())
        .prop_map(|(kind, id)| Source { kind, id })
}

fn mark() -> impl Strategy<Value = Mark> {
    ("[a-z0-9-]{1,48}", time(), any::<u32>(), any::<u64>()).prop_map(|(producer, at, random, n)| Mark {
        producer: producer.parse().unwrap(),
        boot: Boot::new(at, random),
        n,
    })
}

fn identity() -> impl Strategy<Value = Identity> {
    prop_oneof![
        mark().prop_map(Identity::Sequenced),
        (any::<String>(), mark()).prop_map(|(id, mark)| Identity::Derived { id, producer: mark.producer }),
    ]
}

fn attempt() -> impl Strategy<Value = Body> {
    let text = || any::<Option<String>>();
    let evidence = (text(), text(), text(), text(), any::<Option<u64>>());
    let evidence =
        evidence.prop_map(|(code, kind, param, message, wait_ms)| Evidence { code, kind, param, message, wait_ms });
    let shadow = any::<Option<(String, Vec<String>)>>()
        .prop_map(|said| said.map(|(rule, differs)| Shadow { rule, kind: FailureKind::Timeout, differs }));
    let numbers = any::<(u32, u32, bool, Option<u16>, Option<u32>)>();
    (any::<[String; 3]>(), numbers, prop::option::of(evidence), text(), shadow).prop_map(
        |([model, upstream_model, rule], numbers, evidence, upstream_request_id, shadow)| {
            let (attempt, took_ms, maybe_billed, status, first_content_ms) = numbers;
            let next = maybe_billed.then_some(Next::Elsewhere);
            let kind = FailureKind::EmptyOutput;
            let sent = Sent::Response;
            Body::from(AttemptFinished {
                attempt,
                model,
                upstream_model,
                kind,
                rule,
                status,
                first_content_ms,
                took_ms,
                sent,
                maybe_billed,
                next,
                evidence,
                upstream_request_id,
                shadow,
            })
        },
    )
}

fn finish() -> impl Strategy<Value = Body> {
    let usage = any::<[Option<u64>; 4]>().prop_map(|[a, b, c, d]| Usage {
        prompt_tokens: a.map(TokenCount),
        completion_tokens: b.map(TokenCount),
        cached_tokens: c.map(TokenCount),
        reasoning_tokens: d.map(TokenCount),
    });
    let usage = prop_oneof![Just(UsageReport::Absent), usage.prop_map(UsageReport::Reported)];
    let skip = source().prop_map(|source| Skip { source, why: SkipReason::Probing });
    (
        usage,
        prop::collection::vec(skip, 0..3),
        any::<[Option<String>; 2]>(),
        any::<(u16, u32, Option<u32>, bool, bool)>(),
    )
        .prop_map(
            |(usage, skips, [error, served_model], (status, took_ms, first_content_ms, degraded, maybe_billed))| {
                Body::from(RequestFinished {
                    state: FinalState::Partial,
                    status,
                    error,
                    served_model,
                    attempts: took_ms,
                    fallback: None,
                    degraded,
                    missing: Vec::new(),
                    skips,
                    usage,
                    first_content_ms,
                    took_ms,
                    maybe_billed,
                })
            },
        )
}

fn opening() -> impl Strategy<Value = Body> {
    (any::<String>(), source(), any::<Option<String>>(), mark(), any::<(u16, u16, u64, u16)>(), time(), time())
        .prop_map(|(opening, source, model, cause, (generation, shard, sequence, index), since, open_until)| {
            Body::from(BreakerOpened {
                opening,
                scope: Scope { source, model },
                cause,
                cause_position: Position { generation, shard, sequence, index },
                ok: 1,
                fail: 9,
                times: 2,
                since,
                open_until,
            })
        })
}

fn channel() -> impl Strategy<Value = Body> {
    let model = (any::<String>(), any::<Option<String>>(), any::<(Option<u64>, Option<bool>)>());
    let model = model.prop_map(|(name, upstream, (context_window, tools))| ChannelModel {
        name,
        upstream,
        capabilities: Capabilities { context_window, tools, ..Capabilities::default() },
    });
    let change = prop::sample::select(Change::ALL.to_vec());
    (
        any::<[String; 4]>(),
        prop::collection::vec(model, 0..3),
        any::<(u64, Vec<u64>, i32, u32, Option<u32>)>(),
        change,
        any::<Vec<String>>(),
    )
        .prop_map(|([name, provider, base_url, fingerprint], models, numbers, change, changed)| {
            let (id, groups, priority, weight, max_concurrent) = numbers;
            let state = Channel {
                id: ChannelId::new(id),
                name,
                provider,
                base_url,
                base_url_revision: id,
                credential: max_concurrent.map(|_| CredentialRef { revision: id, fingerprint }),
                models,
                groups: groups.into_iter().map(GroupId::new).collect(),
                priority,
                weight,
                limits: Limits { max_concurrent, requests_per_minute: None },
                multiplier_milli: weight,
                allow_private: weight % 2 == 0,
                probe: Default::default(),
                enabled: weight % 3 == 0,
                version: id,
            };
            Body::from(ConfigChange::Channel(Changed { change, state, changed }))
        })
}

fn event() -> impl Strategy<Value = Event> {
    let body = prop_oneof![attempt(), finish(), opening(), channel()];
    let request =
        (time(), any::<[u8; 10]>(), any::<u32>()).prop_map(|(at, random, rn)| (RequestId::from_parts(at, random), rn));
    let reference = (source(), any::<u64>()).prop_map(|(source, rev)| SourceRef { source, rev });
    let actor = prop_oneof![
        Just(Actor::Operator),
        (any::<u64>(), any::<String>()).prop_map(|(id, name)| Actor::AdminToken { id, name })
    ];
    (
        identity(),
        time(),
        prop::option::of(request),
        prop::option::of(reference),
        any::<Option<u64>>(),
        prop::option::of(actor),
        any::<Option<String>>(),
        body,
    )
        .prop_map(|(identity, at, request, source, config, actor, reason, body)| Event {
            identity,
            draft: Draft { at, request, source, config: config.map(ConfigPosition), actor, reason, body },
        })
}

proptest! {
    #[test]
    fn an_event_reads_back(event in event()) {
        prop_assert_eq!(decode_one(&event.encode().unwrap()).unwrap(), event);
    }

    #[test]
    fn a_batch_reads_back(events in prop::collection::vec(event(), 0..4)) {
        let mut message = vec![b'['];
        for (i, event) in events.iter().enumerate() {
            if i > 0 {
                message.push(b',');
            }
            event.draft.encode().unwrap().write(&event.identity, &mut message);
        }
        message.push(b']');
        let read: Vec<Event> = decode_batch(&message).unwrap().into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(read, events);
    }

    #[test]
    fn the_bound_on_a_sequenced_events_size_holds(event in event(), mark in mark()) {
        let encoded = event.draft.encode().unwrap();
        let mut out = Vec::new();
        encoded.write(&Identity::Sequenced(mark), &mut out);
        prop_assert!(out.len() <= encoded.size_bound());
    }

    #[test]
    fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_one(&bytes);
        let _ = decode_batch(&bytes);
    }
}
