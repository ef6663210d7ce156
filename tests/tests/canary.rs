//! What must not get out doesn't: keys, prompts and answers are in no log file, no table, no stream, no metric and no
//! answer of the admin API, whatever became of the requests.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::unwrap_used, reason = "a suite fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, Row};
use waybill_testkit::upstream::{Body, Chat as Script, Reply, Source, Terms};
use waybill_testkit::{Fleet, RawClient, Stream, until, wait_until};
use waybill_tests::Bench;

const PROMPT: &str = "canary-prompt-5d1c7a";
const PROSE: &str = "please tell nobody that my sister moved to Lisbon";
const ANSWER: &str = "canary-answer-9b3e20";
const UPSTREAM_KEY: &str = "sk-canaryUpstreamKey4f8a61c2d9e7b350";
/// What every token of the scripted OAuth server has in it.
const ACCESS_TOKEN: &str = "accessCanary4f8a61c2d9e7b350";
const REFRESH_TOKEN: &str = "refreshCanary77aa0e12c4d8f9b1";
const SECOND_KEY: &str = "sk-canarySecondKey77aa0e12c4d8f9b1";

/// Where a secret was found.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn look(&mut self, place: &str, text: &[u8], secrets: &[(&str, &str)]) {
        for (name, secret) in secrets {
            if let Some(at) = text.windows(secret.len()).position(|window| window == secret.as_bytes()) {
                let around = text.get(at.saturating_sub(120)..(at + 120).min(text.len())).unwrap_or_default();
                self.0.push(format!("{name} in {place}: …{}…", String::from_utf8_lossy(around)));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_prompts_and_answers_stay_where_they_belong() {
    let bench = Bench::of(2).await;
    let echo = json!({"error": {
        "message": format!("Incorrect API key provided: {UPSTREAM_KEY}. You said: {PROMPT}. Authorization: Bearer {UPSTREAM_KEY}"),
        "type": "server_error", "param": PROMPT, "code": "server_error",
    }});
    let text =
        |text: String| Reply { body: Body::Text { content_type: "text/plain".to_owned(), text }, ..Reply::default() };
    let prose = json!({"error": {"message": format!("Your input \"{PROMPT}, {PROSE}\" can't be read"), "type": "x"}});
    let event = |data: serde_json::Value| format!("data: {data}");
    let late = Reply {
        body: Body::Frames(vec![
            event(
                json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hel"}}]}),
            ),
            event(prose.clone()),
        ]),
        ..Reply::default()
    };
    let sources = [
        ("serves", Source::default().saying(ANSWER)),
        ("echoes", Source::default().then(Reply::json(500, echo.clone()))),
        ("echoes-400", Source::default().then(Reply::json(400, echo.clone()))),
        ("echoes-401", Source::default().then(Reply::json(401, echo))),
        ("babbles", Source::default().then(text(format!("{PROMPT} {UPSTREAM_KEY} {ANSWER}")))),
        (
            "breaks",
            Source::default().then(Reply::chat(Script { no_finish: true, no_done: true, ..Script::saying(ANSWER) })),
        ),
        ("echoes-late", Source::default().then(late)),
        ("quotes-500", Source::default().then(Reply::json(500, prose.clone()))),
        ("quotes-400", Source::default().then(Reply::json(400, prose))),
        ("wire", Source::default().then(Reply::wire(format!("{PROMPT} {UPSTREAM_KEY}\r\n")))),
    ];
    for (name, source) in sources {
        bench.upstream.set_source(name, source);
        bench.admin().channel(bench.spec(name).models([name]).with("credential", UPSTREAM_KEY)).await;
    }
    bench.admin().edit_channel("serves", json!({"credential": SECOND_KEY, "reason": "rotation"})).await;
    accounts(&bench).await;
    bench.configured().await;
    let key = bench.key.clone();
    let (_, secret_of_key) = key.split_at(key.len() / 2);
    let mut told = Findings::default();
    let upstream_keys = [("upstream key", UPSTREAM_KEY), ("second key", SECOND_KEY)];
    for (name, _) in [
        ("serves", ()),
        ("echoes", ()),
        ("echoes-400", ()),
        ("echoes-401", ()),
        ("babbles", ()),
        ("breaks", ()),
        ("echoes-late", ()),
        ("quotes-500", ()),
        ("quotes-400", ()),
        ("wire", ()),
    ] {
        for streamed in [false, true] {
            let chat = bench.chat(1 + usize::from(streamed), name).with("stream", streamed);
            let answer =
                chat.with("messages", json!([{"role": "user", "content": format!("{PROMPT}, {PROSE}")}])).send().await;
            // Clients never see our keys, whatever the upstream says.
            told.look(&format!("the answer of {name}"), &answer.body, &upstream_keys);
            bench.admin().history(answer.request()).await;
        }
        let reply = bench.admin().post(&format!("/channels/{name}/test"), json!({})).await.to_string();
        told.look(&format!("the test of {name}"), reply.as_bytes(), &upstream_keys);
    }
    // Broken requests, wrong keys, and one who leaves.
    let wrong = format!("{key}x");
    for (token, body) in
        [(&wrong, json!({"model": "serves", "messages": [PROMPT]}).to_string()), (&key, format!("{{{PROMPT}"))]
    {
        let mut client = RawClient::connect(bench.fleet.proxy(1)).await;
        client.chat(token, body.as_bytes()).await;
        client.reply().await;
    }
    assert!(
        bench
            .upstream
            .calls_of("serves")
            .iter()
            .any(|call| call.header("authorization") == Some(&format!("Bearer {SECOND_KEY}")))
    );

    let secrets = [
        ("prompt", PROMPT),
        ("prompt in prose", PROSE),
        ("answer", ANSWER),
        ("upstream key", UPSTREAM_KEY),
        ("second key", SECOND_KEY),
        ("access token", ACCESS_TOKEN),
        ("refresh token", REFRESH_TOKEN),
        ("client key", key.as_str()),
        ("a half of the client key", secret_of_key),
        ("admin token", bench.admin().token()),
    ];
    streams(&bench.fleet, &secrets, &mut told).await;
    admin_answers(&bench, &secrets, &mut told).await;
    tables(&bench.fleet, &secrets, &mut told).await;
    for name in ["proxy-1", "proxy-2", "projector-1", "upkeep-1", "admin-1"] {
        told.look(&format!("/metrics of {name}"), bench.fleet.metrics(name).await.as_bytes(), &secrets);
        told.look(&format!("/state of {name}"), bench.fleet.state(name).await.to_string().as_bytes(), &secrets);
    }
    for folder in ["log", "data/nats", "data/postgres", "etc"] {
        files(&bench.fleet.dir().join(folder), folder, &secrets, &mut told);
    }
    // Whatever the outboxes still hold, too.
    files(&bench.fleet.dir().join("data/upkeep-1"), "what upkeep keeps", &secrets, &mut told);
    for number in 1..=2 {
        files(&bench.fleet.dir().join(format!("data/proxy-{number}")), "an outbox", &secrets, &mut told);
    }
    assert!(told.0.is_empty(), "{}", told.0.join("\n"));
    bench.fleet.stop().await;
}

/// An account whose tokens are refreshed and used, and one whose OAuth server refuses them and quotes what it was sent.
async fn accounts(bench: &Bench) {
    let issuer = bench.upstream.issuer();
    for (name, model) in [("refreshed", "serves-plan"), ("gone", "gone-plan")] {
        let tokens = issuer.login(name, Terms::default());
        if name == "gone" {
            issuer.revoke(name);
        }
        bench.upstream.set_source(name, Source::default().with_login(name).saying(ANSWER));
        let tokens = json!({
            "access_token": tokens.access, "refresh_token": tokens.refresh, "expires_in": 1,
            "token_endpoint": bench.upstream.token_endpoint(),
        });
        let body = json!({
            "name": name, "base_url": bench.upstream.base_url(name), "credential": tokens, "models": [model],
            "groups": ["default"], "allow_private": true,
        });
        bench.admin().post("/accounts", body).await;
    }
    for kind in ["credential_refreshed", "credential_refresh_failed", "source_disabled"] {
        wait_until(Duration::from_secs(20), format_args!("{kind} is told"), async || {
            let all = bench.fleet.events().await;
            until(all.iter().any(|event| event["type"] == kind), || "not yet")
        })
        .await;
    }
    bench.chat(1, "serves-plan").served().await;
}

async fn streams(fleet: &Fleet, secrets: &[(&str, &str)], told: &mut Findings) {
    for stream in Stream::ALL {
        let messages = fleet.messages(stream).await;
        assert!(!messages.is_empty(), "{stream:?}");
        for message in messages {
            told.look(
                &format!("{} at {} ({})", stream.name(), message.sequence, message.subject),
                &message.payload,
                secrets,
            );
        }
    }
}

async fn admin_answers(bench: &Bench, secrets: &[(&str, &str)], told: &mut Findings) {
    let admin = bench.admin();
    let paths = [
        "/channels",
        "/accounts",
        "/sources/account:1/story",
        "/sources/account:2/story",
        "/groups",
        "/keys",
        "/admin-tokens",
        "/policy",
        "/config-history?limit=500",
        "/requests?limit=500",
        "/sources",
        "/status",
    ];
    for path in paths {
        told.look(path, admin.get(path).await.to_string().as_bytes(), secrets);
    }
    let requests = admin.requests("limit=500").await;
    assert!(requests.len() >= 14, "{}", requests.len());
    for request in requests {
        let id = request["request_id"].as_str().unwrap();
        told.look(
            &format!("the history of {id}"),
            admin.get(&format!("/requests/{id}")).await.to_string().as_bytes(),
            secrets,
        );
    }
}

/// Every column of every table, as text.
async fn tables(fleet: &Fleet, secrets: &[(&str, &str)], told: &mut Findings) {
    let mut connection = sqlx::PgConnection::connect(&fleet.postgres_url()).await.expect("a connection");
    let names = sqlx::query("select tablename from pg_tables where schemaname = 'public' order by 1")
        .fetch_all(&mut connection)
        .await
        .expect("tables");
    assert!(names.len() > 5, "{}", names.len());
    for name in names {
        let name: String = name.get(0);
        let statement = format!("select t::text from {name} t");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_all(&mut connection).await.expect("rows");
        for row in rows {
            let text: String = row.get(0);
            told.look(&format!("table {name}"), text.as_bytes(), secrets);
        }
    }
    connection.close().await.expect("a good end");
}

/// Every file below a folder.
fn files(folder: &Path, place: &str, secrets: &[(&str, &str)], told: &mut Findings) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, place, secrets, told);
        } else if let Ok(bytes) = fs::read(&path) {
            told.look(&format!("{place}: {}", path.display()), &bytes, secrets);
        }
    }
}
