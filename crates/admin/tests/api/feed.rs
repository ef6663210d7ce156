use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use waybill_event::RequestId;

use crate::desk::{Desk, now};
use crate::reading::append_request;

/// The next events of a feed, up to `count`.
async fn heard(body: &mut axum::body::Body, count: usize) -> Vec<Value> {
    let mut text = String::new();
    let listening = async {
        while text.matches("\n\n").count() < count {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    };
    tokio::time::timeout(Duration::from_secs(5), listening).await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_feed_tells_what_is_appended_from_now_on() {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "before"})).await.expect(201);
    let response = desk.raw(desk.request(Method::GET, "/tail", None)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut all = response.into_body();
    let only = "/tail?type=request_finished,config&source=channel:1";
    let mut some = desk.raw(desk.request(Method::GET, only, None)).await.into_body();
    desk.post("/groups", json!({"name": "after"})).await.expect(201);
    append_request(&desk, RequestId::from_parts(now(), [1; 10]), 1).await;
    let told = heard(&mut all, 5).await;
    let mut kinds: Vec<_> = told.iter().map(|line| line["event"]["type"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["attempt_finished", "attempt_started", "group_created", "request_admitted", "request_finished"]);
    let told = heard(&mut some, 1).await;
    assert_eq!((&told[0]["stream"], &told[0]["position"]), (&json!("traffic"), &json!("0/0/1/3")));
    desk.get("/tail?source=nobody").await.refused(422, "invalid_field");
}
