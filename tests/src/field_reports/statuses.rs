//! Reports on statuses: what is whose fault, what is tried elsewhere, and what the client is told.

use serde_json::{Value, json};
use waybill_testkit::upstream::{Chat, Reply};

use super::Script;
use super::replies::{
    always, bad_key, done, error, fault, ill, invalid, ok, page, role, slow_down, stop, stream, told, turns, well,
};
use super::script::{ask, script};
use super::stage::Stage;

const REFUSED: &str = "content_policy_violation";

pub(super) fn scripts() -> Vec<Script> {
    let all = [callers_faults(), kept_statuses(), exhausted(), credentials(), capabilities(), refusals(), busy()];
    all.into_iter().flatten().chain(in_200()).collect()
}

/// C01: a deterministic 4xx is sent once.
fn callers_faults() -> Vec<Script> {
    let parameter = || invalid(400, "bad_param", "temperature must be <= 2");
    let walked = [("a", "invalid_request")];
    let plain = || page(400, "text/plain", "Bad Request: stop must be a list");
    vec![
        script("c01")
            .source("a", 10, always(parameter()))
            .source("b", 5, well())
            .ask(
                ask(1)
                    .refused(400, "bad_param")
                    .says("temperature must be <= 2")
                    .walked(&walked)
                    .health("a", "ok", "none"),
            )
            .untouched("a"),
        // Streams, and an answer that isn't even JSON: six of them at all replicas would open this breaker if they counted.
        script("c01-plain-streams")
            .source("a", 10, always(plain()))
            .source("b", 5, well())
            .selector(json!({"source_breaker": {"min_outcomes": 2, "consecutive_fails": 2}}))
            .ask(ask(1).times(6).streamed().refused(400, "invalid_request").walked(&walked).health("a", "ok", "none"))
            .untouched("a"),
    ]
}

/// C02: a 4xx stays the 4xx it is.
fn kept_statuses() -> Vec<Script> {
    let conflict = || invalid(409, "conflict", "busy, try again");
    let statuses = turns([
        invalid(422, "unsupported_param", "field x not supported"),
        invalid(413, "too_large", "body too large"),
        invalid(415, "media", "unsupported media type"),
        invalid(404, "model_not_found", "model m-up does not exist"),
        conflict(),
        conflict(),
        conflict(),
        conflict(),
    ]);
    let conflicts = [("a", "transient_conflict"); 4];
    let fits_b = |kind| [("a", kind), ("b", "success")];
    vec![
        script("c02")
            .source("a", 10, statuses)
            .ask(
                ask(1)
                    .refused(422, "unsupported_param")
                    .walked(&[("a", "capability_mismatch")])
                    .health("a", "ok", "none"),
            )
            .ask(ask(2).refused(413, "too_large").walked(&[("a", "payload_too_large")]).health("a", "ok", "none"))
            .ask(ask(3).refused(415, "media").walked(&[("a", "capability_mismatch")]).health("a", "ok", "none"))
            .ask(ask(1).refused(404, "model_not_found").walked(&[("a", "model_unavailable")]).health("a", "ok", "fail"))
            .ask(ask(2).refused(409, "conflict").walked(&conflicts).health("a", "none", "none"))
            .never_opens("a")
            .logs("source_disabled", "a", 0),
        // With a sibling: what may fit elsewhere goes there, what is too large doesn't, and a conflict passes by itself.
        script("c02-sibling")
            .source("a", 10, turns([invalid(413, "too_large", "too large"), invalid(422, "x", "no x"), ill(423), ok()]))
            .source("b", 5, well())
            .ask(ask(3).streamed().refused(413, "too_large").walked(&[("a", "payload_too_large")]))
            .ask(ask(1).streamed().served_by("b").walked(&fits_b("capability_mismatch")).health("a", "ok", "none"))
            .ask(ask(2).streamed().walked(&[("a", "transient_conflict"), ("a", "success")]).health("a", "ok", "ok"))
            .untouched("a"),
        // A model that is gone at both sources is told as gone, not as an outage; at one of two the other serves.
        script("c02-model-gone")
            .source("a", 10, always(invalid(404, "model_not_found", "The model `m-up` does not exist")))
            .source("b", 5, turns([ok(), told(404, "not_found_error", "model_not_found", "model: m-up")]))
            .ask(ask(2).streamed().served_by("b").walked(&fits_b("model_unavailable")).fallback("model_unavailable"))
            .ask(ask(3).streamed().refused(404, "model_not_found")),
    ]
}

/// C04: the most informative failure speaks, whatever came first or last.
fn exhausted() -> Vec<Script> {
    let overloaded = told(503, "server_error", "try_later", "try later");
    let schema = invalid(400, "bad_schema", "tool schema rejected");
    let lacks = invalid(400, "unsupported_parameter", "tools are not supported");
    let limited = || slow_down().header("retry-after", "9");
    vec![
        script("c04")
            .source("a", 10, always(overloaded))
            .source("b", 5, always(schema))
            .ask(
                ask(1)
                    .refused(400, "bad_schema")
                    .says("tool schema rejected")
                    .walked(&[("a", "server_error"), ("b", "invalid_request")])
                    .health("a", "fail", "fail")
                    .health("b", "ok", "none")
                    .fallback("upstream_5xx"),
            )
            .untouched("b"),
        // The caller's fault came first and a fault upstream last.
        script("c04-turned-stream").source("a", 10, always(lacks)).source("b", 5, always(ill(503))).ask(
            ask(2)
                .streamed()
                .refused(400, "unsupported_parameter")
                .walked(&[("a", "capability_mismatch"), ("b", "server_error"), ("b", "server_error")])
                .fallback("capability_mismatch"),
        ),
        // Nobody's fault but a limit's, in the midst of faults: the limit speaks, with its end.
        script("c04-limit-between")
            .source("a", 10, always(ill(500)))
            .source("b", 7, always(limited()))
            .source("c", 5, always(ill(503)))
            .ask(ask(3).refused(429, "rate_limited").retry_after(1..=9).walked(&[
                ("a", "server_error"),
                ("b", "rate_limited"),
                ("c", "server_error"),
                ("c", "server_error"),
            ]))
            .never_opens("b"),
    ]
}

/// C05: what is wrong with our credentials is never the client's.
fn credentials() -> Vec<Script> {
    let no_credit = || told(402, "billing_error", "insufficient_quota", "no credit");
    let walked = [("a1", "auth_invalid"), ("a2", "billing_exhausted")];
    vec![
        script("c05")
            .source("a1", 10, always(bad_key()))
            .source("a2", 5, always(no_credit()))
            .ask(
                ask(1)
                    .refused(502, "all_sources_failed")
                    .walked(&walked)
                    .hides("bad key")
                    .hides("no credit")
                    .health("a1", "none", "none")
                    .health("a2", "none", "none"),
            )
            .then(|stage| Box::pin(nobody_is_asked_again(stage)))
            .never_opens("a1")
            .never_opens("a2")
            .logs("source_disabled", "a1", 1)
            .logs("source_disabled", "a2", 1),
        // The same inside a 200, in the first event of a stream, with a healthy third; and a new credential heals.
        script("c05-in-streams")
            .source("a1", 10, always(stream(&format!("{}\n\n", fault(&error("x", "invalid_api_key", "bad key"))))))
            .source("a2", 7, always(stream(&format!("{}\n\n", fault(&error("insufficient_quota", "x", "no credit"))))))
            .source("a3", 5, well())
            .ask(
                ask(2)
                    .streamed()
                    .served_by("a3")
                    .walked(&[("a1", "auth_invalid"), ("a2", "billing_exhausted"), ("a3", "success")])
                    .hides("bad key"),
            )
            .then(|stage| Box::pin(a_new_credential_heals(stage)))
            .never_opens("a1")
            .logs("source_disabled", "a1", 1)
            .logs("source_disabled", "a2", 1),
    ]
}

fn is_disabled(state: &Value) -> bool {
    state.get("disabled").and_then(Value::as_bool) == Some(true)
}

async fn nobody_is_asked_again(stage: &Stage<'_>) {
    stage.everywhere("a1", "disabled", is_disabled).await;
    stage.everywhere("a2", "disabled", is_disabled).await;
    for (proxy, streamed) in [(2, false), (3, true)] {
        let answer = stage.chat(proxy).with("stream", streamed).send().await;
        assert_eq!((answer.status, answer.code().as_deref()), (503, Some("no_source_available")), "{}", answer.text());
        assert!(answer.header("www-authenticate").is_none(), "{:?}", answer.headers);
    }
    assert_eq!((stage.calls("a1").len(), stage.calls("a2").len()), (1, 1), "nobody was asked again");
}

async fn a_new_credential_heals(stage: &Stage<'_>) {
    stage.everywhere("a1", "disabled", is_disabled).await;
    stage.everywhere("a2", "disabled", is_disabled).await;
    for proxy in [1, 3] {
        assert_eq!(stage.chat(proxy).served().await.said(), "from a3", "proxy-{proxy}");
    }
    assert_eq!((stage.calls("a1").len(), stage.calls("a2").len()), (1, 1), "nobody was asked again");
    stage.now("a1", well());
    let edit = json!({"credential": "sk-another"});
    stage.bench.admin().edit_channel(&stage.script.channel("a1"), edit).await;
    stage.everywhere("a1", "enabled", |state| !is_disabled(state)).await;
    for proxy in 1..=3 {
        assert_eq!(stage.chat(proxy).streamed().served().await.said(), "from a1", "proxy-{proxy}");
    }
}

/// C08, C09: what one source lacks, another may have.
fn capabilities() -> Vec<Script> {
    let entitlement = "Model m-up is not available for this API key";
    let reasoning = "The reasoning_content in the thinking mode must be passed back to the API.";
    let thinks = || invalid(400, "invalid_request_error", reasoning);
    let conversation = json!([{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"},
        {"role": "user", "content": "q2"}]);
    vec![
        script("c08")
            .source("a1", 10, always(invalid(400, "model_not_available", entitlement)))
            .source("a2", 5, well())
            .ask(
                ask(1)
                    .served_by("a2")
                    .walked(&[("a1", "model_unavailable"), ("a2", "success")])
                    .health("a1", "ok", "fail")
                    .usage(10, 5)
                    .fallback("model_unavailable"),
            )
            .never_opens("a1")
            .logs("source_disabled", "a1", 0),
        script("c08-unrelated")
            .source("a1", 10, always(invalid(400, "bad_param", "top_p must be a number")))
            .source("a2", 5, well())
            .ask(ask(2).refused(400, "bad_param").walked(&[("a1", "invalid_request")])),
        // Told as a 403, and streamed: neither the key nor the account is at fault.
        script("c08-forbidden-stream")
            .source("a1", 10, always(told(403, "x", "x", "Model m-up does not exist or you do not have access to it")))
            .source("a2", 5, well())
            .ask(
                ask(3)
                    .streamed()
                    .served_by("a2")
                    .walked(&[("a1", "model_unavailable"), ("a2", "success")])
                    .health("a1", "ok", "fail"),
            )
            .logs("source_disabled", "a1", 0),
        script("c09")
            .source("a", 10, always(slow_down()))
            .source("b", 9, always(thinks()))
            .source("c", 8, well())
            .ask(
                ask(1)
                    .with("messages", conversation)
                    .served_by("c")
                    .walked(&[("a", "rate_limited"), ("b", "capability_mismatch"), ("c", "success")])
                    .health("a", "none", "none")
                    .health("b", "ok", "none")
                    .usage(10, 5)
                    .fallback("rate_limited"),
            )
            .never_opens("a")
            .untouched("b"),
        // The mismatch comes first and in another form; where all others are away, it is what the caller hears of.
        script("c09-first-stream")
            .source("a", 10, always(told(422, "extra_forbidden", "extra_forbidden", "extra field: reasoning_content")))
            .source("b", 9, turns([ok(), ill(500), ill(500)]))
            .ask(
                ask(2)
                    .streamed()
                    .served_by("b")
                    .walked(&[("a", "capability_mismatch"), ("b", "success")])
                    .fallback("capability_mismatch"),
            )
            .ask(ask(3).refused(422, "extra_forbidden").health("a", "ok", "none").health("b", "fail", "fail"))
            .untouched("a"),
    ]
}

/// C12, C14: a 200 is no success before its body is one.
fn in_200() -> Vec<Script> {
    let limit =
        |code: Value| Reply::json(200, json!({"error": {"message": "worker local total request limit", "code": code}}));
    let html = "<!doctype html><title>Just a moment</title>";
    let with_b = |name, reply| script(name).source("a", 10, always(reply)).source("b", 5, well());
    let by_b = |kind| ask(1).served_by("b").usage(10, 5).walked(&[("a", kind), ("b", "success")]);
    vec![
        with_b("c12", limit(json!(502))).ask(by_b("edge_error").health("a", "fail", "none").fallback("upstream_5xx")),
        with_b("c12-limit", limit(json!(429)))
            .ask(by_b("rate_limited").health("a", "none", "none").fallback("rate_limited"))
            .never_opens("a")
            .logs("block_set", "a", 1),
        with_b("c12-key", Reply::json(200, error("x", "invalid_api_key", "who are you")))
            .ask(by_b("auth_invalid").health("a", "none", "none").hides("who are you"))
            .logs("source_disabled", "a", 1),
        with_b("c12-bare", Reply::json(200, json!({"error": {"message": "no"}}))).ask(by_b("server_error")),
        // A stream was asked for, and one JSON object comes; an unknown shape; nothing at all.
        with_b("c12-streamed", limit(json!(502)))
            .ask(ask(2).counted().served_by("b").walked(&[("a", "edge_error"), ("b", "success")])),
        with_b("c12-null", Reply::json(200, Value::Null)).ask(by_b("malformed_response").health("a", "fail", "none")),
        with_b("c12-empty-stream", page(200, "application/json", ""))
            .ask(ask(3).streamed().served_by("b").walked(&[("a", "malformed_response"), ("b", "success")])),
        with_b("c14", page(200, "text/html", html))
            .ask(by_b("malformed_response").health("a", "fail", "none").hides("Just a moment"))
            .then(|stage| Box::pin(a_page_passes_no_test(stage))),
        with_b("c14-streamed", page(200, "text/html", html))
            .ask(ask(2).streamed().served_by("b").walked(&[("a", "malformed_response"), ("b", "success")])),
        // An edge's refusal isn't the key's.
        with_b("c14-edge", Reply::empty(403)).ask(by_b("egress_blocked")).logs("source_disabled", "a", 0).logs(
            "block_set",
            "a",
            1,
        ),
        script("c14-models")
            .source("a", 10, super::replies::well())
            .then(|stage| Box::pin(lists_of_no_models_are_refused(stage))),
    ]
}

async fn a_page_passes_no_test(stage: &Stage<'_>) {
    let path = format!("/channels/{}/test", stage.script.channel("a"));
    let told = stage.bench.admin().post(&path, json!({})).await;
    assert_eq!(told.get("ok"), Some(&json!(false)), "{told:#}");
    assert_eq!(told.get("kind"), Some(&json!("malformed_response")), "{told:#}");
}

async fn lists_of_no_models_are_refused(stage: &Stage<'_>) {
    let path = format!("/channels/{}/fetch-models", stage.script.channel("a"));
    for reply in [page(200, "text/html", "<html>login</html>"), Reply::json(200, json!({"data": {}}))] {
        let source = waybill_testkit::upstream::Source { models_reply: Some(reply), ..well() };
        stage.now("a", source);
        let told = stage.bench.admin().ask(reqwest::Method::POST, &path, Some(&json!({}))).await;
        assert_eq!((told.status, told.json()["code"].as_str()), (502, Some("upstream_failed")), "{}", told.text);
    }
}

/// C50: what is refused or limited isn't broken.
fn busy() -> Vec<Script> {
    let filtered = || invalid(400, "content_filter", "filtered by policy");
    let hurried = || ask(1).streamed().header("x-stainless-retry-count", "1");
    vec![
        // A limit without a hint is waited for once at the only source: the third call of four.
        script("c50")
            .source("a", 10, turns([filtered(), slow_down(), slow_down(), ok()]))
            .ask(ask(1).refused(400, "content_filter").walked(&[("a", "policy_refusal")]).state("refused"))
            .ask(ask(2).refused(429, "rate_limited").walked(&[("a", "rate_limited"); 2]).retry_after(1..=60))
            .ask(ask(3).walked(&[("a", "success")]))
            .never_opens("a")
            .logs("source_disabled", "a", 0),
        // A run of limits at all replicas, streamed, never empties a pool of one.
        script("c50-run")
            .source("a", 10, turns(std::iter::repeat_with(slow_down).take(6).chain([ok()])))
            .selector(json!({"source_breaker": {"min_outcomes": 2, "consecutive_fails": 2}}))
            .ask(
                hurried()
                    .times(6)
                    .refused(429, "rate_limited")
                    .walked(&[("a", "rate_limited")])
                    .health("a", "none", "none"),
            )
            .ask(hurried().walked(&[("a", "success")]))
            .never_opens("a"),
    ]
}

/// C70: a refusal isn't shopped around.
fn refusals() -> Vec<Script> {
    let refused = || invalid(400, REFUSED, "refused");
    let filtered = Reply::chat(Chat { finish_reason: Some("content_filter".to_owned()), ..Chat::saying("I can't") });
    let words = || told(500, "x", "sensitive_words_detected", "sensitive words detected");
    let frames = [role(), fault(&error("invalid_request_error", "content_filter", "refused"))];
    let with_b = |name, reply| script(name).source("a", 10, always(reply)).source("b", 5, well());
    let alone = || ask(1).refused(400, REFUSED).walked(&[("a", "policy_refusal")]).state("refused");
    vec![
        with_b("c70", refused()).ask(alone().health("a", "none", "none")).untouched("a"),
        with_b("c70-streamed", refused()).ask(alone().streamed()).untouched("a"),
        with_b("c70-answered", filtered.clone()).ask(ask(2).answered("I can't").walked(&[("a", "success")])),
        with_b("c70-answered-stream", filtered).ask(ask(3).counted().answered("I can't").walked(&[("a", "success")])),
        with_b("c70-first-event", Reply::frames(frames)).ask(alone().streamed().refused(400, "content_filter")),
        // A reseller's own word filter says nothing of the model.
        with_b("c70-reseller", words())
            .ask(
                ask(3)
                    .served_by("b")
                    .walked(&[("a", "relay_filter"), ("b", "success")])
                    .health("a", "none", "none")
                    .fallback("policy_rejection"),
            )
            .untouched("a"),
        // The refusal comes at the second source, after a fault of the first: the third isn't asked.
        script("c70-second")
            .source("a", 10, always(ill(503)))
            .source("b", 7, always(refused()))
            .source("c", 5, turns([Reply::frames([role(), stop(), done()])]))
            .ask(
                ask(2).refused(400, REFUSED).walked(&[("a", "server_error"), ("b", "policy_refusal")]).state("refused"),
            ),
    ]
}
