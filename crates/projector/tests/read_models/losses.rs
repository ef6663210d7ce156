//! Requests whose owners are lost: declared once by whoever leads, and overridden by a real end.

use std::time::Duration;

use bytes::Bytes;
use waybill_domain::history::RequestState;
use waybill_event::control::{LossReason, OutboxDrained};
use waybill_event::money::UsageReport;
use waybill_event::traffic::{FinalState, Protocol, RequestAdmitted, RequestFinished};
use waybill_event::{Body, Boot, Draft, Event, GroupId, Identity, KeyId, Mark, RequestId, decode_batch};
use waybill_journal::presence::{Beat, Report};
use waybill_journal::{Bucket, Held, Stream};
use waybill_read_model::Projection;

use crate::ground::{Ground, Running, start_of_time};
use crate::plan::message;

const TRAFFIC: Projection = Projection::Traffic;

/// A replica that writes what it is told to.
struct Replica {
    name: &'static str,
    boot: Boot,
    n: u64,
}

impl Replica {
    fn new(name: &'static str, boot: u32) -> Self {
        Self { name, boot: Boot::new(start_of_time() + Duration::from_secs(u64::from(boot)), boot), n: 0 }
    }

    fn event(&mut self, request: Option<RequestId>, body: impl Into<Body>) -> Vec<u8> {
        self.n += 1;
        let mark = Mark { producer: self.name.parse().unwrap(), boot: self.boot, n: self.n };
        let draft = Draft { request: request.map(|id| (id, 1)), ..Draft::new(start_of_time(), body) };
        Event { identity: Identity::Sequenced(mark), draft }.encode().unwrap()
    }

    fn admits(&mut self, id: RequestId) -> Vec<u8> {
        let body = RequestAdmitted {
            key: KeyId::new(1),
            group: GroupId::new(1),
            protocol: Protocol::OpenaiChat,
            client_model: "m".to_owned(),
            model: "m".to_owned(),
            route: None,
            needs: Vec::new(),
            stream: false,
            body_bytes: 10,
            deadline_ms: 1_000,
            table: None,
            candidates: Vec::new(),
            candidate_count: 0,
            skips: Vec::new(),
            client_retry: None,
            client_request_id: None,
            session: None,
        };
        self.event(Some(id), body)
    }

    fn ends(&mut self, id: RequestId) -> Vec<u8> {
        let body = RequestFinished {
            state: FinalState::Succeeded,
            status: 200,
            error: None,
            served_model: None,
            attempts: 1,
            fallback: None,
            degraded: false,
            missing: Vec::new(),
            skips: Vec::new(),
            usage: UsageReport::Absent,
            first_content_ms: None,
            took_ms: 5,
            maybe_billed: false,
        };
        self.event(Some(id), body)
    }

    fn drains(&mut self, boot: Boot, last: u64) -> Vec<u8> {
        self.event(None, OutboxDrained { replica: self.name.parse().unwrap(), boot, last })
    }
}

fn request(seed: u8) -> RequestId {
    RequestId::from_parts(start_of_time(), [seed; 10])
}

/// What is declared lost in the log, in order.
async fn declared(ground: &Ground) -> Vec<(RequestId, LossReason)> {
    let messages = ground.journal.log.read(Stream::Traffic, 1, 10_000).await.unwrap();
    let events = messages.iter().flat_map(|message| decode_batch(&message.payload).unwrap());
    let lost = events.filter_map(|event| {
        let draft = event.unwrap().draft;
        match draft.body {
            Body::OwnerLost(lost) => Some((draft.request.unwrap().0, lost.why)),
            _ => None,
        }
    });
    lost.collect()
}

async fn state(ground: &Ground, id: RequestId) -> RequestState {
    ground.store.history(id).await.unwrap().unwrap().request.state
}

async fn settled(ground: &Ground, runner: &Running) -> u64 {
    tokio::time::timeout(crate::ground::PATIENCE, ground.settled(runner)).await.unwrap()
}

/// A boot with one request that ended and two that didn't, and a newer boot that has drained it.
async fn killed(ground: &Ground) {
    let mut old = Replica::new("proxy-1", 1);
    let begun = [old.admits(request(1)), old.admits(request(2)), old.ends(request(2)), old.admits(request(3))];
    ground.traffic(message(&begun)).await;
    let mut new = Replica::new("proxy-1", 2);
    let drained = new.drains(old.boot, old.n);
    ground.traffic(message(&[drained])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_drained_boot_left_open_is_declared_once() {
    let ground = Ground::new().await;
    killed(&ground).await;
    let mut present = Replica::new("proxy-2", 1);
    let open = present.admits(request(9));
    ground.traffic(message(&[open])).await;
    let runner = ground.runner();
    runner.wait_for(TRAFFIC, "declaring", |status| status.counts.declared_lost == 2).await;
    let ended = present.ends(request(9));
    ground.traffic(message(&[ended])).await;
    let end = settled(&ground, &runner).await;
    assert_eq!(state(&ground, request(1)).await, RequestState::OwnerLost);
    assert_eq!(state(&ground, request(2)).await, RequestState::Ended(FinalState::Succeeded));
    // Another leader finds nothing left to declare.
    runner.end().await;
    let next = ground.runner();
    next.wait_for(TRAFFIC, "leading", |status| status.leading).await;
    let ended = present.drains(present.boot, 3);
    ground.traffic(message(&[ended])).await;
    settled(&ground, &next).await;
    next.end().await;
    let mut found = declared(&ground).await;
    found.sort_unstable();
    assert_eq!(found, [(request(1), LossReason::Drained), (request(3), LossReason::Drained)]);
    ground.assert_verified(TRAFFIC, end + 1).await;
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_declares_what_the_one_before_could_not() {
    let ground = Ground::new().await;
    killed(&ground).await;
    let end = ground.end(TRAFFIC).await;
    // Nothing more fits into the log, so that the leader folds the note and can't declare.
    ground.memory.set_max_bytes(Stream::Traffic, 1);
    let first = ground.runner();
    first.caught_up(TRAFFIC, end).await;
    assert_eq!(first.status(TRAFFIC).counts.declared_lost, 0);
    assert_eq!(state(&ground, request(1)).await, RequestState::Open);
    first.end().await;
    ground.memory.set_max_bytes(Stream::Traffic, 0);
    let second = ground.runner();
    let end = settled(&ground, &second).await;
    second.end().await;
    assert_eq!(declared(&ground).await.len(), 2);
    assert_eq!(state(&ground, request(3)).await, RequestState::OwnerLost);
    ground.assert_verified(TRAFFIC, end).await;
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_owner_is_given_up_and_its_real_end_wins() {
    let mut ground = Ground::new().await;
    ground.absence = Duration::from_millis(400);
    let (mut silent, mut busy) = (Replica::new("proxy-1", 1), Replica::new("proxy-2", 1));
    let beat = Beat {
        replica: busy.name.parse().unwrap(),
        boot: busy.boot,
        role: "proxy".to_owned(),
        n: 1,
        report: Report::default(),
    };
    let value = Bytes::from(serde_json::to_vec(&beat).unwrap());
    ground.journal.keyed.write(Bucket::Presence, busy.name, value, Held::Anything, None).await.unwrap();
    let begun = [silent.admits(request(1))];
    ground.traffic(message(&begun)).await;
    let begun = [busy.admits(request(2))];
    ground.traffic(message(&begun)).await;
    let runner = ground.runner();
    runner.wait_for(TRAFFIC, "declaring", |status| status.counts.declared_lost > 0).await;
    runner.caught_up(TRAFFIC, ground.end(TRAFFIC).await).await;
    assert_eq!(declared(&ground).await, [(request(1), LossReason::Absent)]);
    assert_eq!(state(&ground, request(1)).await, RequestState::OwnerLost);
    assert_eq!(state(&ground, request(2)).await, RequestState::Open, "whoever beats isn't lost");
    // It was only cut off.
    let ended = [silent.ends(request(1))];
    ground.traffic(message(&ended)).await;
    let ended = [busy.ends(request(2))];
    ground.traffic(message(&ended)).await;
    let end = settled(&ground, &runner).await;
    runner.end().await;
    assert_eq!(state(&ground, request(1)).await, RequestState::Ended(FinalState::Succeeded));
    let lines = {
        let history = ground.store.history(request(1)).await.unwrap().unwrap();
        waybill_domain::history::lines(&history.request, &history.attempts, &history.outcomes)
    };
    let events: Vec<&str> = lines.iter().map(|line| line.event).collect();
    assert_eq!(events, ["request_admitted", "owner_lost", "request_finished"]);
    ground.assert_verified(TRAFFIC, end).await;
    ground.finish().await;
}
