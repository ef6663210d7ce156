use serde_json::{Value, json};
use waybill_event::config::RuleLayer;
use waybill_event::failure::{BlockVerdict, Recovery, Strength};
use waybill_event::{FailureKind, SourceKind};

use super::*;
use crate::observation::{Ending, ErrorFields, Shape};
use crate::verdict::{Elsewhere, PublicCode};

const ONE: Source = Source { kind: SourceKind::Channel, id: 1 };
const TWO: Source = Source { kind: SourceKind::Channel, id: 2 };

fn status(status: u16, message: &str) -> Observation {
    let error = ErrorFields { message: Some(message.to_owned()), ..ErrorFields::default() };
    let ending = Ending::Status { status, shape: Shape::Error };
    Observation { error, ..Observation::new("acme", ending) }
}

fn layer(layer: Value) -> RuleLayer {
    serde_json::from_value(layer).unwrap()
}

fn rules(scope: PolicyScope, live: Value) -> Rules {
    Rules { scope, live: layer(live), candidate: None, version: 3 }
}

fn book(all: &[Rules]) -> Rulebook {
    Rulebook::of(all).unwrap()
}

fn provider() -> PolicyScope {
    PolicyScope::Provider { provider: "acme".to_owned() }
}

#[test]
fn without_layers_the_shipped_set_speaks() {
    let given = status(500, "oops");
    assert_eq!(Rulebook::default().classify(Some(ONE), &given), crate::verdict::classify(RuleSet::builtin(), &given));
}

#[test]
fn the_narrowest_rule_goes_first() {
    let rule = |kind: &str| json!({"rules": [{"id": "house/plan", "v": 1, "when": {"phrases": ["not in your plan"]}, "kind": kind}]});
    let book = book(&[
        rules(PolicyScope::Global, rule("rate_limited")),
        rules(provider(), rule("overloaded")),
        rules(PolicyScope::Source { source: ONE }, rule("model_unavailable")),
    ]);
    let check = |source, provider: &str, expected: &str| {
        let given = Observation { provider: provider.to_owned(), ..status(403, "This is not in your plan.") };
        assert_eq!(&*book.classify(source, &given).rule, expected);
    };
    check(Some(ONE), "acme", "channel:1/house/plan@v1");
    check(Some(TWO), "acme", "provider:acme/house/plan@v1");
    check(None, "acme", "provider:acme/house/plan@v1");
    check(Some(TWO), "other", "global/house/plan@v1");
    assert_eq!(&*book.classify(Some(ONE), &status(500, "oops")).rule, "status/5xx@v1");
}

#[test]
fn what_follows_from_a_kind_is_said_from_the_widest_to_the_narrowest() {
    let wide = json!({"kinds": {"payload_too_large": {"elsewhere": "anyone", "maybe_billed": true}}});
    let narrow = json!({"kinds": {"payload_too_large": {"elsewhere": "capable"}}});
    let book = book(&[rules(PolicyScope::Global, wide), rules(provider(), narrow)]);
    let verdict = book.classify(Some(ONE), &status(413, "too large"));
    assert_eq!((verdict.retry_elsewhere, verdict.maybe_billed), (Elsewhere::Capable, true));
    assert_eq!(&*verdict.rule, "status/413@v1+global@v3+provider:acme@v3", "the label tells who had a say");
    let other = Observation { provider: "other".to_owned(), ..status(413, "too large") };
    assert_eq!(book.classify(Some(ONE), &other).retry_elsewhere, Elsewhere::Anyone);
}

#[test]
fn a_rule_of_a_layer_has_the_last_word_on_itself() {
    let own = json!({
        "kinds": {"rate_limited": {"elsewhere": "never"}},
        "rules": [{"id": "house/limit", "v": 2, "when": {"status": ["430"]}, "kind": "rate_limited", "but": {"elsewhere": "anyone"}}],
    });
    let book = book(&[rules(PolicyScope::Global, own)]);
    assert_eq!(book.classify(None, &status(430, "")).retry_elsewhere, Elsewhere::Anyone);
    assert_eq!(book.classify(None, &status(429, "")).retry_elsewhere, Elsewhere::Never);
}

#[test]
fn a_shipped_rule_can_be_left_out() {
    let book = book(&[rules(provider(), json!({"without": ["status/413"]}))]);
    assert_eq!(&*book.classify(None, &status(413, "")).rule, "status/4xx@v1");
}

#[test]
fn nothing_makes_content_that_went_out_be_tried_again() {
    let own = json!({"kinds": {"network": {"elsewhere": "anyone"}}});
    let cut = Ending::Wrong2xx { status: 200, shape: Shape::Cut };
    let given = Observation { ending: cut, committed: true, ..status(200, "") };
    let verdict = book(&[rules(PolicyScope::Global, own)]).classify(None, &given);
    assert_eq!((verdict.retry_elsewhere, verdict.retry_same), (Elsewhere::Never, None));
}

#[test]
fn presets_say_what_their_names_promise() {
    let with = |preset: &str| book(&[rules(PolicyScope::Global, json!({"preset": preset}))]);
    let busy = with("busy_is_not_broken");
    let overloaded = busy.classify(None, &status(529, "overloaded"));
    assert_eq!((overloaded.kind, overloaded.block.clone()), (FailureKind::Overloaded, None));
    assert!(overloaded.rule.ends_with("+busy_is_not_broken"), "{}", overloaded.rule);
    let hinted = Observation { headers: [("retry-after", "7")].into_iter().collect(), ..status(429, "slow down") };
    let block = BlockVerdict::Block { strength: Strength::Soft, model_only: false, duration_ms: 7_000 };
    assert_eq!(busy.classify(None, &hinted).block, Some(block));
    assert_eq!(busy.classify(None, &status(429, "slow down")).block, None);
    let conservative = with("conservative");
    assert_eq!(conservative.classify(None, &status(500, "oops")).retry_elsewhere, Elsewhere::Never);
    assert_eq!(conservative.classify(None, &status(429, "slow down")).retry_elsewhere, Elsewhere::Anyone);
    for preset in Preset::ALL {
        let disabled = with(preset.as_str()).classify(None, &status(401, "invalid api key")).block;
        assert_eq!(disabled, Some(BlockVerdict::Disable { recovery: Recovery::Probe }), "{preset:?}");
    }
}

#[test]
fn a_narrower_scope_may_go_back_to_the_standard() {
    let both = [
        rules(PolicyScope::Global, json!({"preset": "conservative"})),
        rules(provider(), json!({"preset": "standard"})),
    ];
    assert_eq!(book(&both).classify(None, &status(500, "oops")).retry_elsewhere, Elsewhere::Anyone);
}

#[test]
fn a_candidate_looks_on_and_tells_what_it_would_have_said_otherwise() {
    let candidate = layer(json!({"rules": [
        {"id": "house/teapot", "v": 4, "when": {"status": ["418"]}, "kind": "overloaded"}]}));
    let book = book(&[Rules { candidate: Some(candidate), ..rules(provider(), json!({})) }]);
    let judged = book.judge(Some(ONE), &status(418, "I'm a teapot"));
    assert_eq!(judged.verdict, Rulebook::default().classify(Some(ONE), &status(418, "I'm a teapot")));
    let shadow = judged.shadow.unwrap();
    assert_eq!((&*shadow.rule, shadow.kind), ("provider:acme/house/teapot@v4", FailureKind::Overloaded));
    assert!(shadow.differs.contains(&"retry_elsewhere".to_owned()), "{shadow:?}");
    assert_eq!(book.judge(Some(ONE), &status(500, "oops")).shadow, None, "where both agree nothing is told");
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    let check = |given: Value, expected: &str| {
        let (_, fault) = Rulebook::of(&[rules(PolicyScope::Global, given.clone())]).unwrap_err();
        assert!(fault.to_string().contains(expected), "{given}: {fault}");
    };
    check(
        json!({"rules": [{"id": "status/413", "v": 1, "kind": "success"}]}),
        "status/413 is the id of a shipped rule",
    );
    check(json!({"rules": [{"id": "x", "v": 1, "kind": "no_kind"}]}), "rule x");
    check(json!({"rules": [{"id": "x", "v": 1, "when": {"stat": []}, "kind": "timeout"}]}), "rule x");
    check(json!({"without": ["no/such"]}), "no shipped rule is called no/such");
    check(json!({"kinds": {"auth_invalid": {"client": {"code": "upstream_error", "status": 401}}}}), "auth_invalid");
    check(json!({"kinds": {"timeout": {"elswhere": "never"}}}), "timeout");
    let twice = json!({"id": "x", "v": 1, "kind": "timeout"});
    check(json!({"rules": [twice, twice]}), "two rules are called x");
    let ours = json!({"id": "x", "v": 1, "kind": "timeout", "but": {"client": {"code": "invalid_api_key"}}});
    check(json!({"rules": [ours]}), "x would blame");
    assert_eq!(PublicCode::InvalidApiKey.status(), 401);
}

#[test]
fn a_refused_token_of_an_account_asks_for_the_next_one() {
    let seen = |status: u16| Observation {
        error: ErrorFields { code: Some("invalid_api_key".to_owned()), ..ErrorFields::default() },
        ..Observation::new("anthropic", Ending::Status { status, shape: Shape::Error })
    };
    let rules = Rulebook::default();
    let kind = |source: SourceKind, status: u16| {
        let verdict = rules.classify(Some(Source { kind: source, id: 1 }), &seen(status));
        (verdict.kind, verdict.rule.ends_with("+account"), verdict.retry_same.map(|same| same.times))
    };
    assert_eq!(kind(SourceKind::Account, 401), (FailureKind::AuthRefreshable, true, Some(1)));
    assert_eq!(kind(SourceKind::Channel, 401), (FailureKind::AuthInvalid, false, None));
    assert!(!kind(SourceKind::Account, 403).1, "only a 401 is about the token");
}
