use std::time::Duration;

use serde_json::{Value, json};
use waybill_scripted_upstream::{Reply, Script, ScriptedUpstream, Source};

use crate::desk::Desk;

async fn channel(desk: &Desk, base_url: &str, credential: Option<&str>) -> Value {
    let body = json!({
        "name": "a", "base_url": base_url, "credential": credential, "models": [{"name": "m", "upstream": "demo-small"}],
        "allow_private": true,
    });
    desk.post("/channels", body).await.expect(201)
}

/// What a try tells, as soon as the credential has come back from the log.
async fn try_until_opened(desk: &Desk) -> Value {
    let trying = async {
        loop {
            let answer = desk.post("/channels/a/test", json!({})).await;
            if answer.code() != "credential_unavailable" {
                return answer.expect(200);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), trying).await.unwrap()
}

#[tokio::test]
async fn a_channel_is_tried_and_judged_by_the_same_rules() {
    let script = Script::new().source("good", Source::default().with_key("sk-canary"));
    let upstream = ScriptedUpstream::start(script).await.unwrap();
    let desk = Desk::new().await;
    channel(&desk, &upstream.base_url("good"), Some("sk-canary")).await;
    let tried = try_until_opened(&desk).await;
    assert_eq!((&tried["ok"], &tried["kind"], &tried["status"]), (&json!(true), &json!("success"), &json!(200)));
    assert_eq!(tried["upstream_model"], "demo-small");
    assert_eq!(upstream.calls_of("good")[0].json()["max_tokens"], 1);
    let models = desk.post("/channels/a/fetch-models", json!({})).await.expect(200);
    assert_eq!(models["models"], json!(["demo-small", "demo-large"]));
    assert_eq!(models["not_offered_yet"], json!(["demo-large"]));
    desk.post("/channels/a/test?model=none", json!({})).await.refused(422, "invalid_field");

    let wrong = json!({"expected_version": 1, "credential": "sk-canary-wrong"});
    desk.patch("/channels/a", wrong).await.expect(200);
    let tried = try_until_opened(&desk).await;
    assert_eq!((&tried["ok"], &tried["kind"], &tried["status"]), (&json!(false), &json!("auth_invalid"), &json!(401)));
    assert!(!tried.to_string().contains("canary"), "{tried:#}");
    let failed = desk.post("/channels/a/fetch-models", json!({})).await.refused(502, "upstream_failed");
    assert!(!failed.to_string().contains("canary"), "{failed:#}");
    upstream.stop().await;
}

#[tokio::test]
async fn a_channel_that_can_not_be_asked_says_why() {
    let upstream = ScriptedUpstream::start(Script::new().always("bad", Reply::empty(500))).await.unwrap();
    let desk = Desk::new().await;
    channel(&desk, &upstream.base_url("bad"), None).await;
    desk.post("/channels/a/test", json!({})).await.refused(409, "no_credential");
    upstream.stop().await;
}
