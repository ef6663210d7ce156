use proptest::prelude::*;
use waybill_event::failure::{BlockVerdict, Recovery, Sent, Strength};

use super::*;
use crate::observation::{ErrorFields, Fault, Headers, Limit, Phase, Shape, TransportFault};

fn seen(ending: Ending) -> Observation {
    Observation::new("openai", ending)
}

fn waits(ms: Option<u64>) -> Headers {
    ms.map(|ms| ("retry-after-ms".to_owned(), ms.to_string()))
        .iter()
        .map(|(name, ms)| (name.as_str(), ms.as_str()))
        .collect()
}

fn status(status: u16, code: Option<&str>, message: &str) -> Observation {
    let error =
        ErrorFields { code: code.map(str::to_owned), message: Some(message.to_owned()), ..ErrorFields::default() };
    Observation { error, ..seen(Ending::Status { status, shape: Shape::Error }) }
}

fn transport(fault: Fault, phase: Phase, sent: Sent) -> Observation {
    seen(Ending::Transport(TransportFault { phase, fault, sent, received: 0, detail: String::new() }))
}

fn check(given: &Observation, kind: FailureKind, rule: &str) -> Verdict {
    let verdict = classify(RuleSet::builtin(), given);
    assert_eq!((verdict.kind, &*verdict.rule), (kind, rule), "{given:?}");
    verdict
}

#[test]
fn a_specific_code_comes_before_the_status() {
    let quota = status(429, Some("insufficient_quota"), "You exceeded your current quota");
    let verdict = check(&quota, FailureKind::BillingExhausted, "code/billing@v1");
    assert_eq!(verdict.block, Some(BlockVerdict::Disable { recovery: Recovery::Probe }));
    assert_eq!(verdict.client.map(|c| c.status), Some(502));
    assert!(!verdict.counts_attempt);
}

#[test]
fn the_same_word_means_another_thing_at_another_provider() {
    let quota = Observation { provider: "dashscope".to_owned(), ..status(429, Some("insufficient_quota"), "quota") };
    check(&quota, FailureKind::RateLimited, "dashscope/token_rate@v1");
}

#[test]
fn nothing_is_tried_again_once_content_has_gone_out() {
    let cut = Observation { committed: true, ..seen(Ending::Wrong2xx { status: 200, shape: Shape::Cut }) };
    let verdict = check(&cut, FailureKind::Network, "shape/cut@v1");
    assert_eq!((verdict.retry_elsewhere, verdict.retry_same), (Elsewhere::Never, None));
    assert_eq!(verdict.source_health, Health::Fail);
    assert!(verdict.maybe_billed);
}

#[test]
fn hints_are_obeyed_up_to_the_kinds_cap() {
    let block = |wait: Option<u64>, message: &str| {
        let given = Observation { headers: waits(wait.map(|s| s * 1_000)), ..status(429, None, message) };
        let verdict = classify(RuleSet::builtin(), &given);
        match verdict.block {
            Some(BlockVerdict::Block { strength, duration_ms, .. }) => (strength, duration_ms),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(block(Some(7), "slow down"), (Strength::Hint, 7_000));
    assert_eq!(block(Some(86_400), "slow down"), (Strength::Hint, 3_600_000));
    assert_eq!(block(None, "Rate limit reached. Please try again in 6.5s."), (Strength::Hint, 6_500));
    assert_eq!(block(None, "slow down"), (Strength::Soft, 5_000));
}

#[test]
fn what_was_never_sent_costs_nothing() {
    let refused = check(
        &transport(Fault::Refused, Phase::Connect, Sent::Nothing),
        FailureKind::Network,
        "transport/no_connection@v1",
    );
    assert!(!refused.counts_attempt && !refused.maybe_billed && !refused.outcome_unknown());
    let reset =
        check(&transport(Fault::Reset, Phase::Head, Sent::Request), FailureKind::Network, "transport/broken@v1");
    assert!(reset.counts_attempt && reset.maybe_billed && reset.outcome_unknown());
    let stale = transport(Fault::Closed, Phase::Head, Sent::Nothing);
    let stale = check(&stale, FailureKind::Network, "transport/stale_connection@v1");
    assert_eq!(stale.source_health, Health::None);
}

#[test]
fn the_requests_own_deadline_says_nothing_about_the_source() {
    let late = seen(Ending::TimedOut { limit: Limit::Deadline, sent: Sent::Request });
    let verdict = check(&late, FailureKind::Timeout, "local/deadline@v1");
    assert_eq!((verdict.source_health, verdict.model_health), (Health::None, Health::None));
    assert_eq!(verdict.client.map(|c| c.code), Some(PublicCode::DeadlineExceeded));
    let slow = seen(Ending::TimedOut { limit: Limit::FirstContent, sent: Sent::Request });
    assert_eq!(check(&slow, FailureKind::Timeout, "transport/timeout@v1").source_health, Health::Fail);
}

#[test]
fn a_404_is_told_apart_by_its_shape() {
    let page = seen(Ending::Status { status: 404, shape: Shape::Html });
    assert_eq!(check(&page, FailureKind::ChannelMisconfigured, "shape/404_no_api@v1").source_health, Health::Fail);
    let model = status(404, Some("model_not_found"), "The model `x` does not exist");
    let verdict = check(&model, FailureKind::ModelUnavailable, "code/model@v1");
    assert_eq!((verdict.source_health, verdict.model_health), (Health::Ok, Health::Fail));
}

#[test]
fn an_error_inside_a_200_is_judged_by_the_status_it_speaks_of() {
    let error = ErrorFields { status: Some(529), ..ErrorFields::default() };
    let given = Observation { error, ..seen(Ending::Wrong2xx { status: 200, shape: Shape::Error }) };
    check(&given, FailureKind::Overloaded, "status/529@v1");
}

#[test]
fn statuses_that_are_the_callers_go_through() {
    for (given, client) in [(400, 400), (422, 422), (413, 413), (415, 415), (409, 409), (423, 503), (418, 418)] {
        let verdict = classify(RuleSet::builtin(), &status(given, None, "no"));
        assert_eq!(verdict.client.map(|c| c.status), Some(client), "{given}");
    }
}

#[test]
fn the_set_reads_back_as_it_was_written() {
    let set = RuleSet::builtin();
    let text = serde_json::to_string(set).unwrap();
    let again: RuleSet = serde_json::from_str(&text).unwrap();
    assert_eq!(again.data(), set.data());
}

fn refuse(change: impl FnOnce(&mut rule::RuleSetData)) -> RuleSetError {
    let mut data = RuleSet::builtin().data().clone();
    change(&mut data);
    RuleSet::try_from(data).unwrap_err()
}

#[test]
fn sets_that_would_do_harm_are_refused() {
    let blaming = refuse(|data| {
        let rule = data.levels.iter_mut().flat_map(|l| &mut l.rules).find(|r| r.id == "status/401").unwrap();
        rule.but.client = Some(rule::ClientRule {
            code: PublicCode::UpstreamError,
            keep: vec!["400-404".parse().unwrap()],
            status: None,
        });
    });
    assert_eq!(blaming, RuleSetError::BlamesClient { of: "status/401".to_owned() });
    let open = refuse(|data| data.levels.iter_mut().for_each(|l| l.rules.retain(|r| r.id != "unknown")));
    assert_eq!(open, RuleSetError::NoLastRule);
    let twice = refuse(|data| {
        let rule = data.levels[0].rules[0].clone();
        data.levels[0].rules.push(rule);
    });
    assert!(matches!(twice, RuleSetError::Twice { .. }));
    let phrase = refuse(|data| data.levels[0].rules[0].when.phrases.push(String::new()));
    assert!(matches!(phrase, RuleSetError::Phrase { .. }));
    let kind = refuse(|data| drop(data.kinds.remove(&FailureKind::Timeout)));
    assert_eq!(kind, RuleSetError::MissingKind { kind: FailureKind::Timeout });
}

fn endings() -> impl Strategy<Value = Ending> {
    use Shape as S;
    let shape = || {
        prop::sample::select(vec![
            S::Error,
            S::UnknownJson,
            S::Html,
            S::Empty,
            S::Text,
            S::EmptyOutput,
            S::BrokenEvent,
            S::Cut,
        ])
    };
    let sent = || prop::sample::select(vec![Sent::Nothing, Sent::Request, Sent::Response]);
    let fault = prop::sample::select(vec![
        Fault::Dns,
        Fault::Refused,
        Fault::AddressRefused,
        Fault::Unreachable,
        Fault::Tls,
        Fault::Reset,
        Fault::Closed,
        Fault::TimedOut,
        Fault::Protocol,
        Fault::TooLarge,
    ]);
    let phase = prop::sample::select(vec![Phase::Resolve, Phase::Connect, Phase::Tls, Phase::Head, Phase::Body]);
    let limit = prop::sample::select(vec![Limit::FirstContent, Limit::Idle, Limit::Whole, Limit::Deadline]);
    prop_oneof![
        Just(Ending::Success),
        Just(Ending::ClientGone),
        Just(Ending::Local),
        (100_u16..1000, shape()).prop_map(|(status, shape)| Ending::Status { status, shape }),
        shape().prop_map(|shape| Ending::Wrong2xx { status: 200, shape }),
        (limit, sent()).prop_map(|(limit, sent)| Ending::TimedOut { limit, sent }),
        (fault, phase, sent()).prop_map(|(fault, phase, sent)| {
            Ending::Transport(TransportFault { phase, fault, sent, received: 0, detail: String::new() })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn whatever_is_seen_the_promises_hold(
        ending in endings(),
        code in prop::option::of("[a-z_]{0,12}|insufficient_quota|429|524|invalid_api_key"),
        message in prop::option::of("\\PC{0,60}|.*invalid api key.*|model not found|余额不足"),
        wait in prop::option::of(0_u64..10_000_000),
        committed in any::<bool>(),
    ) {
        let given = Observation {
            error: ErrorFields { code, message, ..ErrorFields::default() },
            headers: waits(wait),
            committed,
            ..seen(ending)
        };
        let verdict = classify(RuleSet::builtin(), &given);
        if committed {
            prop_assert_eq!((verdict.retry_elsewhere, verdict.retry_same), (Elsewhere::Never, None));
        }
        if let Some(client) = verdict.client {
            prop_assert!((400..600).contains(&client.status) && !(401..=403).contains(&client.status));
        }
        prop_assert_eq!(verdict.client.is_none(), verdict.kind == FailureKind::Success);
        if let Some(BlockVerdict::Block { duration_ms, .. }) = verdict.block {
            prop_assert!((1..=8 * 86_400_000).contains(&duration_ms));
        }
        // A block made by a limit is never evidence for a breaker.
        if verdict.kind == FailureKind::RateLimited {
            prop_assert_eq!((verdict.source_health, verdict.model_health), (Health::None, Health::None));
        }
    }
}

#[test]
fn a_limit_passes_after_its_hint_or_its_block_and_a_fault_after_its_hint_only() {
    let after = |status: u16, wait_s: Option<u64>| {
        let given = seen(Ending::Status { status, shape: Shape::Error });
        let given = Observation { headers: waits(wait_s.map(|s| s * 1_000)), ..given };
        classify(RuleSet::builtin(), &given).passes_after().map(|wait| wait.as_secs())
    };
    assert_eq!((after(429, None), after(429, Some(7)), after(529, None)), (Some(5), Some(7), Some(30)));
    assert_eq!((after(503, None), after(404, None), after(401, None)), (None, None, None));
}
