//! Upkeep over the log in memory and a scripted upstream.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::selector::state::Disabled;
use waybill_domain::selector::{Revisions, SourceState};
use waybill_event::config::{
    Change, Changed, Channel, ChannelModel, CheckBy, ConfigChange, CredentialRef, Intervention, Limits, ProbeSettings,
    SelectorPolicy,
};
use waybill_event::control::{ProbeFinished, ProbeOf, SourceChecked};
use waybill_event::failure::{BlockVerdict, Recovery};
use waybill_event::{
    Body, Boot, ChannelId, ConfigPosition, Draft, Event, FailureKind, Identity, LogTime, Scope, Source, decode_batch,
};
use waybill_journal::memory::Memory;
use waybill_journal::outbox::{Outbox, OutboxConfig};
use waybill_journal::{Bucket, Expect, Held, Journal, Record, Stream};
use waybill_scripted_upstream::{After, Fault, Reply, Script, ScriptedUpstream, Source as Scripted, Then};
use waybill_secret::{KeyRing, SecretString, Vault};
use waybill_upkeep::{Parts, Rhythm, Status, Upkeep};
use waybill_upstream::{DispatchConfig, Dispatcher};

const PATIENCE: Duration = Duration::from_secs(10);

fn clock() -> waybill_journal::outbox::Clock {
    let origin = std::time::Instant::now();
    Arc::new(move || LogTime::from_micros(1_790_812_800_000_000) + origin.elapsed())
}

/// A world with one channel, and as many upkeep processes as wanted.
struct World {
    journal: Journal,
    clock: waybill_journal::outbox::Clock,
    ring: SecretString,
    upstream: ScriptedUpstream,
    revision: u64,
    version: u64,
    models: Vec<&'static str>,
    probe: ProbeSettings,
    dir: tempfile::TempDir,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl World {
    async fn new(source: Scripted) -> Self {
        let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let clock = clock();
        let memory = Memory::new(clock.clone());
        let ring = SecretString::from(format!("k1:{}", "A".repeat(43)));
        let vault = Vault::new(KeyRing::parse(&ring).unwrap());
        let sealed = vault.seal("channel", 1, &SecretString::from("sk-upstream")).unwrap();
        let record = Record { subject: Vault::subject("channel", 1), message_id: None, payload: Bytes::from(sealed) };
        let journal = memory.journal();
        let revision = journal.log.append(Stream::Secret, record, Expect::Anything).await.unwrap().sequence;
        let upstream = ScriptedUpstream::start(Script::new().source("a", source)).await.unwrap();
        let mut world = Self {
            journal,
            clock,
            ring,
            upstream,
            revision,
            version: 0,
            models: vec!["small", "large"],
            probe: ProbeSettings::default(),
            dir: tempfile::tempdir().unwrap(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        world.edit(true).await;
        world
    }

    /// The channel is created or edited.
    async fn edit(&mut self, enabled: bool) {
        self.version += 1;
        let channel = Channel {
            id: ChannelId::new(1),
            name: "a".to_owned(),
            provider: "openai".to_owned(),
            base_url: self.upstream.base_url("a"),
            base_url_revision: 1,
            credential: Some(CredentialRef { revision: self.revision, fingerprint: "f".to_owned() }),
            models: self.models.iter().map(|name| ChannelModel::named(*name)).collect(),
            groups: Vec::new(),
            priority: 100,
            weight: 1,
            limits: Limits::default(),
            multiplier_milli: 1_000,
            allow_private: true,
            probe: self.probe.clone(),
            enabled,
            version: self.version,
        };
        let change = if self.version == 1 { Change::Created } else { Change::Edited };
        let body = ConfigChange::Channel(Changed { change, changed: Vec::new(), state: channel });
        self.append(&format!("edit-{}", self.version), body).await;
    }

    /// An operator asks for a probe.
    async fn ask_for_probe(&self, version: u64) {
        let scope = Scope { source: Source::from(ChannelId::new(1)), model: None };
        let state = Intervention { scope, held: None, reset: 0, lifted: 0, probe: Some((self.clock)()), version };
        let change = if version == 1 { Change::Created } else { Change::Edited };
        let body = ConfigChange::Intervention(Changed { change, changed: Vec::new(), state });
        self.append(&format!("asked-{version}"), body).await;
    }

    async fn append(&self, id: &str, body: ConfigChange) {
        let (entity, of) = body.subject();
        let subject = format!("wb.config.{entity}.{of}");
        let event = Event {
            identity: Identity::Derived { id: id.to_owned(), producer: "admin-1".parse().unwrap() },
            draft: Draft::new((self.clock)(), body),
        };
        let record = Record { subject, message_id: None, payload: Bytes::from(event.encode().unwrap()) };
        self.journal.log.append(Stream::Config, record, Expect::Anything).await.unwrap();
    }

    /// The fold publishes the channel's state.
    async fn publish(&self, disabled: Option<Recovery>) {
        let source = Source::from(ChannelId::new(1));
        let revisions = Revisions { credential: self.revision, base_url: 1 };
        let mut state = SourceState::new(source, revisions, SelectorPolicy::default(), ConfigPosition(1));
        state.disabled = disabled.map(|recovery| Disabled {
            id: "source:channel:1@proxy-1:00000000000000000000:7".into(),
            kind: FailureKind::AuthInvalid,
            recovery,
            since: (self.clock)(),
            revisions,
        });
        let value = Bytes::from(serde_json::to_vec(&state).unwrap());
        self.journal.keyed.write(Bucket::Selector, "channel.1", value, Held::Anything, None).await.unwrap();
    }

    fn start(&self, name: &str, rhythm: Rhythm) -> Arc<Upkeep> {
        let config = OutboxConfig::new(
            self.dir.path().join(name),
            name.parse().unwrap(),
            "wb.traffic.0.upkeep",
            self.clock.clone(),
        );
        let (outbox, publisher) = Outbox::open(config, Boot::new((self.clock)(), 1)).unwrap();
        self.tasks.spawn(publisher.run(self.journal.log.clone(), self.stop.clone()));
        let upkeep = Arc::new(Upkeep::new(Parts {
            journal: self.journal.clone(),
            outbox,
            clock: self.clock.clone(),
            vault: Arc::new(Vault::new(KeyRing::parse(&self.ring).unwrap())),
            dispatcher: Dispatcher::new(&DispatchConfig::default()).unwrap(),
            rhythm,
        }));
        let (running, stop) = (upkeep.clone(), self.stop.clone());
        self.tasks.spawn(async move { running.run(stop).await });
        upkeep
    }

    async fn told(&self) -> Vec<Body> {
        let messages = self.journal.log.read(Stream::Traffic, 1, 500).await.unwrap();
        let events = messages.iter().flat_map(|message| decode_batch(&message.payload).unwrap());
        events.map(|event| event.unwrap().draft.body).collect()
    }

    async fn results(&self) -> Vec<ProbeFinished> {
        let told = self.told().await.into_iter();
        told.filter_map(|body| if let Body::ProbeFinished(finished) = body { Some(finished) } else { None }).collect()
    }

    async fn checks(&self) -> Vec<SourceChecked> {
        let told = self.told().await.into_iter();
        told.filter_map(|body| if let Body::SourceChecked(checked) = body { Some(checked) } else { None }).collect()
    }

    async fn wait_for_checks(&self, count: usize) -> Vec<SourceChecked> {
        let waiting = async {
            loop {
                let checks = self.checks().await;
                if checks.len() >= count {
                    return checks;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the checks come in time")
    }

    async fn wait_for_results(&self, count: usize) -> Vec<ProbeFinished> {
        let waiting = async {
            loop {
                let results = self.results().await;
                if results.len() >= count {
                    return results;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the results come in time")
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.expect("every task ends");
        self.upstream.stop().await;
    }
}

async fn wait_until(upkeep: &Upkeep, holds: impl Fn(&Status) -> bool) -> Status {
    let waiting = async {
        loop {
            let status = upkeep.status();
            if holds(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("not in time: {:?}", upkeep.status()))
}

fn quick() -> Rhythm {
    Rhythm { first: Duration::from_millis(40), longest: Duration::from_millis(160), each: Duration::from_secs(1) }
}

fn dead() -> Reply {
    serde_json::from_value(serde_json::json!({
        "status": 401,
        "body": {"json": {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}},
    }))
    .unwrap()
}

fn fine() -> Reply {
    serde_json::from_value(serde_json::json!({"body": {"chat": {"words": 1}}})).unwrap()
}

#[tokio::test]
async fn a_disabled_source_is_probed_until_it_works() {
    let world = World::new(Scripted::default().times(2, &dead()).then(fine())).await;
    world.publish(Some(Recovery::Probe)).await;
    let upkeep = world.start("upkeep-1", quick());
    let results = world.wait_for_results(3).await;
    let told: Vec<_> = results.iter().take(3).map(|r| (r.ok, r.kind)).collect();
    let auth = FailureKind::AuthInvalid;
    assert_eq!(told, [(false, auth), (false, auth), (true, FailureKind::Success)]);
    let disabling = "source:channel:1@proxy-1:00000000000000000000:7".to_owned();
    assert_eq!(results[0].probe, ProbeOf::Disabled { disabling });
    assert_eq!((results[0].credential_revision, results[0].base_url_revision), (world.revision, 1));
    let calls = world.upstream.calls_of("a");
    let body = calls[0].json();
    assert_eq!((&body["max_tokens"], &body["model"]), (&serde_json::json!(1), &serde_json::json!("small")));
    assert_eq!(calls[1].json()["model"], "large", "another model each time");
    assert_eq!(calls[0].header("authorization"), Some("Bearer sk-upstream"));
    world.publish(None).await;
    let status = wait_until(&upkeep, |status| status.disabled == 0 && status.under_way == 0).await;
    assert!(status.is_ready(), "{status:?}");
    world.end().await;
}

#[tokio::test]
async fn two_processes_probe_as_one() {
    let world = World::new(Scripted::default().then(dead())).await;
    world.publish(Some(Recovery::Probe)).await;
    let rhythm = Rhythm { first: Duration::from_millis(150), longest: Duration::from_millis(150), ..quick() };
    let _one = world.start("upkeep-1", rhythm);
    let _two = world.start("upkeep-2", rhythm);
    world.wait_for_results(4).await;
    assert_eq!(world.upstream.most_in_flight("a"), 1);
    let received: Vec<_> = world.upstream.calls_of("a").iter().map(|call| call.received).collect();
    let shortest = received.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(shortest >= Duration::from_millis(140), "{shortest:?}");
    world.end().await;
}

#[tokio::test]
async fn what_is_not_for_probes_is_left_alone() {
    let mut world = World::new(Scripted::default().then(fine())).await;
    world.publish(Some(Recovery::Operator)).await;
    let upkeep = world.start("upkeep-1", quick());
    let ready = |status: &Status| status.is_ready();
    assert_eq!(wait_until(&upkeep, ready).await.disabled, 0, "only an operator may bring it back");
    world.edit(false).await;
    world.publish(Some(Recovery::Probe)).await;
    wait_until(&upkeep, |status| status.catalog_position == ConfigPosition(2)).await;
    assert_eq!(world.results().await, []);
    world.edit(true).await;
    let results = world.wait_for_results(1).await;
    assert!(results[0].ok, "an edit that enables it lets it be probed at once");
    world.end().await;
}

#[tokio::test]
async fn without_its_credential_nothing_is_sent() {
    let mut world = World::new(Scripted::default().then(fine())).await;
    world.revision += 1;
    world.edit(true).await;
    world.publish(Some(Recovery::Probe)).await;
    let upkeep = world.start("upkeep-1", quick());
    wait_until(&upkeep, |status| status.unready > 0).await;
    assert!(world.upstream.calls().is_empty());
    assert_eq!(world.results().await, []);
    world.end().await;
}

#[tokio::test]
async fn an_operator_need_not_wait_for_the_next_probe() {
    let world = World::new(Scripted::default().times(1, &dead()).then(fine())).await;
    world.publish(Some(Recovery::Probe)).await;
    let hour = Duration::from_secs(3_600);
    let _upkeep = world.start("upkeep-1", Rhythm { first: hour, longest: hour, ..quick() });
    world.ask_for_probe(1).await;
    let first = world.wait_for_results(1).await;
    assert_eq!((first[0].ok, first[0].rule.as_deref().map(|rule| rule.starts_with("code/auth"))), (false, Some(true)));
    assert_eq!(first[0].message.as_deref(), Some("Incorrect API key provided"));
    world.ask_for_probe(2).await;
    assert!(world.wait_for_results(2).await[1].ok);
    assert_eq!(world.upstream.calls_of("a").len(), 2);
    world.end().await;
}

fn gone() -> Reply {
    let body = serde_json::json!({"error": {"message": "The model does not exist", "code": "model_not_found"}});
    serde_json::from_value(serde_json::json!({"status": 404, "body": {"json": body}})).unwrap()
}

#[tokio::test]
async fn one_probe_asks_a_few_models_before_it_says_no() {
    let mut world = World::new(Scripted::default().times(1, &gone()).then(fine())).await;
    world.models = vec!["dall-e-3", "retired", "small"];
    world.edit(true).await;
    world.publish(Some(Recovery::Probe)).await;
    let _upkeep = world.start("upkeep-1", quick());
    let results = world.wait_for_results(1).await;
    assert_eq!((results[0].ok, results[0].upstream_model.as_deref()), (true, Some("small")));
    let asked: Vec<_> = world.upstream.calls_of("a").iter().map(|call| call.json()["model"].clone()).collect();
    assert_eq!(asked, ["retired", "small"]);
    world.end().await;
}

#[tokio::test]
async fn a_model_that_is_slow_hides_no_good_credential() {
    let slow = Reply { fault: Some(Fault { after: After::Request, then: Then::Hang }), ..Reply::default() };
    let world = World::new(Scripted::default().times(1, &slow).then(fine())).await;
    world.publish(Some(Recovery::Probe)).await;
    let _upkeep = world.start("upkeep-1", Rhythm { each: Duration::from_millis(200), ..quick() });
    let results = world.wait_for_results(1).await;
    assert_eq!((results[0].ok, results[0].upstream_model.as_deref()), (true, Some("large")));
    world.end().await;
}

#[tokio::test]
async fn a_source_that_serves_is_checked_where_that_is_wanted() {
    let mut world = World::new(Scripted::default().times(2, &dead()).then(fine())).await;
    world.probe =
        ProbeSettings { model: Some("large".to_owned()), check_every_s: Some(10), ..ProbeSettings::default() };
    world.edit(true).await;
    world.publish(None).await;
    let upkeep = world.start("upkeep-1", quick());
    wait_until(&upkeep, |status| status.checks == 1).await;
    let first = world.wait_for_checks(1).await;
    assert_eq!((first[0].ok, first[0].kind, first[0].evidence.clone()), (false, FailureKind::AuthInvalid, None));
    assert_eq!(world.upstream.calls_of("a")[0].json()["model"], "large");
    assert_eq!(upkeep.status().checks_failed, 1);
    world.end().await;
}

#[tokio::test]
async fn a_check_that_counts_says_what_an_attempt_would_have_said() {
    let mut world = World::new(Scripted::default().then(dead())).await;
    world.probe = ProbeSettings { check_every_s: Some(10), checks_count: true, ..ProbeSettings::default() };
    world.edit(true).await;
    let upkeep = world.start("upkeep-1", quick());
    wait_until(&upkeep, |status| status.checks == 1).await;
    let evidence = world.wait_for_checks(1).await[0].evidence.clone().unwrap();
    assert_eq!(evidence.upstream_model, "small");
    assert_eq!(evidence.block, Some(BlockVerdict::Disable { recovery: Recovery::Probe }));
    world.end().await;
}

#[tokio::test]
async fn a_web_page_is_no_list_of_models() {
    let mut world = World::new(Scripted { models_reply: Some(Reply::html(200)), ..Scripted::default() }).await;
    world.probe = ProbeSettings { check_every_s: Some(10), check_by: CheckBy::Models, ..ProbeSettings::default() };
    world.edit(true).await;
    let upkeep = world.start("upkeep-1", quick());
    wait_until(&upkeep, |status| status.checks_failed == 1).await;
    let checks = world.wait_for_checks(1).await;
    assert_eq!((checks[0].ok, checks[0].kind), (false, FailureKind::MalformedResponse));
    assert!(checks[0].message.as_deref().is_some_and(|said| said.contains("invalid_response")), "{checks:?}");
    world.end().await;
}
