//! The events of every request are written field by field. What is written is what serde would have written.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::value::RawValue;
use waybill_event::config::Capability;
use waybill_event::failure::{BlockVerdict, FailureKind, FallbackReason, Health, Recovery, Sent};
use waybill_event::money::{TokenCount, Usage, UsageReport};
use waybill_event::selection::{Chosen, Next, Skip, SkipReason, TableHash};
use waybill_event::traffic::{
    AttemptFinished, AttemptStarted, Evidence, FinalState, Protocol, RequestAdmitted, RequestFinished, SessionBy,
    SessionRef, Shadow, SourceOutcome,
};
use waybill_event::{
    Actor, Body, Boot, ConfigPosition, Draft, Event, GroupId, Identity, KeyId, LogTime, Mark, RequestId, RouteId,
    Source, SourceKind, SourceRef,
};

#[derive(serde::Deserialize)]
struct Stored<'a> {
    at: String,
    request: Option<String>,
    rn: Option<u32>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    config: Option<u64>,
    #[serde(borrow)]
    actor: Option<&'a RawValue>,
    reason: Option<String>,
    v: u16,
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[track_caller]
fn check(draft: Draft) {
    let mark = Mark { producer: "proxy-2".parse().unwrap(), boot: Boot::new(draft.at, 7), n: 3 };
    let written = Event { identity: Identity::Sequenced(mark), draft: draft.clone() }.encode().unwrap();
    let stored: Stored<'_> = serde_json::from_slice(&written).unwrap();
    assert_eq!(stored.data.get(), serde_json::to_string(&draft.body).unwrap());
    assert_eq!((stored.kind, stored.v, stored.at), (draft.body.kind(), draft.body.version(), draft.at.to_string()));
    let text = |value: Option<&RawValue>| value.map(|raw| raw.get().to_owned());
    assert_eq!(text(stored.source), draft.source.map(|source| serde_json::to_string(&source).unwrap()));
    assert_eq!(text(stored.actor), draft.actor.map(|actor| serde_json::to_string(&actor).unwrap()));
    assert_eq!((stored.request, stored.rn), draft.request.map(|(id, rn)| (id.to_string(), rn)).unzip());
    assert_eq!((stored.config, stored.reason), (draft.config.map(|config| config.0), draft.reason));
}

fn source() -> impl Strategy<Value = Source> {
    (select(vec![SourceKind::Channel, SourceKind::Account]), any::<u64>()).prop_map(|(kind, id)| Source { kind, id })
}

fn skips() -> impl Strategy<Value = Vec<Skip>> {
    let why = select(vec![SkipReason::Disabled, SkipReason::SourceBreakerOpen, SkipReason::Probing]);
    prop::collection::vec((source(), why).prop_map(|(source, why)| Skip { source, why }), 0..3)
}

fn usage() -> impl Strategy<Value = Usage> {
    any::<[Option<u64>; 4]>().prop_map(|counts| {
        let [prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens] =
            counts.map(|count| count.map(TokenCount));
        Usage { prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens }
    })
}

const ALL_CAPABILITIES: [Capability; 5] = [
    Capability::ContextWindow,
    Capability::MaxBodyBytes,
    Capability::Tools,
    Capability::Vision,
    Capability::JsonSchema,
];

fn capabilities() -> impl Strategy<Value = Vec<Capability>> {
    prop::sample::subsequence(ALL_CAPABILITIES.to_vec(), 0..=ALL_CAPABILITIES.len())
}

fn admitted() -> impl Strategy<Value = Body> {
    let ids = any::<(u64, u64, Option<u128>, Option<u32>, u32, Option<u64>)>();
    let texts = any::<(String, String, Option<String>)>();
    let sizes = any::<(bool, u64, u64)>();
    let by = select(vec![SessionBy::Header, SessionBy::Field, SessionBy::Beginning]);
    let session = (any::<(String, bool)>(), by, source()).prop_map(|((hash, bound), by, home)| SessionRef {
        hash,
        by,
        home,
        bound,
    });
    let session = prop::option::of(session);
    (ids, texts, sizes, prop::collection::vec(source(), 0..4), skips(), capabilities(), session).prop_map(
        |(ids, texts, sizes, candidates, skips, needs, session)| {
            let (key, group, table, client_retry, candidate_count, route) = ids;
            let (client_model, model, client_request_id) = texts;
            let (stream, body_bytes, deadline_ms) = sizes;
            Body::from(RequestAdmitted {
                key: KeyId::new(key),
                group: GroupId::new(group),
                protocol: Protocol::OpenaiChat,
                client_model,
                model,
                route: route.map(RouteId::new),
                needs,
                stream,
                body_bytes,
                deadline_ms,
                table: table.map(TableHash),
                candidates,
                candidate_count,
                skips,
                client_retry,
                client_request_id,
                session,
            })
        },
    )
}

fn started() -> impl Strategy<Value = Body> {
    let why = select(vec![Chosen::First, Chosen::FailOver, Chosen::SameSource, Chosen::Probe, Chosen::LastResort]);
    let drawn = (prop_oneof![Just(0), any::<u32>()], any::<Option<u128>>());
    (any::<(String, String)>(), any::<(u32, i32, u32, u64, u64)>(), why, skips(), drawn).prop_map(
        |((model, upstream_model), numbers, why, skips, (target, table))| {
            let (attempt, priority, place, credential_revision, timeout_ms) = numbers;
            Body::from(AttemptStarted {
                attempt,
                model,
                upstream_model,
                why,
                priority,
                place,
                target,
                table: table.map(TableHash),
                skips,
                credential_revision,
                timeout_ms,
            })
        },
    )
}

fn attempt_finished() -> impl Strategy<Value = Body> {
    let evidence = any::<([Option<String>; 4], Option<u64>)>()
        .prop_map(|([code, kind, param, message], wait_ms)| Evidence { code, kind, param, message, wait_ms });
    let words = (
        select(vec![Sent::Nothing, Sent::Request, Sent::Response]),
        prop::option::of(select(vec![Next::Elsewhere, Next::Same, Next::Stop])),
    );
    let numbers = any::<(u32, u32, bool, Option<u16>, Option<u32>)>();
    let shadow = any::<Option<(String, Vec<String>)>>()
        .prop_map(|said| said.map(|(rule, differs)| Shadow { rule, kind: FailureKind::Timeout, differs }));
    (any::<[String; 3]>(), numbers, words, prop::option::of(evidence), any::<Option<String>>(), shadow).prop_map(
        |([model, upstream_model, rule], numbers, (sent, next), evidence, upstream_request_id, shadow)| {
            let (attempt, took_ms, maybe_billed, status, first_content_ms) = numbers;
            let kind = FailureKind::RelayFilter;
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

fn outcome() -> impl Strategy<Value = Body> {
    let health = || select(vec![Health::Ok, Health::Fail, Health::Busy, Health::None]);
    let numbers = any::<(Option<u32>, u32, u64, u64, bool, bool)>();
    (any::<String>(), (health(), health()), numbers, prop::option::of(usage())).prop_map(
        |(upstream_model, (source_health, model_health), numbers, usage)| {
            let (latency_ms, attempts, credential_revision, base_url_revision, probe, disable) = numbers;
            Body::from(SourceOutcome {
                upstream_model,
                kind: FailureKind::Success,
                source_health,
                model_health,
                latency_ms,
                block: disable.then_some(BlockVerdict::Disable { recovery: Recovery::Operator }),
                attempts,
                credential_revision,
                base_url_revision,
                probe,
                usage,
            })
        },
    )
}

fn finished() -> impl Strategy<Value = Body> {
    let states = vec![FinalState::Succeeded, FinalState::Partial, FinalState::Cancelled, FinalState::Unknown];
    let fallback = prop::option::of(select(vec![FallbackReason::Upstream5xx, FallbackReason::RateLimited]));
    let numbers = any::<(u16, u32, bool, Option<u32>, u32, bool)>();
    let words = any::<(Option<String>, Option<String>)>();
    (select(states), words, numbers, fallback, skips(), capabilities(), prop::option::of(usage())).prop_map(
        |(state, (error, served_model), numbers, fallback, skips, missing, usage)| {
            let (status, attempts, degraded, first_content_ms, took_ms, maybe_billed) = numbers;
            Body::from(RequestFinished {
                state,
                status,
                error,
                served_model,
                attempts,
                fallback,
                degraded,
                missing,
                skips,
                usage: usage.map_or(UsageReport::Absent, UsageReport::Reported),
                first_content_ms,
                took_ms,
                maybe_billed,
            })
        },
    )
}

proptest! {
    #[test]
    fn every_usual_event_is_written_as_serde_would(
        body in prop_oneof![admitted(), started(), attempt_finished(), outcome(), finished()],
        at in prop_oneof![0i64..4_000_000_000_000_000, any::<i32>().prop_map(|far| i64::from(far) * 1_000_000_000)],
        (request, rev, config, reason) in any::<(Option<(u128, u32)>, Option<u64>, Option<u64>, Option<String>)>(),
        of in source(),
    ) {
        check(Draft {
            at: LogTime::from_micros(at),
            request: request.map(|(id, rn)| (RequestId::from_uuid(uuid::Uuid::from_u128(id)), rn)),
            source: rev.map(|rev| SourceRef { source: of, rev }),
            config: config.map(ConfigPosition),
            actor: reason.is_some().then_some(Actor::Operator),
            reason,
            body,
        });
    }
}

#[test]
fn words_are_those_of_serde() {
    fn check<T: serde::Serialize>(value: T, word: &str) {
        assert_eq!(serde_json::to_string(&value).unwrap(), format!("{word:?}"));
    }
    for sent in [Sent::Nothing, Sent::Request, Sent::Response] {
        check(sent, sent.as_str());
    }
    for capability in ALL_CAPABILITIES {
        check(capability, capability.as_str());
    }
    for health in [Health::Ok, Health::Fail, Health::Busy, Health::None] {
        check(health, health.as_str());
    }
}
