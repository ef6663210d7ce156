use serde_json::json;

use crate::desk::Desk;

fn layer(status: &str) -> serde_json::Value {
    json!({"rules": [{"id": "house/full", "when": {"status": [status]}, "kind": "overloaded"}]})
}

#[tokio::test]
async fn a_layer_is_published_looked_at_and_reverted_by_one_edit() {
    let desk = Desk::new().await;
    let shown = desk.get("/rules").await.expect(200);
    assert!(shown["shipped"]["rules"].as_u64().unwrap() > 100, "{shown}");
    assert_eq!(shown["rules"], json!([]));
    let shipped = desk.get("/rules/shipped").await.expect(200);
    assert!(shipped["levels"].as_array().is_some_and(|levels| !levels.is_empty()));

    let set = |version: u64, status: &str| json!({"scope": "provider:acme", "expected_version": version, "live": layer(status)});
    let first = desk.put("/rules", set(0, "430")).await.expect(200);
    assert_eq!((&first["rules"]["version"], &first["rules"]["live"]["rules"][0]["v"]), (&json!(1), &json!(1)));
    desk.put("/rules", set(0, "431")).await.refused(409, "version_conflict");
    desk.put("/rules", set(1, "431")).await.expect(200);
    let held = desk.get("/rules?scope=provider:acme").await.expect(200);
    assert_eq!(held["live"]["rules"][0]["when"]["status"], json!(["431"]));

    let back = json!({"scope": "provider:acme", "expected_version": 2});
    let reverted = desk.post("/rules/revert", back).await.expect(200);
    assert_eq!(reverted["rules"]["live"]["rules"][0]["when"]["status"], json!(["430"]));
    assert_eq!(reverted["rules"]["version"], 3);
    let gone = json!({"scope": "provider:acme", "expected_version": 3, "to": 9});
    desk.post("/rules/revert", gone).await.refused(404, "not_found");
    let none = json!({"scope": "provider:acme", "expected_version": 3, "to": 0});
    assert_eq!(desk.post("/rules/revert", none).await.expect(200)["rules"]["live"], json!({}));
}

#[tokio::test]
async fn a_candidate_looks_on_until_it_is_promoted_or_dropped() {
    let desk = Desk::new().await;
    let body = json!({"expected_version": 0, "candidate": layer("430")});
    let looking = desk.put("/rules", body).await.expect(200);
    assert_eq!(looking["rules"]["scope"], "global");
    assert_eq!(looking["rules"]["live"], json!({}));
    let promoted = desk.post("/rules/promote", json!({"expected_version": 1})).await.expect(200);
    assert_eq!(promoted["rules"]["candidate"], json!(null));
    assert_eq!(promoted["rules"]["live"]["rules"][0]["id"], "house/full");
    desk.post("/rules/promote", json!({"expected_version": 2})).await.refused(422, "invalid_field");
    desk.put("/rules", json!({"expected_version": 2, "candidate": {"preset": "conservative"}})).await.expect(200);
    let dropped = desk.put("/rules", json!({"expected_version": 3, "candidate": null})).await.expect(200);
    assert_eq!(dropped["rules"]["candidate"], json!(null));
    let report = desk.get("/rules/shadow").await.expect(200);
    assert_eq!((&report["failures"], &report["differences"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn what_cannot_be_used_changes_nothing_and_is_named() {
    let desk = Desk::new().await;
    let before = desk.last_edit().await;
    let refused = async |body: serde_json::Value, word: &str| {
        let told = desk.put("/rules", body).await;
        let told = told.refused(422, "invalid_field");
        assert!(told.to_string().contains(word), "{word}: {told:#}");
    };
    let live = |live: serde_json::Value| json!({"expected_version": 0, "live": live});
    refused(live(json!({"rules": [{"id": "x", "kind": "nothing"}]})), "rule x").await;
    refused(live(json!({"without": ["no/such"]})), "no/such").await;
    refused(json!({"expected_version": 0}), "either").await;
    refused(json!({"scope": "key:1", "expected_version": 0, "live": {}}), "scope").await;
    desk.put("/rules", json!({"scope": "channel:nope", "expected_version": 0, "live": {}}))
        .await
        .refused(404, "not_found");
    assert_eq!(desk.last_edit().await, before);
}

#[tokio::test]
async fn a_layer_that_breaks_a_bundled_case_changes_nothing_and_says_which() {
    let desk = Desk::new().await;
    let before = desk.last_edit().await;
    let careless = json!({"rules": [{"id": "x", "when": {"status": ["401"]}, "kind": "rate_limited"}]});
    let told = desk.put("/rules", json!({"expected_version": 0, "live": careless})).await.refused(422, "invalid_field");
    assert!(told["detail"].as_str().unwrap().contains("openai-401-invalid-key"), "{told:#}");
    assert_eq!(desk.last_edit().await, before);
    // It may look on, but not be promoted.
    desk.put("/rules", json!({"expected_version": 0, "candidate": careless})).await.expect(200);
    desk.post("/rules/promote", json!({"expected_version": 1})).await.refused(422, "invalid_field");
}

#[tokio::test]
async fn a_pasted_failure_is_judged_by_what_is_in_force_and_by_what_might_be() {
    let desk = Desk::new().await;
    let given =
        json!({"where": "status", "status": 430, "headers": {"retry-after": "7"}, "body": {"error": {"code": "full"}}});
    let wanted = json!({"given": given, "scope": "provider:acme", "live": layer("430")});
    let told = desk.post("/rules/test", wanted).await.expect(200);
    assert_eq!((&told["verdict"]["kind"], &told["tried"]["kind"]), (&json!("invalid_request"), &json!("overloaded")));
    assert_eq!(told["tried"]["block_seconds"], 7, "{told:#}");
    assert_eq!(told["tried"]["rule"], "provider:acme/house/full@v1");
    desk.post("/rules/test", json!({"given": {"status": "x"}})).await.refused(422, "invalid_field");
}
