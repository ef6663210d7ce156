use bytes::Bytes;
use serde_json::json;
use waybill_domain::selector::state::{Revisions, SourceState};
use waybill_event::config::SelectorPolicy;
use waybill_event::failure::Sent;
use waybill_event::money::UsageReport;
use waybill_event::selection::{Chosen, Next};
use waybill_event::traffic::{AttemptFinished, AttemptStarted, FinalState, Protocol, RequestAdmitted, RequestFinished};
use waybill_event::{
    Body, Boot, ChannelId, ConfigPosition, Draft, Event, FailureKind, GroupId, Identity, KeyId, Mark, RequestId,
};
use waybill_journal::{Bucket, Expect, Held, Record, Stream};

use crate::desk::{Desk, now};

/// One request that failed at channel 1.
fn events() -> Vec<Body> {
    let source = ChannelId::new(1).into();
    vec![
        Body::from(RequestAdmitted {
            key: KeyId::new(1),
            group: GroupId::new(1),
            protocol: Protocol::OpenaiChat,
            client_model: "m".to_owned(),
            model: "m".to_owned(),
            route: None,
            needs: Vec::new(),
            stream: false,
            body_bytes: 10,
            deadline_ms: 600_000,
            table: None,
            candidates: vec![source],
            candidate_count: 1,
            skips: Vec::new(),
            client_retry: None,
            client_request_id: None,
            session: None,
        }),
        Body::from(AttemptStarted {
            attempt: 1,
            model: "m".to_owned(),
            upstream_model: "m".to_owned(),
            why: Chosen::First,
            priority: 0,
            place: 0,
            target: 0,
            table: None,
            skips: Vec::new(),
            credential_revision: 1,
            timeout_ms: 1_000,
        }),
        Body::from(AttemptFinished {
            attempt: 1,
            model: "m".to_owned(),
            upstream_model: "m".to_owned(),
            kind: FailureKind::ServerError,
            rule: "openai/500@v1".to_owned(),
            status: Some(500),
            first_content_ms: None,
            took_ms: 12,
            sent: Sent::Response,
            maybe_billed: false,
            next: Some(Next::Stop),
            evidence: None,
            upstream_request_id: None,
            shadow: None,
        }),
        Body::from(RequestFinished {
            state: FinalState::Failed,
            status: 502,
            error: Some("all_sources_failed".to_owned()),
            served_model: None,
            attempts: 1,
            fallback: None,
            degraded: false,
            missing: Vec::new(),
            skips: Vec::new(),
            usage: UsageReport::Absent,
            first_content_ms: None,
            took_ms: 15,
            maybe_billed: false,
        }),
    ]
}

pub(crate) async fn append_request(desk: &Desk, id: RequestId, first: u64) {
    let boot = Boot::new(now(), 1);
    let mut batch = Vec::new();
    for (index, body) in (0_u64..).zip(events()) {
        let mark = Mark { producer: "proxy-1".parse().unwrap(), boot, n: first + index };
        let mut draft = Draft::new(now(), body);
        draft.request = Some((id, u32::try_from(index + 1).unwrap()));
        draft.source = Some(waybill_event::SourceRef { source: ChannelId::new(1).into(), rev: 1 });
        batch.push(Event { identity: Identity::Sequenced(mark), draft }.encode().unwrap());
    }
    let payload = [b"[".to_vec(), batch.join(&b","[..]), b"]".to_vec()].concat();
    let record = Record {
        subject: "wb.traffic.0.proxy".to_owned(),
        message_id: Some(format!("proxy-1:{boot}:{first}")),
        payload: Bytes::from(payload),
    };
    desk.memory.journal().log.append(Stream::Traffic, record, Expect::Anything).await.unwrap();
}

#[tokio::test]
async fn a_request_is_told_line_by_line_with_positions() {
    let desk = Desk::new().await;
    let id = RequestId::from_parts(now(), [7; 10]);
    append_request(&desk, id, 1).await;
    let story = desk.get(&format!("/requests/{id}")).await.expect(200);
    let lines: Vec<_> = story["lines"].as_array().unwrap().iter().map(|l| (&l["position"], &l["event"])).collect();
    assert_eq!(lines[0], (&json!("0/0/1/0"), &json!("request_admitted")));
    assert_eq!(lines[3], (&json!("0/0/1/3"), &json!("request_finished")));
    assert_eq!(story["attempts"][0]["rule"], "openai/500@v1");
    desk.get(&format!("/requests/{}", RequestId::from_parts(now(), [8; 10]))).await.refused(404, "not_found");
    desk.get("/requests/none").await.refused(404, "not_found");
}

#[tokio::test]
async fn requests_are_listed_newest_first_page_by_page() {
    let desk = Desk::new().await;
    let id = |n: u8| RequestId::from_parts(now(), [n; 10]);
    for n in 1..=3 {
        append_request(&desk, id(n), u64::from(n) * 10).await;
    }
    let first = desk.get("/requests?limit=2&state=failed").await.expect(200);
    let ids = |page: &serde_json::Value| -> Vec<String> {
        let rows = page["requests"].as_array().unwrap().iter();
        rows.map(|row| row["request_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&first), [id(3).to_string(), id(2).to_string()]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = desk.get(&format!("/requests?limit=2&cursor={cursor}")).await.expect(200);
    assert_eq!((ids(&second), &second["next_cursor"]), (vec![id(1).to_string()], &json!(null)));
    for bad in ["limit=0", "limit=501", "state=odd", "source=42", "key=nobody", "q=xyz"] {
        desk.get(&format!("/requests?{bad}")).await.refused(422, "invalid_field");
    }
    desk.get("/requests?colour=red").await.refused(400, "bad_request");
}

#[tokio::test]
async fn edits_are_listed_per_entity() {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "a"})).await.expect(201);
    desk.patch("/groups/a", json!({"expected_version": 1, "name": "b"})).await.expect(200);
    let edits = desk.get("/config-history?entity=group&id=1&limit=1").await.expect(200);
    assert_eq!(edits["edits"][0]["change"], "edited");
    assert_eq!(edits["edits"][0]["changed"], json!(["name"]));
    assert_eq!(edits["next_cursor"], 3);
    desk.get("/config-history?entity=planet").await.refused(422, "invalid_field");
}

#[tokio::test]
async fn sources_show_configuration_and_what_the_selector_knows() {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "default"})).await.expect(201);
    let channel = json!({"name": "a", "base_url": "https://a", "credential": "k", "models": ["m"], "groups": [1]});
    desk.post("/channels", channel).await.expect(201);
    let sources = desk.get("/sources").await.expect(200);
    assert_eq!(sources["sources"][0]["source"], "channel:1");
    assert_eq!((&sources["sources"][0]["available"], &sources["sources"][0]["live"]), (&json!(true), &json!(null)));

    let revisions = Revisions { credential: 1, base_url: 1 };
    let source = ChannelId::new(1).into();
    let state = SourceState::new(source, revisions, SelectorPolicy::default(), ConfigPosition(3));
    let value = Bytes::from(serde_json::to_vec(&state).unwrap());
    let keyed = desk.memory.journal().keyed;
    keyed.write(Bucket::Selector, "channel.1", value, Held::Nothing, None).await.unwrap();
    let seen = async {
        loop {
            let sources = desk.get("/sources").await.expect(200);
            if sources["sources"][0]["live"].is_object() {
                return sources;
            }
            tokio::task::yield_now().await;
        }
    };
    let sources = tokio::time::timeout(std::time::Duration::from_secs(5), seen).await.unwrap();
    assert_eq!(sources["sources"][0]["live"]["scope"]["breaker"], "closed");
    desk.post("/channels/a/disable", json!({})).await.expect(200);
    let sources = desk.get("/sources").await.expect(200);
    assert_eq!(sources["sources"][0]["models"][0]["skip"], "disabled");
}
