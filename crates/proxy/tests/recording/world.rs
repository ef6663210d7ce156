//! One replica over the log in memory and a scripted upstream, with one channel, group and key.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use waybill_domain::selector::{Revisions, SourceState};
use waybill_event::config::{
    Change, Changed, Channel, ChannelModel, ConfigChange, CredentialRef, Group, Key, Limits as Limited, SelectorPolicy,
    StoredHash,
};
use waybill_event::control::OutboxDrained;
use waybill_event::{
    Boot, ChannelId, ConfigPosition, Draft, Event, GroupId, Identity, KeyId, LogTime, SourceKind, decode_batch,
};
use waybill_journal::memory::Memory;
use waybill_journal::outbox::{Outbox, OutboxConfig, Retry};
use waybill_journal::permits::{Permits, Settings};
use waybill_journal::spending::Spending;
use waybill_journal::sticky::Bindings;
use waybill_journal::{Expect, Journal, Record, Stream};
use waybill_proxy::gates::Gates;
use waybill_proxy::metrics::Readings;
use waybill_proxy::probes::Probes;
use waybill_proxy::tokens::Tokens;
use waybill_proxy::{Limits, Parts, Recording, Replica, follow, router};
use waybill_scripted_upstream::{Script, ScriptedUpstream, Source};
use waybill_secret::{KeyRing, Peppers, SecretString, Token, TokenKind, Vault};
use waybill_upstream::{DispatchConfig, Dispatcher};

use crate::silent::Silent;

const PATIENCE: Duration = Duration::from_secs(10);
pub const SOURCE: &str = "a";

pub struct World {
    pub memory: Memory,
    /// Whether a permit was ever asked for.
    pub permit_asked: Arc<AtomicBool>,
    pub upstream: Arc<ScriptedUpstream>,
    pub replica: Arc<Replica>,
    token: String,
    tasks: TaskTracker,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

async fn append(memory: &Memory, stream: Stream, subject: String, payload: Vec<u8>) -> u64 {
    let record = Record { subject, message_id: None, payload: Bytes::from(payload) };
    memory.journal().log.append(stream, record, Expect::Anything).await.unwrap().sequence
}

fn created<T>(state: T) -> Changed<T> {
    Changed { change: Change::Created, changed: Vec::new(), state }
}

async fn edit(memory: &Memory, change: ConfigChange) {
    let (entity, id) = change.subject();
    let subject = format!("wb.config.{entity}.{id}");
    let identity = Identity::Derived { id: format!("edit-{subject}"), producer: "admin-1".parse().unwrap() };
    let event = Event { identity, draft: Draft::new(LogTime::from_micros(1), change) }.encode().unwrap();
    append(memory, Stream::Config, subject, event).await;
}

impl World {
    /// A replica that records as told, whose outbox holds so many bytes.
    pub async fn new(recording: Recording, outbox_bytes: u64, source: Source) -> Self {
        Self::promising(recording, outbox_bytes, 16 << 10, source).await
    }

    /// The same, where a request is promised so many bytes for its end.
    pub async fn promising(recording: Recording, outbox_bytes: u64, promised: u64, source: Source) -> Self {
        let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let memory = Memory::started_at(LogTime::from_micros(1_790_812_800_000_000));
        let upstream = Arc::new(ScriptedUpstream::start(Script::new().source(SOURCE, source)).await.unwrap());
        let ring = SecretString::from(format!("k1:{}", "A".repeat(43)));
        let vault = Arc::new(Vault::new(KeyRing::parse(&ring).unwrap()));
        let peppers = Arc::new(Peppers::generate().unwrap());
        let token = Token::generate(TokenKind::ClientKey).unwrap();
        let sealed = vault.seal("channel", 1, &SecretString::from("sk-upstream")).unwrap();
        let revision = append(&memory, Stream::Secret, Vault::subject("channel", 1), sealed).await;
        configure(&memory, &upstream, &peppers, token.expose(), revision).await;

        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let dir = tempfile::tempdir().unwrap();
        let now = memory.clone();
        let clock: waybill_journal::outbox::Clock = Arc::new(move || now.now());
        let producer = "proxy-1".parse().unwrap();
        let config = OutboxConfig {
            max_bytes: outbox_bytes,
            finish_reserve_bytes: promised,
            segment_bytes: 64 << 10,
            retry: Retry { longest: Duration::from_millis(50), ..Retry::default() },
            ..OutboxConfig::new(dir.path(), producer, "wb.traffic.0.proxy", clock.clone())
        };
        let boot = Boot::new(clock(), 1);
        let (outbox, publisher) = Outbox::open(config, boot).unwrap();
        let journal = memory.journal();
        tasks.spawn(publisher.run(journal.log.clone(), stop.clone()));
        // Nobody here gets a permit: its store leaves whoever asks for one waiting.
        let permit_asked = Arc::new(AtomicBool::new(false));
        let silent = Silent::over(journal.keyed.clone(), permit_asked.clone());
        let permits = Journal { keyed: Arc::new(silent), ..journal.clone() };
        let probes = Probes::start(&permits, outbox.producer(), boot, &tasks, &stop);
        let tokens = Tokens::new(&permits, outbox.producer().clone(), tasks.clone());
        let spending = Spending::start(permits.keyed.clone(), boot, &tasks, &stop);
        let gates = Gates::new(
            Permits::start(
                permits.keyed.clone(),
                outbox.producer(),
                boot,
                Arc::new(|| 1),
                &tasks,
                &stop,
                Settings::default(),
            ),
            spending,
            tasks.clone(),
        );
        let bindings = Bindings::start(permits.keyed.clone(), &tasks, &stop);
        let replica = Replica::new(Parts {
            outbox,
            clock: Arc::new(move || Some(clock())),
            vault,
            peppers,
            dispatcher: Dispatcher::new(&DispatchConfig::default()).unwrap(),
            probes,
            tokens,
            gates,
            bindings,
            recording,
            limits: Limits::default(),
            dice: waybill_journal::dice::system(),
        });
        tasks.spawn(follow::catalog(replica.clone(), journal.clone(), stop.clone()));
        tasks.spawn(follow::credentials(replica.clone(), journal.clone(), stop.clone()));
        tasks.spawn(follow::selector(replica.clone(), journal, stop.clone()));
        let token = token.expose().to_owned();
        let world = Self { memory, permit_asked, upstream, replica, token, tasks, stop, _dir: dir };
        world.until("the replica knows everything", || world.replica.serving_since_now().is_some()).await;
        world
    }

    /// A request of a client, answered to its last byte.
    pub async fn ask(&self, stream: bool) -> (StatusCode, String) {
        let body = json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]});
        let request = Request::post("/v1/chat/completions")
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = router(self.replica.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The one source's breaker has been open for long: its next request is a probe.
    pub fn half_open(&self) {
        let (source, policy) = (waybill_event::Source { kind: SourceKind::Channel, id: 1 }, SelectorPolicy::default());
        let revisions = Revisions { credential: 1, base_url: 1 };
        let mut state = SourceState::new(source, revisions, policy, ConfigPosition(3));
        let began = LogTime::from_micros(1_790_000_000_000_000);
        state.whole.breaker.open("opening".into(), began, revisions, &policy.source_breaker);
        self.replica.views().replace(state);
    }

    /// The code of an error.
    pub fn code(body: &str) -> String {
        let body: Value = serde_json::from_str(body).unwrap();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// From now on the log takes nothing, or takes everything again.
    pub fn log_takes(&self, everything: bool) {
        self.memory.set_max_bytes(Stream::Traffic, u64::from(!everything));
    }

    /// Whether the log has everything that was written.
    pub fn all_acknowledged(&self) -> bool {
        let outbox = self.replica.outbox().status();
        outbox.acknowledged == outbox.appended
    }

    /// Leaves no room in the outbox but what is promised.
    pub fn fill_outbox(&self) {
        let drained =
            OutboxDrained { replica: "proxy-9".parse().unwrap(), boot: Boot::new(self.memory.now(), 9), last: 0 };
        let event = Draft::new(self.memory.now(), drained).encode().unwrap();
        while self.replica.outbox().append(std::slice::from_ref(&event)).is_ok() {}
    }

    /// Types of the events of requests that are in the log.
    pub async fn recorded(&self) -> Vec<String> {
        let messages = self.memory.journal().log.read(Stream::Traffic, 1, 1_000).await.unwrap();
        let events = messages.iter().flat_map(|message| decode_batch(&message.payload).unwrap()).map(Result::unwrap);
        events.filter(|event| event.draft.request.is_some()).map(|event| event.draft.body.kind()).collect()
    }

    /// Value of a metric.
    pub fn metric(&self, line: &str) -> u64 {
        let text = self.replica.metrics().render(Readings::default());
        let found = text.lines().find_map(|one| one.strip_prefix(line));
        found.map_or(0, |value| value.trim().parse().unwrap())
    }

    pub async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never: {what}");
    }

    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.unwrap();
        self.upstream.stop().await;
    }
}

async fn configure(memory: &Memory, upstream: &ScriptedUpstream, peppers: &Peppers, token: &str, revision: u64) {
    let group = GroupId::new(1);
    let default = Group { id: group, name: "default".to_owned(), enabled: true, version: 1 };
    edit(memory, ConfigChange::Group(created(default))).await;
    let hash = peppers.hash(token);
    let hash = StoredHash { pepper: hash.pepper.as_str().to_owned(), mac: hash.mac_text() };
    let key = Key {
        id: KeyId::new(1),
        name: "client".to_owned(),
        group,
        prefix: "wb-key".to_owned(),
        hash,
        models: Vec::new(),
        expires_at: None,
        limits: Default::default(),
        user_limits: Default::default(),
        enabled: true,
        version: 1,
    };
    edit(memory, ConfigChange::Key(created(key))).await;
    let channel = Channel {
        id: ChannelId::new(1),
        name: SOURCE.to_owned(),
        provider: "openai".to_owned(),
        base_url: upstream.base_url(SOURCE),
        base_url_revision: 1,
        credential: Some(CredentialRef { revision, fingerprint: "f".to_owned() }),
        models: vec![ChannelModel::named("m")],
        groups: vec![group],
        priority: 100,
        weight: 1,
        limits: Limited::default(),
        multiplier_milli: 1_000,
        allow_private: true,
        probe: Default::default(),
        enabled: true,
        version: 1,
    };
    edit(memory, ConfigChange::Channel(created(channel))).await;
}
