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
