//! How many events a second become rows: a log in memory, a real Postgres on this machine, nothing else.
//!
//! `cargo run --release -p waybill-projector --example fold_rate -- [REQUESTS]`. Each request is six events: admitted,
//! a failed attempt with its outcome, … as a fail-over leaves them, in messages of 64 events.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::failure::{Health, Sent};
use waybill_event::money::UsageReport;
use waybill_event::selection::{Chosen, Next};
use waybill_event::traffic::{
    AttemptFinished, AttemptStarted, FinalState, Protocol, RequestAdmitted, RequestFinished, SourceOutcome,
};
use waybill_event::{
    Body, Boot, ChannelId, Draft, Event, FailureKind, GroupId, Identity, KeyId, LogTime, Mark, RequestId, Source,
    SourceRef,
};
use waybill_journal::memory::Memory;
use waybill_journal::{Expect, Record, Stream};
use waybill_projector::read_models::{LossConfig, ReadModels, verify};
use waybill_read_model::{Deadlines, Projection, ReadModel};
use waybill_services::{Finder, Launcher, Postgres, PostgresConfig};

type Fault = Box<dyn std::error::Error>;

const EVENTS_A_MESSAGE: usize = 64;

fn source(id: u64) -> SourceRef {
    SourceRef { source: Source::from(ChannelId::new(id)), rev: 1 }
}

fn started(attempt: u32) -> AttemptStarted {
    AttemptStarted {
        attempt,
        model: "gpt-4o".to_owned(),
        upstream_model: "gpt-4o-2024-08-06".to_owned(),
        why: if attempt == 1 { Chosen::First } else { Chosen::FailOver },
        priority: 100,
        place: attempt - 1,
        target: 0,
        table: None,
        skips: Vec::new(),
        credential_revision: 3,
        timeout_ms: 60_000,
    }
}

fn ended(attempt: u32, ok: bool) -> AttemptFinished {
    AttemptFinished {
        attempt,
        model: "gpt-4o".to_owned(),
        upstream_model: "gpt-4o-2024-08-06".to_owned(),
        kind: if ok { FailureKind::Success } else { FailureKind::ServerError },
        rule: "openai/5xx@v1".to_owned(),
        status: Some(if ok { 200 } else { 500 }),
        first_content_ms: None,
        took_ms: 80,
        sent: Sent::Response,
        maybe_billed: false,
        next: (!ok).then_some(Next::Elsewhere),
        evidence: None,
        upstream_request_id: Some("req_8f2a".to_owned()),
        shadow: None,
    }
}

fn outcome(ok: bool) -> SourceOutcome {
    SourceOutcome {
        upstream_model: "gpt-4o-2024-08-06".to_owned(),
        kind: if ok { FailureKind::Success } else { FailureKind::ServerError },
        source_health: if ok { Health::Ok } else { Health::Fail },
        model_health: Health::None,
        latency_ms: Some(80),
        block: None,
        attempts: 1,
        credential_revision: 3,
        base_url_revision: 1,
        probe: false,
        usage: None,
    }
}

fn request(number: u64, at: LogTime) -> Vec<(Option<SourceRef>, Body)> {
    let admitted = RequestAdmitted {
        key: KeyId::new(number % 50),
        group: GroupId::new(1),
        protocol: Protocol::OpenaiChat,
        client_model: "gpt-4o".to_owned(),
        model: "gpt-4o".to_owned(),
        route: None,
        needs: Vec::new(),
        stream: true,
        body_bytes: 1_834,
        deadline_ms: 300_000,
        table: None,
        candidates: vec![source(1).source, source(2).source],
        candidate_count: 2,
        skips: Vec::new(),
        client_retry: None,
        client_request_id: None,
        session: None,
    };
    let finished = RequestFinished {
        state: FinalState::Succeeded,
        status: 200,
        error: None,
        served_model: Some(at.to_string()),
        attempts: 2,
        fallback: None,
        degraded: false,
        missing: Vec::new(),
        skips: Vec::new(),
        usage: UsageReport::Absent,
        first_content_ms: Some(210),
        took_ms: 900,
        maybe_billed: false,
    };
    let fails = number.is_multiple_of(4);
    let mut events = vec![(None, admitted.into()), (Some(source(1)), started(1).into())];
    events.extend([(Some(source(1)), ended(1, !fails).into()), (Some(source(1)), outcome(!fails).into())]);
    if fails {
        let last: [Body; 3] = [started(2).into(), ended(2, true).into(), outcome(true).into()];
        events.extend(last.map(|body| (Some(source(2)), body)));
    }
    events.push((Some(source(1)), finished.into()));
    events
}

async fn fill(memory: &Memory, requests: u64, start: LogTime) -> Result<(u64, u64), Fault> {
    let log = memory.journal().log;
    let boot = Boot::new(start, 1);
    let (mut n, mut pending, mut last) = (0, Vec::new(), 0);
    for number in 0..requests {
        let at = start + Duration::from_micros(number * 200);
        let id = RequestId::from_parts(at, [0; 10].map(|_: u8| (number % 251) as u8));
        for (rn, (source, body)) in (1..).zip(request(number, at)) {
            n += 1;
            let identity = Identity::Sequenced(Mark { producer: "proxy-1".parse()?, boot, n });
            let draft = Draft { request: Some((id, rn)), source, ..Draft::new(at, body) };
            pending.push(Event { identity, draft }.encode()?);
        }
        if pending.len() >= EVENTS_A_MESSAGE || number + 1 == requests {
            let payload = [b"[".to_vec(), pending.join(&b','), b"]".to_vec()].concat();
            let subject = "wb.traffic.0.proxy".to_owned();
            let record = Record { subject, message_id: None, payload: payload.into() };
            last = log.append(Stream::Traffic, record, Expect::Anything).await?.sequence;
            pending.clear();
        }
    }
    Ok((n, last))
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let requests: u64 = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let postgres =
        Postgres::start(&Launcher::UtilLinux, &Finder::new(dir.path()), PostgresConfig::new(dir.path())).await?;
    let store = ReadModel::connect(postgres.url().expose_secret(), 4, Deadlines::default())?;
    store.migrate().await?;
    let start: LogTime = "2026-11-29T12:00:00Z".parse()?;
    let memory = Memory::started_at(start + Duration::from_secs(60));
    let (events, last) = fill(&memory, requests, start).await?;
    let clock = memory.clone();
    let losses = LossConfig::new("projector-1".parse()?, Arc::new(move || clock.now()));
    let models = Arc::new(ReadModels::new(memory.journal(), store.clone(), losses));
    let (token, tasks) = (CancellationToken::new(), TaskTracker::new());
    let began = Instant::now();
    let folding = (Arc::clone(&models), token.clone());
    tasks.spawn(async move { folding.0.fold(Projection::Traffic, folding.1.cancelled()).await });
    while models.status(Projection::Traffic).position < last {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = began.elapsed().as_secs_f64();
    token.cancel();
    tasks.close();
    tasks.wait().await;
    let batches = models.status(Projection::Traffic).counts.batches;
    let found = verify(&*memory.journal().log, &store, Projection::Traffic, last).await?;
    println!(
        "{events} events of {requests} requests in {batches} batches, {took:.2} s: {:.0} events/s",
        events as f64 / took
    );
    println!("rows: {} as folded from scratch, {} not", found.same, found.different);
    store.close().await;
    postgres.destroy().await?;
    Ok(())
}
