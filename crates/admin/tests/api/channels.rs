use http::Method;
use serde_json::json;

use crate::desk::Desk;

async fn desk() -> Desk {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "default"})).await.expect(201);
    desk
}

#[tokio::test]
async fn a_channel_goes_through_its_life() {
    let desk = desk().await;
    let made = desk
        .post(
            "/channels",
            json!({
                "name": "main", "base_url": "https://up.example", "credential": "sk-canary-1",
                "models": ["m", {"name": "fast", "upstream": "up-fast"}], "groups": ["default"],
                "limits": {"max_concurrent": 8}, "reason": "first",
            }),
        )
        .await
        .expect(201);
    assert_eq!((&made["readable"], &made["changed"]), (&json!(true), &json!(true)));
    let channel = &made["channel"];
    assert_eq!(channel["id"], 1);
    assert_eq!(channel["group_names"], json!(["default"]));
    assert_eq!(channel["credential"]["revision"], 1);
    assert_eq!(channel["models"][1], json!({"name": "fast", "upstream": "up-fast"}));

    let edited = desk.patch("/channels/main", json!({"expected_version": 1, "weight": 7})).await.expect(200);
    assert_eq!((&edited["channel"]["weight"], &edited["channel"]["version"]), (&json!(7), &json!(2)));
    let same = desk.patch("/channels/1", json!({"expected_version": 2, "weight": 7})).await.expect(200);
    assert_eq!((&same["changed"], &same["channel"]["version"]), (&json!(false), &json!(2)));

    let refused = desk.patch("/channels/1", json!({"expected_version": 1, "weight": 9})).await;
    let refused = refused.refused(409, "version_conflict");
    assert_eq!((&refused["expected_version"], &refused["actual_version"]), (&json!(1), &json!(2)));

    desk.post("/channels/1/disable", json!({})).await.expect(200);
    assert_eq!(desk.get("/channels/1").await.expect(200)["enabled"], false);
    desk.post("/channels/1/enable?expected_version=1", json!({})).await.refused(409, "version_conflict");
    desk.post("/channels/1/enable?expected_version=3", json!({})).await.expect(200);
    desk.delete("/channels/1").await.expect(200);
    desk.get("/channels/1").await.refused(404, "not_found");
    assert_eq!(desk.get("/channels").await.expect(200), json!({"channels": []}));
}

#[tokio::test]
async fn if_match_is_the_expected_version() {
    let desk = desk().await;
    desk.post("/channels", json!({"name": "a", "base_url": "https://a.example"})).await.expect(201);
    let edit = |if_match: &str| {
        let mut request = desk.request(Method::PATCH, "/channels/a", Some(&json!({"priority": 3})));
        request.headers_mut().insert("if-match", if_match.parse().unwrap());
        request
    };
    desk.ask(edit("\"4\"")).await.refused(409, "version_conflict");
    desk.ask(edit("next")).await.refused(400, "bad_request");
    desk.ask(edit("\"1\"")).await.expect(200);
    desk.patch("/channels/a", json!({"priority": 4})).await.refused(422, "invalid_field");
}

#[tokio::test]
async fn faults_name_their_field() {
    let desk = desk().await;
    let check = async |body: serde_json::Value, pointer: &str| {
        let problem = desk.post("/channels", body).await.refused(422, "invalid_field");
        assert_eq!(problem["pointer"], pointer, "{problem:#}");
    };
    check(json!({"name": "a", "base_url": "ftp://a"}), "/base_url").await;
    check(json!({"name": "a", "base_url": "https://a", "weight": -1}), "/weight").await;
    check(json!({"name": "a", "base_url": "https://a", "wieght": 1}), "/wieght").await;
    check(json!({"name": "a", "base_url": "https://a", "groups": ["none"]}), "/groups/0").await;
    check(json!({"name": "a", "base_url": "https://a", "credential": " "}), "/credential").await;
    check(json!({"name": "a", "base_url": "https://a", "models": [""]}), "/models/0/name").await;
    assert_eq!(desk.last_edit().await, 2, "the token and the group, nothing else");
}

#[tokio::test]
async fn addresses_that_would_never_be_dialled_are_refused_when_written_down() {
    let desk = desk().await;
    let refused = async |body: serde_json::Value, says: &str| {
        let problem = desk.post("/channels", body).await.refused(422, "invalid_field");
        assert_eq!(problem["pointer"], "/base_url", "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem:#}");
    };
    for base_url in ["http://127.0.0.1:9/v1", "http://2130706433/", "http://[::ffff:10.0.0.1]/"] {
        refused(json!({"name": "a", "base_url": base_url}), "allow_private").await;
    }
    let metadata =
        json!({"name": "a", "base_url": "http://169.254.169.254", "allow_private": true, "credential": "sk-x"});
    refused(metadata, "link-local").await;
    assert!(!desk.everything().await.contains("\"ct\""), "nothing is sealed for what is refused");

    // Names are let through: where they lead is seen when they are dialled.
    desk.post("/channels", json!({"name": "named", "base_url": "http://localhost:9"})).await.expect(201);
    let private = json!({"name": "a", "base_url": "http://10.0.0.1", "allow_private": true});
    desk.post("/channels", private).await.expect(201);
    let narrower = json!({"expected_version": 1, "allow_private": false});
    desk.patch("/channels/a", narrower).await.refused(422, "invalid_field");
    let file = json!({"channels": [{"name": "named"}, {"name": "a", "base_url": "http://[fe80::1]/"}]});
    let problem = desk.post("/apply?dry_run=true", file).await.refused(422, "invalid_field");
    assert_eq!(problem["pointer"], "/channels/1/base_url", "{problem:#}");
    desk.patch("/channels/a", json!({"expected_version": 1, "weight": 3})).await.expect(200);
}

#[tokio::test]
async fn a_credential_is_sealed_shown_by_its_fingerprint_and_never_told() {
    let desk = desk().await;
    let body = json!({"name": "a", "base_url": "https://a.example", "credential": "sk-canary-1"});
    let made = desk.post("/channels", body).await.expect(201);
    let first = made["channel"]["credential"].clone();
    let same = json!({"expected_version": 1, "credential": "sk-canary-1"});
    assert_eq!(desk.patch("/channels/a", same).await.expect(200)["changed"], false);
    let other = json!({"expected_version": 1, "credential": "sk-canary-2"});
    let second = desk.patch("/channels/a", other).await.expect(200)["channel"]["credential"].clone();
    assert_ne!(first["fingerprint"], second["fingerprint"]);
    assert!(second["revision"].as_u64() > first["revision"].as_u64());
    let gone = desk.patch("/channels/a", json!({"expected_version": 2, "credential": null})).await.expect(200);
    assert_eq!(gone["channel"].get("credential"), None);
    // A refused edit leaves no sealed credential behind.
    let refused = json!({"expected_version": 1, "credential": "sk-canary-3"});
    desk.patch("/channels/a", refused).await.refused(409, "version_conflict");
    let log = desk.everything().await;
    assert_eq!(log.matches("\"ct\"").count(), 2);
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn only_admin_tokens_get_in() {
    let desk = desk().await;
    let ask = async |authorization: Option<&str>| {
        let mut request = desk.request(Method::GET, "/channels", None);
        request.headers_mut().remove("authorization");
        if let Some(value) = authorization {
            request.headers_mut().insert("authorization", value.parse().unwrap());
        }
        let answer = desk.ask(request).await;
        assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"waybill\"");
        answer.refused(401, "unauthorized")
    };
    ask(None).await;
    ask(Some("Basic abc")).await;
    ask(Some("Bearer wb-admin-wrong")).await;
    let mut request = desk.request(Method::GET, "/nothing", None);
    request.headers_mut().insert("x-request-id", "mine".parse().unwrap());
    let answer = desk.ask(request).await;
    assert_eq!(answer.headers["x-request-id"], "mine");
    assert_eq!(answer.refused(404, "not_found")["request_id"], "mine");
    desk.ask(desk.request(Method::PUT, "/channels", None)).await.refused(405, "method_not_allowed");
    let large = "x".repeat(5 * 1024 * 1024);
    desk.post("/groups", json!({ "name": large })).await.refused(413, "body_too_large");
}

#[tokio::test]
async fn groups_in_use_stay_and_policies_are_set() {
    let desk = desk().await;
    desk.post("/channels", json!({"name": "a", "base_url": "https://a", "groups": [1]})).await.expect(201);
    let problem = desk.delete("/groups/default").await.refused(409, "in_use");
    assert_eq!(problem["by"], json!(["channel 1 (a)"]));
    desk.patch("/groups/default", json!({"expected_version": 1, "name": "main"})).await.expect(200);
    desk.post("/groups", json!({"name": "main"})).await.refused(409, "name_taken");
    desk.post("/groups/main/disable", json!({})).await.expect(200);

    let policy = desk.get("/policy").await.expect(200);
    assert_eq!(policy["global"]["version"], 0);
    let selector = json!({"source_breaker": {"open_ms": 1_000}});
    let set = json!({"expected_version": 0, "selector": selector});
    desk.put("/policy", set.clone()).await.expect(200);
    desk.put("/policy", set).await.refused(409, "version_conflict");
    let set = json!({"scope": "channel:a", "expected_version": 0, "selector": {"late_after_ms": 5_000}});
    desk.put("/policy", set).await.expect(200);
    let policy = desk.get("/policy").await.expect(200);
    assert_eq!(policy["global"]["selector"], selector);
    assert_eq!(policy["global"]["in_force"]["selector"]["source_breaker"]["open_ms"], 1_000);
    assert_eq!(
        policy["policies"][1],
        json!({"scope": "channel:1", "version": 1, "selector": {"late_after_ms": 5_000}, "request": {}})
    );
    let one = desk.get("/policy?scope=channel:1").await.expect(200);
    let in_force = &one["in_force"]["selector"];
    assert_eq!((&in_force["source_breaker"]["open_ms"], &in_force["late_after_ms"]), (&json!(1_000), &json!(5_000)));
    let set = json!({"scope": "group:main", "expected_version": 0, "request": {"strategy": "least_busy"}});
    desk.put("/policy", set).await.expect(200);
    let set = json!({"scope": "group:main", "expected_version": 1, "request": {"strategi": "least_busy"}});
    desk.put("/policy", set).await.refused(422, "invalid_field");
    desk.get("/policy?scope=group:none").await.refused(404, "not_found");
}

#[tokio::test]
async fn routes_are_edited_and_circles_refused() {
    let desk = desk().await;
    let targets = json!([{"model": "deep", "capabilities": {"tools": true}}, "fast"]);
    let new = json!({"name": "smart", "targets": targets, "groups": ["default"]});
    let made = desk.post("/routes", new.clone()).await.expect(201);
    assert_eq!(made["route"]["group_names"], json!(["default"]));
    assert_eq!(
        made["route"]["targets"],
        json!([{"model": "deep", "capabilities": {"tools": true}}, {"model": "fast"}])
    );
    desk.post("/routes", new).await.refused(409, "name_taken");
    desk.post("/routes", json!({"name": "best", "targets": ["smart"]})).await.expect(201);
    let circle = json!({"expected_version": 1, "targets": ["best"]});
    let problem = desk.patch("/routes/smart", circle).await.refused(422, "invalid_field");
    assert!(problem["detail"].as_str().unwrap().contains("a circle"), "{problem}");
    desk.delete("/routes/smart").await.refused(409, "in_use");
    desk.patch("/routes/2", json!({"expected_version": 1, "targets": ["fast"]})).await.expect(200);
    desk.post("/routes/smart/disable", json!({})).await.expect(200);
    desk.delete("/routes/smart").await.expect(200);
    assert_eq!(desk.get("/routes").await.expect(200)["routes"].as_array().unwrap().len(), 1);
}
