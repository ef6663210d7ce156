//! The edges of the data plane: what is refused and how it is told, ids, headers that cross and those that don't, base
//! URLs as people write them, the list of models.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used, reason = "a suite fails by panicking")]

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{Answer, RawClient, RawReply};
use waybill_tests::Bench;

/// The limit of a proxy's body unless it is configured otherwise.
const BODY_LIMIT: usize = 32 * 1024 * 1024;

async fn post(bench: &Bench, token: Option<&str>, body: &str) -> Answer {
    let request =
        bench.fleet.http().post(format!("{}/v1/chat/completions", bench.fleet.proxy(1))).body(body.to_owned());
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    answered(request).await
}

async fn answered(request: reqwest::RequestBuilder) -> Answer {
    let answer = request.send().await.expect("an answer");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Answer { status, headers, body: answer.bytes().await.expect("a body") }
}

/// An error in the shape that OpenAI's clients read, with both ids.
fn check_error(answer: &Answer, status: u16, code: &str, param: Option<&str>) {
    let json = answer.json();
    let error = &json["error"];
    let seen = (answer.status, error["code"].as_str(), error["param"].as_str());
    assert_eq!(seen, (status, Some(code), param), "{}", answer.text());
    assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{json}");
    assert!(error["type"].is_string(), "{json}");
    let fields: BTreeSet<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(["message", "type", "param", "code"]), "{json}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{:?}", answer.headers);
    assert_eq!(Some(answer.request()), answer.header("request-id"), "{:?}", answer.headers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_told_in_the_clients_own_shape() {
    let bench = Bench::of(1).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    let key = Some(bench.key.as_str());
    let messages = r#""messages":[{"role":"user","content":"x"}]"#;
    let cases: Vec<(String, u16, &str, Option<&str>)> = vec![
        ("not json".to_owned(), 400, "invalid_request", None),
        (String::new(), 400, "invalid_request", None),
        ("[]".to_owned(), 400, "invalid_request", None),
        (format!("{{\"model\":\"m\",{messages}"), 400, "invalid_request", None),
        (format!("{{{messages}}}"), 400, "invalid_request", Some("model")),
        (format!("{{\"model\":7,{messages}}}"), 400, "invalid_request", Some("model")),
        (format!("{{\"model\":\"m\",{messages},\"model\":\"n\"}}"), 400, "invalid_request", Some("model")),
        (format!("{{\"model\":\"m\",{messages},\"\\u006dodel\":\"n\"}}"), 400, "invalid_request", Some("model")),
        (r#"{"model":"m"}"#.to_owned(), 400, "invalid_request", Some("messages")),
        (r#"{"model":"m","messages":"x"}"#.to_owned(), 400, "invalid_request", Some("messages")),
        (format!("{{\"model\":\"m\",{messages},\"stream\":\"yes\"}}"), 400, "invalid_request", Some("stream")),
        (format!("{{\"model\":\"other\",{messages}}}"), 404, "model_not_found", Some("model")),
    ];
    for (body, status, code, param) in &cases {
        check_error(&post(&bench, key, body).await, *status, code, *param);
    }
    let good = format!("{{\"model\":\"m\",{messages}}}");
    for token in [None, Some("wb-nobody"), Some(&bench.key[..bench.key.len() - 1])] {
        check_error(&post(&bench, token, &good).await, 401, "invalid_api_key", None);
    }
    let admin = Some(bench.admin().token());
    check_error(&post(&bench, admin, &good).await, 401, "invalid_api_key", None);
    assert!(bench.upstream.calls().is_empty(), "nothing of that went upstream: {:?}", bench.upstream.calls());
    assert_eq!(post(&bench, key, &good).await.status, 200);

    let http = bench.fleet.http();
    let base = bench.fleet.proxy(1);
    for (method, path, status, code) in [
        (Method::GET, "/v1/nothing", 404, "not_found"),
        (Method::POST, "/nothing/at/all", 404, "not_found"),
        (Method::GET, "/v1/chat/completions", 405, "method_not_allowed"),
        (Method::DELETE, "/v1/models", 405, "method_not_allowed"),
    ] {
        let request = http.request(method, format!("{base}{path}")).bearer_auth(&bench.key);
        check_error(&answered(request).await, status, code, None);
    }
    // Some clients look whether anybody is there at all.
    assert_eq!(answered(http.head(base)).await.status, 200);
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_above_the_limit_is_answered_and_not_reset() {
    let bench = Bench::of(1).await;
    let body = vec![b' '; BODY_LIMIT + 1];
    let bearer = format!("authorization: Bearer {}", bench.key);
    let check = |reply: &RawReply| {
        let json: Value = serde_json::from_slice(&reply.body()).unwrap_or_default();
        assert_eq!(
            (reply.status, json["error"]["code"].as_str()),
            (413, Some("payload_too_large")),
            "{}",
            reply.text()
        );
        assert!(json["error"]["message"].as_str().unwrap().contains(&BODY_LIMIT.to_string()), "{json}");
        assert!(reply.complete, "{reply:?}");
    };
    // The whole of it is sent before anything is read, as simple clients do.
    let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
    client.request("POST", "/v1/chat/completions", &[&bearer], &body).await;
    check(&client.reply().await);
    // And the same in chunks, with a length that nobody announced.
    let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
    let head =
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{bearer}\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).await.expect("a head that is taken");
    for chunk in body.chunks(1 << 20) {
        let sent = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        client.send(&sent).await.expect("a chunk that is taken");
    }
    client.send(b"0\r\n\r\n").await.expect("an end that is taken");
    check(&client.reply().await);
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_go_in_and_out() {
    let bench = Bench::of(1).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    let mut seen = BTreeSet::new();
    for (streamed, client_id) in [(false, "client-1"), (true, "client-2")] {
        let chat = bench.chat(1, "m").with("stream", streamed).header("x-client-request-id", client_id);
        let answer = chat.served().await;
        assert_eq!(Some(answer.request()), answer.header("request-id"), "{:?}", answer.headers);
        assert_eq!(answer.header("x-client-request-id"), Some(client_id), "{:?}", answer.headers);
        assert!(seen.insert(answer.request().to_owned()), "each request has an id of its own");
        let story = bench.story_of_client_id(client_id).await;
        assert_eq!(story["request"]["request_id"], answer.request(), "{:#}", *story);
        assert_eq!(
            story["attempts"][0]["upstream_request_id"].as_str().map(|id| id.starts_with("req-")),
            Some(true),
            "{:#}",
            *story
        );
    }
    // What a client must not be able to write into the log isn't taken.
    let answer = bench.chat(1, "m").header("x-client-request-id", &"x".repeat(129)).served().await;
    assert_eq!(answer.header("x-client-request-id"), None, "{:?}", answer.headers);
    // Errors and lists carry ids as well.
    let models =
        answered(bench.fleet.http().get(format!("{}/v1/models", bench.fleet.proxy(1))).bearer_auth(&bench.key));
    let models = models.await;
    assert_eq!(Some(models.request()), models.header("request-id"), "{:?}", models.headers);
    // One connection serves one request after the other, refused ones and their bodies included.
    let body = br#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
    let large = vec![b' '; 512 * 1024];
    let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
    for refused in [&body[..], &large[..]] {
        for _ in 0..3 {
            client.chat(&bench.key, body).await;
            let reply = client.reply().await;
            assert_eq!((reply.status, reply.complete), (200, true), "{}", reply.text());
            client.chat("wb-nobody", refused).await;
            assert_eq!(client.reply().await.status, 401);
            client.request("POST", "/v1/nothing", &[], refused).await;
            assert_eq!(client.reply().await.status, 404);
            client.request("POST", "/v1/models", &[], refused).await;
            assert_eq!(client.reply().await.status, 405);
        }
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_named_headers_cross() {
    let bench = Bench::of(1).await;
    let reply = Reply::default()
        .header("set-cookie", "session=upstream")
        .header("server", "nginx/of-the-upstream")
        .header("x-internal", "secret")
        .header("access-control-allow-origin", "*")
        .header("x-ratelimit-remaining-requests", "59")
        .header("keep-alive", "timeout=5");
    bench.channel("a", &["m"], 0, Source::default().then(reply)).await;
    bench.configured().await;
    let bearer = format!("authorization: Bearer {}", bench.key);
    for streamed in [false, true] {
        bench.upstream.forget_calls();
        let body =
            json!({"model": "m", "stream": streamed, "messages": [{"role": "user", "content": "x"}]}).to_string();
        let headers = [
            bearer.as_str(),
            "content-type: application/json",
            "cookie: session=client",
            "proxy-authorization: Basic Y2xpZW50",
            "x-api-key: another-key-of-the-client",
            "x-forwarded-for: 10.1.2.3",
            "forwarded: for=10.1.2.3",
            "x-real-ip: 10.1.2.3",
            "connection: keep-alive, x-hop",
            "x-hop: 1",
            "te: trailers",
            "accept-encoding: gzip, br",
            "openai-organization: org-of-the-client",
            "idempotency-key: idem-1",
            "x-stainless-lang: python",
        ];
        let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
        client.request("POST", "/v1/chat/completions", &headers, body.as_bytes()).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 200, "{}", reply.text());

        let call = bench.upstream.calls_of("a").pop().expect("a call");
        let names: BTreeSet<&str> = call.headers.iter().map(|(name, _)| name.as_str()).collect();
        let may: BTreeSet<&str> = BTreeSet::from([
            "host",
            "authorization",
            "content-type",
            "content-length",
            "accept",
            "idempotency-key",
            "user-agent",
            "accept-encoding",
        ]);
        assert!(names.is_subset(&may), "{:?}", call.headers);
        assert_eq!(call.header("authorization"), Some("Bearer sk-of-a"), "{:?}", call.headers);
        assert_eq!(call.header("accept-encoding"), Some("identity"), "{:?}", call.headers);
        assert_eq!(call.header("idempotency-key"), Some("idem-1"), "{:?}", call.headers);

        for absent in ["set-cookie", "server", "x-internal", "access-control-allow-origin", "keep-alive"] {
            assert_eq!(reply.header(absent), None, "{absent} of {:?}", reply.headers);
        }
        assert_eq!(reply.header("x-ratelimit-remaining-requests"), Some("59"), "{:?}", reply.headers);
        assert_eq!(reply.header("openai-processing-ms"), Some("1"), "{:?}", reply.headers);
        assert_ne!(reply.header("x-request-id").map(|id| id.starts_with("req-")), Some(true), "{:?}", reply.headers);
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn base_urls_work_as_people_write_them_and_private_ones_only_where_allowed() {
    let bench = Bench::of(1).await;
    let with_v1 = bench.upstream.base_url("a");
    let without = with_v1.trim_end_matches("/v1").to_owned();
    let urls = [with_v1.clone(), format!("{with_v1}/"), without.clone(), format!("{without}/")];
    for (index, url) in urls.iter().enumerate() {
        let name = format!("spelt-{index}");
        let spec = waybill_testkit::ChannelSpec::new(&name, url).models([name.as_str()]);
        bench.admin().channel(spec).await;
    }
    // An address in the URL is refused when it is saved; where a name leads is seen when it is dialled.
    let named = with_v1.replace("127.0.0.1", "localhost");
    let spec = bench.spec("a").with("name", "private").with("base_url", named).models(["private"]);
    bench.admin().channel(spec.with("allow_private", false)).await;
    bench.configured().await;
    for (index, url) in urls.iter().enumerate() {
        bench.chat(1, &format!("spelt-{index}")).served().await;
        let call = bench.upstream.calls_of("a").pop().expect("a call");
        assert_eq!(call.path, "/a/v1/chat/completions", "for {url}");
    }
    let before = bench.upstream.calls().len();
    let answer = bench.chat(1, "private").send().await;
    assert_eq!((answer.status, answer.code().as_deref()), (502, Some("upstream_error")), "{}", answer.text());
    let story = bench.admin().history(answer.request()).await;
    assert_eq!(story.kinds(), ["channel_misconfigured"], "{:#}", *story);
    assert!(
        story["attempts"].to_string().contains("allow_private"),
        "the history names what would allow it: {:#}",
        *story
    );
    let tested = bench.admin().post("/channels/private/test", json!({})).await;
    assert_eq!(tested["ok"], false, "{tested}");
    assert!(tested["transport"].as_str().is_some_and(|text| text.contains("allow_private")), "{tested}");
    assert_eq!(bench.upstream.calls().len(), before, "nobody was asked");
    let tested = bench.admin().post("/channels/spelt-3/test", json!({})).await;
    assert_eq!((&tested["ok"], &tested["kind"]), (&json!(true), &json!("success")), "{tested}");
    let fetched = bench.admin().post("/channels/spelt-3/fetch-models", json!({})).await;
    assert_eq!(fetched["models"], json!(["demo-small", "demo-large"]), "{fetched}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_are_listed_for_the_key_that_asks() {
    let bench = Bench::of(1).await;
    bench.channel("a", &["zeta", "org/model-1"], 0, Source::default()).await;
    bench.channel("b", &["zeta", "alpha"], 0, Source::default()).await;
    let narrow = bench.admin().key_with(json!({"name": "narrow", "group": "default", "models": ["alpha"]})).await;
    bench.configured().await;
    let get = async |path: &str, key: &str| {
        answered(bench.fleet.http().get(format!("{}{path}", bench.fleet.proxy(1))).bearer_auth(key)).await
    };
    let list = get("/v1/models", &bench.key).await.json();
    assert_eq!(list["object"], "list", "{list}");
    let ids = |list: &Value| -> Vec<String> {
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&list), ["alpha", "org/model-1", "zeta"], "{list}");
    for model in list["data"].as_array().unwrap() {
        assert_eq!(
            (&model["object"], model["created"].is_i64() || model["created"].is_u64()),
            (&json!("model"), true),
            "{model}"
        );
        assert!(model["owned_by"].is_string(), "{model}");
    }
    assert_eq!(ids(&get("/v1/models", &narrow).await.json()), ["alpha"]);
    for name in ["zeta", "org/model-1", "org%2Fmodel-1"] {
        let model = get(&format!("/v1/models/{name}"), &bench.key).await;
        assert_eq!(
            (model.status, model.json()["id"].clone()),
            (200, json!(name.replace("%2F", "/"))),
            "{}",
            model.text()
        );
    }
    check_error(&get("/v1/models/none", &bench.key).await, 404, "model_not_found", Some("model"));
    check_error(&get("/v1/models/zeta", &narrow).await, 404, "model_not_found", Some("model"));
    check_error(&get("/v1/models", "wb-nobody").await, 401, "invalid_api_key", None);
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_fault_is_told_as_the_upstream_told_it_and_ours_is_not_the_callers() {
    let bench = Bench::of(1).await;
    let error = |code: &str, param: Option<&str>| json!({"error": {"message": "That won't do.", "type": "invalid_request_error", "param": param, "code": code}});
    for (name, status, code, param) in [
        ("bad-value", 400, "invalid_value", Some("temperature")),
        ("bad-shape", 422, "invalid_value", Some("messages")),
        ("unauthorised", 401, "invalid_api_key", None),
        ("forbidden", 403, "invalid_api_key", None),
    ] {
        bench.channel(name, &[name], 0, Source::default().then(Reply::json(status, error(code, param)))).await;
    }
    bench.configured().await;
    for (model, status, param) in [("bad-value", 400, Some("temperature")), ("bad-shape", 422, Some("messages"))] {
        let answer = bench.chat(1, model).send().await;
        check_error(&answer, status, "invalid_value", param);
        assert!(answer.text().contains("That won't do."), "{}", answer.text());
        assert_eq!(bench.upstream.calls_of(model).len(), 1, "asked once");
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(story["outcomes"][0]["source_health"], "ok", "the source can be reached: {:#}", *story);
    }
    // The key that is wrong is ours, and the caller's is fine.
    for model in ["unauthorised", "forbidden"] {
        let answer = bench.chat(1, model).send().await;
        check_error(&answer, 502, "upstream_error", None);
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{:?}", answer.headers);
        let story = bench.admin().history(answer.request()).await;
        assert_eq!(story.kinds(), ["auth_invalid"], "{:#}", *story);
    }
    bench.fleet.stop().await;
}
