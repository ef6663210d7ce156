//! Reports on the edges: addresses, fields that must pass, headers and secrets that mustn't.

use reqwest::Method;
use serde_json::{Value, json};
use waybill_testkit::upstream::{After, Call, Reply, Then};
use waybill_testkit::{ChannelSpec, Chat, source_text};

use super::Script;
use super::replies::{always, invalid, told, turns, well};
use super::script::{MODEL, ask, script};
use super::stage::{Stage, brief};

/// Looks like a key, so that it must be masked, and is none.
const UPSTREAM_KEY: &str = concat!("sk-", "CANARYUP1234567890abcdef");

pub(super) fn scripts() -> Vec<Script> {
    vec![
        script("c68").source("a", 10, well()).then(|stage| Box::pin(every_base_leads_there(stage))),
        script("c68-pages").source("a", 10, well()).then(|stage| Box::pin(a_wrong_base_is_told(stage))),
        script("c75").source("a", 10, always(extended())).then(|stage| Box::pin(bodies_pass_untouched(stage, false))),
        script("c75-streamed").source("a", 10, well()).then(|stage| Box::pin(bodies_pass_untouched(stage, true))),
        script("c77").source("b", 5, well()).then(|stage| Box::pin(credentials_stay_where_they_belong(stage))),
        script("c77-taken-away")
            .source("a", 10, well())
            .source("b", 5, well())
            .ask(ask(1).streamed())
            .then(|stage| Box::pin(a_credential_that_is_taken_away(stage))),
        script("c79").source("a", 10, well()).then(|stage| Box::pin(nobody_leads_us_elsewhere(stage))),
        script("c79-connect").source("b", 5, well()).then(|stage| Box::pin(names_are_checked_when_dialled(stage))),
        secrets("c80", false),
        secrets("c80-streamed", true),
        broken(),
    ]
}

fn path(call: &Call) -> &str {
    &call.path
}

/// C68: a base works with or without a slash or a version; what can't be one is refused when it is saved.
async fn every_base_leads_there(stage: &Stage<'_>) {
    let (admin, upstream) = (stage.bench.admin(), &stage.bench.upstream);
    let host = format!("http://127.0.0.1:{}", upstream.port());
    let cases = [
        ("c68-bare", "", "/v1/chat/completions"),
        ("c68-slash", "/", "/v1/chat/completions"),
        ("c68-v1", "/v1", "/v1/chat/completions"),
        ("c68-v1-slash", "/v1/", "/v1/chat/completions"),
        ("c68-v4", "/api/v4", "/api/v4/chat/completions"),
        ("c68-beta", "/v1beta/openai/", "/v1beta/openai/chat/completions"),
        ("c68-query", "/v1/?api-version=1&x=y", "/v1/chat/completions?api-version=1&x=y"),
        ("c68-pasted", "/x/v1/chat/completions", "/x/v1/chat/completions"),
    ];
    for (name, base, _) in cases {
        let spec = ChannelSpec::new(name, &format!("{host}/{name}{base}"));
        admin.channel(spec.models([stage.script.model(name).as_str()])).await;
    }
    stage.bench.fleet.everywhere(admin.config_position().await).await;
    for (n, (name, _, expected)) in cases.into_iter().enumerate() {
        serves(&stage.chat_for(n % 3 + 1, name)).await;
        let calls = upstream.calls_of(name);
        assert_eq!(calls.iter().map(path).collect::<Vec<_>>(), [format!("/{name}{expected}")], "{name}");
    }
    for base in ["ftp://host/v1", "https://", "http://host/v1?key=secret", "http://host/v1#x", "host/v1"] {
        let detail = refused_at_save(stage, base, "base_url").await;
        assert!(!detail.contains("secret"), "{detail}");
    }
}

/// A request whose channel was made a moment ago: its credential may be on its way.
async fn serves(chat: &Chat) {
    waybill_testkit::wait_until(super::stage::KNOWN, "it is served", async || {
        let answer = chat.send().await;
        waybill_testkit::until(answer.status == 200, || format!("{} {}", answer.status, answer.text()))
    })
    .await;
}

async fn refused_at_save(stage: &Stage<'_>, base: &str, field: &str) -> String {
    let spec =
        json!({"name": "refused", "base_url": base, "models": ["m"], "groups": ["default"], "credential": "sk-x"});
    let told = stage.bench.admin().ask(Method::POST, "/channels", Some(&spec)).await;
    let problem = told.json();
    assert_eq!((told.status, problem["code"].as_str()), (422, Some("invalid_field")), "{base}: {}", told.text);
    assert!(problem["pointer"].as_str().is_some_and(|pointer| pointer.contains(field)), "{base}: {problem:#}");
    problem["detail"].as_str().unwrap_or_default().to_owned()
}

/// A base that leads to a page: the source's fault, told as that, and no model's.
async fn a_wrong_base_is_told(stage: &Stage<'_>) {
    stage.now("a", always(Reply::html(404)));
    let answer = stage.chat(2).send().await;
    assert_eq!((answer.status, answer.code().as_deref()), (502, Some("upstream_error")), "{}", answer.text());
    let story = stage.story(&answer).await;
    assert_eq!(story.kinds(), ["channel_misconfigured"], "{}", brief(&story));
    assert_eq!(
        super::expected::health(stage, &story, "a"),
        [("fail".to_owned(), "none".to_owned())],
        "{}",
        brief(&story)
    );
    let tested = stage.bench.admin().post(&format!("/channels/{}/test", stage.script.channel("a")), json!({})).await;
    assert_eq!(tested.get("ok"), Some(&json!(false)), "{tested:#}");
    assert!(!tested.to_string().contains("sk-of-"), "{tested:#}");
}

fn extended() -> Reply {
    let message = json!({"role": "assistant", "content": "from a"});
    Reply::json(
        200,
        json!({
            "id": "x", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "vendor_meta": {"k": 1},
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }),
    )
}

/// C75: what isn't known passes, and nothing that passes is rewritten.
async fn bodies_pass_untouched(stage: &Stage<'_>, streamed: bool) {
    let model = stage.script.model(MODEL);
    let body = format!(
        "{{\"zeta\":1,\"model\":\"{model}\", \"enable_thinking\":false,\"service_tier\":\"priority\",\
         \"x_vendor\":{{\"deep\":{{\"list\":[1, 2]}}}},\"seed\":12345678901234567890,\"temperature\":1.10,\
         \"stream\":{streamed},\"big\":1.5E+2,\"messages\":[{{\"role\":\"user\",\"content\":\"hi \\u00e9\"}}],\"alpha\":null}}"
    );
    let mut client = waybill_testkit::RawClient::connect(stage.bench.fleet.proxy(2)).await;
    client.chat(&stage.bench.key, body.as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(streamed || reply.text().contains("\"vendor_meta\":{\"k\":1}"), "{}", reply.text());
    let calls = stage.calls("a");
    let sent: Vec<String> = calls.iter().map(|call| String::from_utf8_lossy(&call.body).into_owned()).collect();
    assert_eq!(sent, [body]);
}

/// C77: a source without a credential isn't asked, and the client's goes nowhere.
async fn credentials_stay_where_they_belong(stage: &Stage<'_>) {
    let admin = stage.bench.admin();
    let name = stage.script.channel("a");
    stage.bench.upstream.set_source(&name, well());
    let model = stage.script.model(MODEL);
    let spec = json!({
        "name": name, "base_url": stage.bench.upstream.base_url(&name), "models": [model], "groups": ["default"],
        "priority": 10, "allow_private": true,
    });
    admin.post("/channels", spec).await;
    stage.bench.fleet.everywhere(admin.config_position().await).await;
    for (proxy, streamed) in [(1, false), (2, true), (3, false)] {
        let mut chat = stage.chat(proxy).with("stream", streamed).header("x-api-key", &stage.bench.key);
        for (header, value) in
            [("cookie", "sid=1"), ("x-forwarded-for", "10.9.8.7"), ("openai-organization", "org-mine")]
        {
            chat = chat.header(header, value);
        }
        let answer = chat.served().await;
        assert_eq!(answer.said(), "from b", "proxy-{proxy}");
        let story = stage.story(&answer).await;
        assert!(story.to_string().contains("no_credential"), "{}", brief(&story));
    }
    assert!(stage.calls("a").is_empty(), "{:?}", stage.calls("a"));
    let own = format!("Bearer sk-of-{}", stage.script.channel("b"));
    for call in stage.calls("b") {
        assert_eq!(call.header("authorization"), Some(own.as_str()));
        for (name, value) in &call.headers {
            let foreign = ["sid=1", "10.9.8.7", "org-mine", stage.bench.key.as_str()];
            assert!(!foreign.iter().any(|secret| value.contains(secret)), "{name}: {value}");
        }
    }
    // A source without a key is shown as such, not as a healthy one.
    let shown = admin.get("/sources").await;
    let shown = shown["sources"].as_array().cloned().unwrap_or_default();
    let shown = shown.into_iter().find(|source| source["name"] == name.as_str()).unwrap_or_default();
    assert_eq!((&shown["has_credential"], &shown["available"]), (&json!(false), &json!(false)), "{shown:#}");
    // Nobody waits for a credential that will never come.
    admin.delete(&format!("/channels/{name}")).await;
}

async fn a_credential_that_is_taken_away(stage: &Stage<'_>) {
    let (admin, name) = (stage.bench.admin(), stage.script.channel("a"));
    admin.edit_channel(&name, json!({"credential": null})).await;
    stage.bench.fleet.everywhere(admin.config_position().await).await;
    for proxy in 1..=3 {
        assert_eq!(stage.chat(proxy).served().await.said(), "from b", "proxy-{proxy}");
    }
    assert_eq!(stage.calls("a").len(), 1);
    admin.edit_channel(&name, json!({"credential": "sk-again"})).await;
    stage.bench.configured().await;
    assert_eq!(stage.chat(2).served().await.said(), "from a");
    let last = stage.calls("a").last().and_then(|call| call.header("authorization").map(str::to_owned));
    assert_eq!(last.as_deref(), Some("Bearer sk-again"));
}

/// C79: neither a request nor a careless edit leads the gateway to an address that isn't a source's.
async fn nobody_leads_us_elsewhere(stage: &Stage<'_>) {
    let image = json!([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": format!("http://127.0.0.1:{}/c79-image/x.png", stage.bench.upstream.port())}}]}]);
    let elsewhere = format!("http://127.0.0.1:{}/c79-elsewhere", stage.bench.upstream.port());
    let chat = stage.chat(1).with("api_base", elsewhere.as_str()).with("base_url", "http://169.254.169.254/");
    assert_eq!(chat.with("messages", image).served().await.said(), "from a");
    assert_eq!(stage.calls("a").len(), 1);
    for nobody in ["c79-image", "c79-elsewhere"] {
        assert!(stage.bench.upstream.calls_of(nobody).is_empty(), "{nobody}");
    }
    for (base, named) in [
        ("http://169.254.169.254", "link-local"),
        ("http://[::ffff:127.0.0.1]", "allow_private"),
        ("http://2130706433/", "allow_private"),
        ("http://0x7f.1", "allow_private"),
        ("http://10.0.0.1/v1", "allow_private"),
        ("http://[fe80::1]/", "link-local"),
        ("http://100.100.100.200/", "metadata"),
        ("file:///x", "http"),
        ("http://user:pw@host/", "credential"),
    ] {
        let detail = refused_at_save(stage, base, "base_url").await;
        assert!(detail.contains(named), "{base}: {detail}");
        assert!(!detail.contains("pw@"), "{base}: {detail}");
    }
    // Nor by an edit of what exists, nor by a file with many, nor with the permission for private addresses.
    let name = stage.script.channel("a");
    let version = stage.bench.admin().get(&format!("/channels/{name}")).await["version"].clone();
    let edit = json!({"expected_version": version, "base_url": "http://169.254.169.254/"});
    let told = stage.bench.admin().ask(Method::PATCH, &format!("/channels/{name}"), Some(&edit)).await;
    assert_eq!(told.status, 422, "{}", told.text);
    let file = json!({"channels": [{"name": name, "base_url": "http://169.254.169.254/", "allow_private": true}]});
    let told = stage.bench.admin().ask(Method::POST, "/apply", Some(&file)).await;
    assert_eq!(told.status, 422, "{}", told.text);
    assert_eq!(stage.chat(3).served().await.said(), "from a", "a refused edit changes nothing");
}

/// A name says nothing of where it leads: the address is checked when it is dialled, and the next source is asked.
async fn names_are_checked_when_dialled(stage: &Stage<'_>) {
    let admin = stage.bench.admin();
    let name = stage.script.channel("a");
    let base = format!("http://localhost:{}/{name}", stage.bench.upstream.port());
    let model = stage.script.model(MODEL);
    let spec = json!({
        "name": name, "base_url": base, "models": [model], "groups": ["default"], "priority": 10, "credential": "sk-x",
    });
    let made = admin.post("/channels", spec).await;
    stage.bench.configured().await;
    let answer = stage.chat(2).streamed().served().await;
    assert_eq!(answer.said(), "from b");
    let story = stage.story(&answer).await;
    assert_eq!(story.kinds(), ["channel_misconfigured", "success"], "{}", brief(&story));
    assert_eq!(story.asked(), [name.clone(), stage.script.channel("b")], "{}", brief(&story));
    assert!(story.to_string().contains("allow_private"), "it says what would permit it: {}", brief(&story));
    assert!(stage.calls("a").is_empty(), "{:?}", stage.calls("a"));
    assert!(!source_text(&made["channel"]["source"]).is_empty(), "{made:#}");
}

/// C80: what is secret is in no answer, no row, no event and no log, wherever an upstream repeats it.
fn secrets(name: &'static str, streamed: bool) -> Script {
    let echo = invalid(400, "x", &format!("malformed request for url http://u/v1?key={UPSTREAM_KEY}"));
    let hint = told(401, "x", "x", &format!("Incorrect API key provided: {UPSTREAM_KEY}"));
    let asked = |n: usize| if streamed { ask(n).streamed() } else { ask(n) };
    script(name)
        .source("a", 10, turns([echo, hint]))
        .ask(asked(1).refused(400, "x").says("malformed request").hides("CANARYUP"))
        .ask(asked(3).refused(502, "upstream_error").walked(&[("a", "auth_invalid")]).hides("CANARYUP"))
        .then(|stage| Box::pin(nothing_of_it_is_told(stage)))
}

/// A broken connection's own words name no credential either.
fn broken() -> Script {
    script("c80-reset")
        .source("a", 10, always(Reply::default().fault(After::Request, Then::Reset)))
        .ask(ask(2).refused(502, "upstream_error").hides("sk-of"))
        .then(|stage| Box::pin(nothing_of_it_is_told(stage)))
}

async fn nothing_of_it_is_told(stage: &Stage<'_>) {
    let (admin, name) = (stage.bench.admin(), stage.script.channel("a"));
    let path = format!("/requests?model={}", stage.script.model(MODEL).replace('/', "%2F"));
    let requests = waybill_testkit::wait_until(super::stage::SOON, "the requests can be read", async || {
        let told = admin.ask(Method::GET, &path, None).await;
        let rows = told.json()["requests"].as_array().cloned().unwrap_or_default();
        if rows.is_empty() { Err(told.text) } else { Ok(rows) }
    })
    .await;
    let mut told =
        vec![admin.get(&format!("/channels/{name}")).await.to_string(), admin.get("/sources").await.to_string()];
    for request in requests {
        let id = request["request_id"].as_str().unwrap_or_default().to_owned();
        told.push(admin.get(&format!("/requests/{id}")).await.to_string());
    }
    let events = stage.bench.fleet.events().await;
    told.extend(events.iter().map(Value::to_string));
    for number in 1..=3 {
        told.push(stage.bench.fleet.metrics(&format!("proxy-{number}")).await);
        told.push(stage.bench.fleet.state(&format!("proxy-{number}")).await.to_string());
        let log = stage.bench.fleet.dir().join(format!("log/proxy-{number}.log"));
        told.push(std::fs::read_to_string(log).unwrap_or_default());
    }
    for text in told {
        for secret in ["CANARYUP", stage.bench.key.as_str(), &format!("sk-of-{name}")] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
}
