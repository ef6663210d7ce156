//! What the events of a request cost. A process of its own writes what a proxy writes for a served request, in the same
//! two appends, through a real outbox and its publisher to the running fleet's log; the same process without them is the
//! other side. So no switch in the product is needed that would turn its memory off.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use secrecy::SecretString;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::selector::View;
use waybill_event::failure::{Health, Sent};
use waybill_event::money::{TokenCount, Usage, UsageReport};
use waybill_event::selection::{Chosen, TableHash};
use waybill_event::traffic::{
    AttemptFinished, AttemptStarted, FinalState, Protocol, RequestAdmitted, RequestFinished, SourceOutcome,
};
use waybill_event::{
    Body, Boot, ConfigPosition, Draft, Event, FailureKind, GroupId, Identity, KeyId, LogTime, Mark, ProducerId,
    RequestId, Source, SourceKind, SourceRef,
};
use waybill_journal::outbox::{Outbox, OutboxConfig};
use waybill_journal_nats::{NatsConfig, connect};

use crate::measure::micros;
use crate::process;
use crate::request::MODEL;

/// How long the rest of the events may take to reach the log.
const FLUSH: Duration = Duration::from_secs(60);
/// Own events are dropped from a view when the shared value holds them; here, after so many.
const VIEW_LIFE: u32 = 64;

/// What it needs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the log.
    #[arg(long)]
    nats: String,
    /// File with the password of the user `proxy`.
    #[arg(long)]
    password_file: PathBuf,
    /// Requests a second.
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// For how long, in milliseconds, with events and again without.
    #[arg(long, default_value_t = 4_000)]
    millis: u32,
}

/// Measures, and prints the difference in CPU time per request, in µs.
///
/// # Errors
/// The log can't be reached, or the outbox refuses.
pub(crate) async fn run(args: Args) -> Result<()> {
    let password = std::fs::read_to_string(&args.password_file).context("the password")?;
    let password = SecretString::from(password.trim().to_owned());
    let user = "proxy".to_owned();
    let connection = connect(NatsConfig::new(vec![args.nats.clone()], user, password, "bench".to_owned())).await?;
    let folder = tempfile::tempdir()?;
    let producer: ProducerId = "bench-events".parse()?;
    let boot = Boot::new(now(), rand::random());
    let config = OutboxConfig::new(folder.path(), producer.clone(), "wb.traffic.0.proxy", Arc::new(now));
    let (outbox, publisher) = Outbox::open(config, boot)?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    tasks.spawn(publisher.run(connection.journal().log.clone(), stop.clone()));

    let mut writer = Writer { outbox: outbox.clone(), view: view(&producer, boot), producer, boot, written: 0 };
    // On the runtime's own thread, as a proxy's requests are served: from another one, each write would wake that first.
    let measured = tasks.spawn(async move {
        writer.some(args.rate, 500, true).await?;
        let off = writer.some(args.rate, args.millis, false).await?;
        let on = writer.some(args.rate, args.millis, true).await?;
        anyhow::Ok(on - off)
    });
    println!("{:.3}", measured.await.context("the writer")??);

    let _left = outbox.close(FLUSH).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    connection.close().await;
    Ok(())
}

fn now() -> LogTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    LogTime::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

fn view(producer: &ProducerId, boot: Boot) -> View {
    View::new(source().source, producer.clone(), boot)
}

/// A source that no channel is: nobody's state is touched.
fn source() -> SourceRef {
    SourceRef { source: Source { kind: SourceKind::Channel, id: 1_000_000_000 }, rev: 1 }
}

struct Writer {
    outbox: Outbox,
    view: View,
    producer: ProducerId,
    boot: Boot,
    written: u32,
}

impl Writer {
    /// Goes through requests at a fixed rate; gives the CPU time of each, in µs.
    async fn some(&mut self, rate: u32, millis: u32, events: bool) -> Result<f64> {
        let count = rate.saturating_mul(millis) / 1_000;
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let own = [std::process::id()];
        let before = process::cpu(&own);
        for _ in 0..count {
            ticks.tick().await;
            if events {
                self.request()?;
            }
        }
        if events {
            let last = self.outbox.status().appended;
            let waited = tokio::time::timeout(FLUSH, self.outbox.wait_acknowledged(last)).await;
            waited.context("the log doesn't take the events")?;
        }
        Ok(micros(process::cpu(&own).saturating_sub(before)) / f64::from(count))
    }

    fn request(&mut self) -> Result<()> {
        let reservation = self.outbox.reserve()?;
        let id = RequestId::from_parts(now(), rand::random());
        let [admitted, started, finished, outcome, ended] = drafts(id);
        let encoded = [admitted.encode()?, started.encode()?];
        self.outbox.append_reserved(&reservation, &encoded)?;
        let encoded = [finished.encode()?, outcome.encode()?, ended.encode()?];
        let ordinals = self.outbox.append_reserved(&reservation, &encoded)?;
        let mark = Mark { producer: self.producer.clone(), boot: self.boot, n: ordinals.start() + 1 };
        let _transitions = self.view.own(&Event { identity: Identity::Sequenced(mark), draft: outcome });
        self.written += 1;
        if self.written.is_multiple_of(VIEW_LIFE) {
            self.view = view(&self.producer, self.boot);
        }
        Ok(())
    }
}

/// The events of a request that its first source served.
fn drafts(id: RequestId) -> [Draft; 5] {
    let mut rn = 0;
    let mut draft = |of: Option<SourceRef>, body: Body| {
        rn += 1;
        Draft { request: Some((id, rn)), source: of, config: Some(ConfigPosition(7)), ..Draft::new(now(), body) }
    };
    let usage = Usage {
        prompt_tokens: Some(TokenCount(214)),
        completion_tokens: Some(TokenCount(42)),
        cached_tokens: Some(TokenCount(128)),
        reasoning_tokens: Some(TokenCount(0)),
    };
    let admitted = RequestAdmitted {
        key: KeyId::new(1),
        group: GroupId::new(1),
        protocol: Protocol::OpenaiChat,
        client_model: MODEL.to_owned(),
        model: MODEL.to_owned(),
        route: None,
        needs: Vec::new(),
        stream: false,
        body_bytes: 1_024,
        deadline_ms: 600_000,
        table: Some(TableHash(0x5eed)),
        candidates: vec![source().source],
        candidate_count: 1,
        skips: Vec::new(),
        client_retry: Some(0),
        client_request_id: None,
        session: None,
    };
    let started = AttemptStarted {
        attempt: 1,
        model: MODEL.to_owned(),
        upstream_model: MODEL.to_owned(),
        why: Chosen::First,
        priority: 0,
        place: 0,
        target: 0,
        table: None,
        skips: Vec::new(),
        credential_revision: 3,
        timeout_ms: 120_000,
    };
    let finished = AttemptFinished {
        attempt: 1,
        model: MODEL.to_owned(),
        upstream_model: MODEL.to_owned(),
        kind: FailureKind::Success,
        rule: "success@v1".to_owned(),
        status: Some(200),
        first_content_ms: Some(1),
        took_ms: 1,
        sent: Sent::Response,
        maybe_billed: false,
        next: None,
        evidence: None,
        upstream_request_id: Some("req_bench".to_owned()),
        shadow: None,
    };
    let outcome = SourceOutcome {
        upstream_model: MODEL.to_owned(),
        kind: FailureKind::Success,
        source_health: Health::Ok,
        model_health: Health::Ok,
        latency_ms: Some(1),
        block: None,
        attempts: 1,
        credential_revision: 3,
        base_url_revision: 1,
        probe: false,
        usage: Some(usage),
    };
    let ended = RequestFinished {
        state: FinalState::Succeeded,
        status: 200,
        error: None,
        served_model: Some(MODEL.to_owned()),
        attempts: 1,
        fallback: None,
        degraded: false,
        missing: Vec::new(),
        skips: Vec::new(),
        usage: UsageReport::Reported(usage),
        first_content_ms: Some(1),
        took_ms: 1,
        maybe_billed: false,
    };
    [
        draft(None, admitted.into()),
        draft(Some(source()), started.into()),
        draft(Some(source()), finished.into()),
        draft(Some(source()), outcome.into()),
        draft(Some(source()), ended.into()),
    ]
}
