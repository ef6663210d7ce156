//! Edits while others edit, while answers are lost, while Postgres is away and while the log is away.

use std::time::Duration;

use serde_json::json;
use waybill_journal::Stream;
use waybill_journal::faulty::{Faults, Faulty};
use waybill_journal::memory::Memory;

use crate::desk::{Desk, now};

#[tokio::test(start_paused = true)]
async fn an_edit_that_is_not_readable_yet_answers_202() {
    let desk = Desk::new().await;
    desk.projector_behind(true);
    let made = desk.post("/groups", json!({"name": "a"})).await.expect(202);
    assert_eq!((&made["readable"], &made["position"]), (&json!(false), &json!(2)));
    desk.projector_behind(false);
    desk.post("/groups", json!({"name": "b"})).await.expect(201);
}

#[tokio::test]
async fn with_postgres_away_edits_go_on_and_reads_say_so() {
    let desk = Desk::new().await;
    desk.postgres_away(true);
    desk.post("/groups", json!({"name": "a"})).await.expect(202);
    assert_eq!(desk.get("/groups").await.expect(200)["groups"][0]["name"], "a");
    desk.get("/requests").await.refused(503, "read_model_unavailable");
    desk.get("/config-history").await.refused(503, "read_model_unavailable");
    let status = desk.get("/status").await.expect(200);
    assert_eq!(status["ready"], true, "{status:#}");
}

#[tokio::test(start_paused = true)]
async fn with_the_log_away_edits_are_refused_clearly() {
    let memory = Memory::started_at(now());
    let faulty = Faulty::over(memory.journal(), Faults::NONE, 1);
    let desk = Desk::over(memory, faulty.journal()).await;
    faulty.set(Faults { unavailable: 1.0, ..Faults::NONE });
    let problem = desk.post("/groups", json!({"name": "a"})).await;
    assert_eq!(problem.headers["retry-after"], "2");
    problem.refused(503, "log_unavailable");
    assert_eq!(desk.get("/groups").await.expect(200), json!({"groups": []}), "what is known is still told");
    let status = desk.get("/status").await.expect(200);
    assert_eq!(status["ready"], false);
    faulty.set(Faults::NONE);
    desk.post("/groups", json!({"name": "a"})).await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_neither_two_edits_nor_none() {
    for seed in 0..8 {
        let memory = Memory::started_at(now());
        let faulty = Faulty::over(memory.journal(), Faults::NONE, seed);
        let desk = Desk::over(memory, faulty.journal()).await;
        faulty.set(Faults { lost_answer: 0.6, ..Faults::NONE });
        let mut told = 0;
        for n in 0..5 {
            let answer = desk.post("/groups", json!({"name": format!("g{n}")})).await;
            match answer.status.as_u16() {
                201 | 202 => told += 1,
                // All sends fell silent and the log couldn't be asked either: the caller is told just that.
                503 => assert_eq!(answer.code(), "outcome_unknown"),
                status => panic!("{status}: {:#}", answer.body),
            }
        }
        faulty.set(Faults::NONE);
        let groups = desk.get("/groups").await.expect(200)["groups"].as_array().unwrap().len();
        assert!(groups >= told, "{groups} groups, {told} told, seed {seed}");
        assert_eq!(desk.last_edit().await, 1 + groups as u64, "no edit was stored twice, seed {seed}");
    }
}

#[tokio::test]
async fn many_editors_at_once_lose_nothing() {
    let desk = std::sync::Arc::new(Desk::new().await);
    let edits = (0..12).map(|n| {
        let desk = std::sync::Arc::clone(&desk);
        async move {
            let mut tries = 0;
            loop {
                let answer = desk.post("/groups", json!({"name": format!("g{n}")})).await;
                tries += 1;
                match (answer.status.as_u16(), answer.code()) {
                    (201, _) => return,
                    (409, "contended") if tries < 20 => tokio::time::sleep(Duration::from_millis(tries)).await,
                    _ => panic!("{:#}", answer.body),
                }
            }
        }
    });
    futures_util::future::join_all(edits).await;
    assert_eq!(desk.memory.journal().log.bounds(Stream::Config).await.unwrap().last, 13);
    let groups = desk.get("/groups").await.expect(200);
    let ids: Vec<_> = groups["groups"].as_array().unwrap().iter().map(|group| group["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=12).collect::<Vec<_>>());
}
