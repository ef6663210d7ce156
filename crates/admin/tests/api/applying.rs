use serde_json::{Value, json};

use crate::desk::Desk;

fn manifest() -> Value {
    json!({
        "groups": [{"name": "default"}],
        "channels": [
            {"name": "a", "base_url": "https://a.example", "credential": "sk-canary-a", "models": ["m"],
             "groups": ["default"]},
            {"name": "b", "base_url": "https://b.example", "credential": "sk-canary-b", "models": ["m"],
             "groups": ["default"], "priority": -1},
        ],
        "keys": [{"name": "ci", "group": "default"}],
    })
}

#[tokio::test]
async fn a_manifest_is_one_batch_and_the_second_time_nothing() {
    let desk = Desk::new().await;
    let before = desk.last_edit().await;
    let rehearsed = desk.post("/apply?dry_run=true", manifest()).await.expect(200);
    assert_eq!(rehearsed["steps"].as_array().unwrap().len(), 4);
    assert_eq!(desk.last_edit().await, before);
    assert!(!desk.everything().await.contains("\"ct\""), "a dry run seals nothing");

    let applied = desk.post("/apply", manifest()).await.expect(200);
    assert_eq!(applied["position"], before + 4);
    assert!(applied["tokens"]["ci"].as_str().unwrap().starts_with("wb-key-"));
    assert_eq!(desk.get("/channels/b").await.expect(200)["credential"]["revision"], 2);

    let again = desk.post("/apply", manifest()).await.expect(200);
    assert_eq!((&again["changed"], &again["steps"], &again["tokens"]), (&json!(false), &json!([]), &json!({})));
    assert!(!desk.everything().await.contains("canary"));
}

#[tokio::test]
async fn a_diff_shows_fields_and_fingerprints() {
    let desk = Desk::new().await;
    desk.post("/apply", manifest()).await.expect(200);
    let mut changed = manifest();
    changed["channels"][0]["weight"] = json!(5);
    changed["channels"][1]["credential"] = json!("sk-canary-c");
    let steps = desk.post("/apply?dry_run=true", changed).await.expect(200)["steps"].clone();
    assert_eq!(steps[0]["fields"], json!([{"field": "weight", "old": 1, "new": 5}]));
    assert_eq!(steps[1]["fields"][0]["field"], "credential");
    assert!(!steps.to_string().contains("canary"));
}

#[tokio::test]
async fn a_faulty_manifest_changes_nothing() {
    let desk = Desk::new().await;
    let before = desk.last_edit().await;
    let check = async |spoil: fn(&mut Value), pointer: &str| {
        let mut wanted = manifest();
        spoil(&mut wanted);
        let problem = desk.post("/apply", wanted).await.refused(422, "invalid_field");
        assert_eq!(problem["pointer"], pointer);
    };
    check(|m| m["channels"][1]["groups"] = json!(["none"]), "/channels/1/groups/0").await;
    check(|m| m["channels"][1]["credential_env"] = json!("KEY"), "/channels/1/credential_env").await;
    check(|m| m["chanels"] = json!([]), "/chanels").await;
    assert_eq!(desk.last_edit().await, before);
    desk.post("/apply?dryrun=true", manifest()).await.refused(400, "bad_request");
}

#[tokio::test]
async fn a_login_is_sealed_once_and_an_equal_one_changes_nothing() {
    let desk = Desk::new().await;
    let pool = |access: &str, expires_in: u64| {
        json!({
            "groups": [{"name": "default"}],
            "accounts": [{
                "name": "plan", "platform": "claude", "base_url": "https://a.example", "groups": ["default"], "models": ["m"],
                "credential": {"access_token": access, "refresh_token": "canary-refresh", "expires_in": expires_in},
                "session_window": {"usd": 2.5, "seconds": 3600},
            }, {"name": "alone", "base_url": "https://a.example", "credential": "canary-alone"}],
            "prices": [{"model": "m", "input_usd": 3, "output_usd": 0.25}],
        })
    };
    let rehearsed = desk.post("/apply?dry_run=true", pool("canary-one", 60)).await.expect(200);
    assert_eq!(rehearsed["steps"].as_array().unwrap().len(), 4);
    assert!(!desk.everything().await.contains("\"ct\""), "a dry run seals nothing");
    desk.post("/apply", pool("canary-one", 60)).await.expect(200);
    let shown = desk.get("/accounts/plan").await.expect(200);
    assert_eq!(shown["session_window"], json!({"usd": 2.5, "seconds": 3600}));
    assert_eq!(desk.get("/prices").await.expect(200)["prices"][0]["output_usd"], 0.25);

    // Later the same file speaks of another end; the login is the same.
    let again = desk.post("/apply", pool("canary-one", 30)).await.expect(200);
    assert_eq!((&again["changed"], &again["steps"]), (&json!(false), &json!([])));
    let other = desk.post("/apply", pool("canary-two", 60)).await.expect(200);
    let field = &other["steps"][0]["fields"][0];
    assert_eq!((&other["steps"][0]["name"], &field["field"]), (&json!("plan"), &json!("credential")), "{other:#}");
    assert_ne!(desk.get("/accounts/plan").await.expect(200)["credential"], shown["credential"]);
    assert!(!desk.everything().await.contains("canary"));
}

#[tokio::test]
async fn a_faulty_account_in_a_manifest_is_named() {
    let desk = Desk::new().await;
    let check = async |entry: Value, pointer: &str| {
        let whole = json!({"accounts": [{"name": "fine", "base_url": "https://a.example"}, entry]});
        let problem = desk.post("/apply", whole).await.refused(422, "invalid_field");
        assert_eq!(problem["pointer"], pointer, "{problem}");
    };
    let with = |field: &str, value: Value| {
        let mut entry = json!({"name": "a", "base_url": "https://a.example"});
        entry[field] = value;
        entry
    };
    check(with("credential", json!({"refresh_token": "r"})), "/accounts/1/credential").await;
    check(with("credential_env", json!("TOKENS")), "/accounts/1/credential_env").await;
    check(with("base_url", json!("http://127.0.0.1:1")), "/accounts/1/base_url").await;
    check(with("session_window", json!({"usd": "much"})), "/accounts/1/session_window/usd").await;
    check(with("platform", json!("clod")), "/accounts/1/platform").await;
    assert!(!desk.everything().await.contains("\"ct\""), "nothing was sealed");
}
