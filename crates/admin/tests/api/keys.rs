use http::Method;
use serde_json::json;
use waybill_admin::{BootstrapError, bootstrap};
use waybill_secret::Peppers;

use crate::desk::Desk;

#[tokio::test]
async fn a_key_is_shown_once_and_never_again() {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "default"})).await.expect(201);
    let issued = desk.post("/keys", json!({"name": "ci", "group": "default", "models": ["m"]})).await.expect(201);
    let token = issued["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("wb-key-"));
    assert_eq!(issued["key"]["group_name"], "default");
    let shown = desk.get("/keys/ci").await.expect(200);
    assert_eq!(shown.get("hash"), None);
    assert!(!desk.get("/keys").await.expect(200).to_string().contains(&token));
    assert!(!desk.everything().await.contains(&token));
    let expires = json!({"expected_version": 1, "expires_at": "2027-01-01T00:00:00Z"});
    let edited = desk.patch("/keys/ci", expires).await.expect(200);
    assert_eq!(edited["key"]["expires_at"], "2027-01-01T00:00:00.000000Z");
    let never = desk.patch("/keys/ci", json!({"expected_version": 2, "expires_at": null})).await.expect(200);
    assert_eq!(never["key"].get("expires_at"), None);
    desk.post("/keys/ci/disable", json!({})).await.expect(200);
    desk.post("/keys/ci/enable", json!({})).await.expect(200);
    desk.delete("/keys/ci").await.expect(200);
    desk.delete("/keys/ci").await.refused(404, "not_found");
}

#[tokio::test]
async fn edits_are_recorded_under_the_token_that_made_them() {
    let desk = Desk::new().await;
    let issued = desk.post("/admin-tokens", json!({"name": "bob", "reason": "on call"})).await.expect(201);
    let bob = issued["token"].as_str().unwrap();
    let mut request = desk.request(Method::POST, "/groups", Some(&json!({"name": "b"})));
    request.headers_mut().insert("authorization", format!("Bearer {bob}").parse().unwrap());
    request.headers_mut().insert("x-waybill-reason", "a try".parse().unwrap());
    desk.ask(request).await.expect(201);
    let history = desk.get("/config-history").await.expect(200);
    let who: Vec<_> = history["edits"].as_array().unwrap().iter().map(|e| (&e["actor_name"], &e["reason"])).collect();
    assert_eq!(
        who,
        [(&json!("bob"), &json!("a try")), (&json!("ann"), &json!("on call")), (&json!(null), &json!("bootstrap")),]
    );
    assert_eq!(desk.get("/admin-tokens").await.expect(200)["admin_tokens"].as_array().unwrap().len(), 2);
    desk.delete("/admin-tokens/2").await.expect(200);
    let mut request = desk.request(Method::GET, "/groups", None);
    request.headers_mut().insert("authorization", format!("Bearer {bob}").parse().unwrap());
    desk.ask(request).await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_second_bootstrap_needs_force() {
    let desk = Desk::new().await;
    let peppers = Peppers::generate().unwrap();
    let journal = desk.memory.journal();
    let refused = bootstrap(&journal, &peppers, "ann", false).await;
    assert!(matches!(refused, Err(BootstrapError::Exists { name }) if name == "ann"));
    bootstrap(&journal, &peppers, "ann", true).await.unwrap();
    let tokens = desk.get("/admin-tokens").await.expect(200);
    assert_eq!(tokens["admin_tokens"][1]["name"], "ann-2");
}
