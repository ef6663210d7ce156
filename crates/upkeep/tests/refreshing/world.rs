//! Accounts, an OAuth server that gives their tokens, and as many refreshers as wanted over one log in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::refreshing::{Mark, Wish, mark_key};
use waybill_event::config::{
    Account, Change, Changed, ChannelModel, ConfigChange, CredentialRef, Limits, Platform, ProbeSettings,
};
use waybill_event::control::{CredentialRefreshFailed, CredentialRefreshed};
use waybill_event::{AccountId, Body, Boot, Draft, Event, Identity, LogTime, decode_batch};
use waybill_journal::faulty::{Faults, Faulty};
use waybill_journal::memory::Memory;
use waybill_journal::outbox::{Clock, Outbox, OutboxConfig};
use waybill_journal::{Bucket, Expect, Held, Journal, Record, Stream};
use waybill_scripted_upstream::{Script, ScriptedUpstream, Terms, Tokens};
use waybill_secret::{ACCOUNT, AccountTokens, KeyRing, OauthCredential, Refreshing, SecretString, TokenBody, Vault};
use waybill_upkeep::{Pace, RefreshParts, RefreshStatus, Refresher};
use waybill_upstream::{DispatchConfig, Dispatcher};

pub const PATIENCE: Duration = Duration::from_secs(10);
pub const ACCOUNT_ID: u64 = 7;

pub struct World {
    pub journal: Journal,
    pub clock: Clock,
    pub upstream: ScriptedUpstream,
    ring: SecretString,
    version: u64,
    dir: tempfile::TempDir,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A refresher that runs, over a log that can be cut off.
pub struct Running {
    pub refresher: Arc<Refresher>,
    pub log: Faulty,
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    /// Ends it where it stands.
    pub async fn kill(self) {
        self.task.abort();
        let _cancelled = self.task.await;
    }

    /// Asks it to stop.
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops in time").unwrap();
    }

    pub fn cut_off(&self) {
        self.log.set(Faults { unavailable: 1.0, ..Faults::NONE });
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&RefreshStatus) -> bool) {
        until(what, async || holds(&self.refresher.status())).await;
    }
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// Quick where a test has to wait.
pub fn pace() -> Pace {
    Pace {
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(200),
        least: Duration::from_millis(20),
        answer: Duration::from_secs(5),
        return_of_others: Duration::from_secs(60),
        ..Pace::default()
    }
}

impl World {
    pub async fn new() -> Self {
        let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let origin = std::time::Instant::now();
        let clock: Clock = Arc::new(move || LogTime::from_micros(1_790_812_800_000_000) + origin.elapsed());
        let memory = Memory::new(clock.clone());
        Self {
            journal: memory.journal(),
            clock,
            upstream: ScriptedUpstream::start(Script::new()).await.unwrap(),
            ring: SecretString::from(format!("k1:{}", "A".repeat(43))),
            version: 0,
            dir: tempfile::tempdir().unwrap(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    pub fn vault(&self) -> Vault {
        Vault::new(KeyRing::parse(&self.ring).unwrap())
    }

    /// A login at the OAuth server, as it is imported.
    pub fn login(&self, terms: Terms) -> OauthCredential {
        let Tokens { access, refresh, expires_in } = self.upstream.issuer().login("a", terms);
        let issued_ms = (self.clock)().as_millis();
        OauthCredential {
            access: SecretString::from(access),
            issued_ms,
            expires_ms: Some(issued_ms + i64::try_from(expires_in).unwrap() * 1_000),
            scopes: Vec::new(),
            refreshing: Some(Refreshing {
                token: SecretString::from(refresh),
                endpoint: self.upstream.token_endpoint(),
                body: TokenBody::Form,
                client_id: None,
                client_secret: None,
            }),
        }
    }

    /// Stores an operator's import; gives its revision.
    pub async fn import(&self, credential: &OauthCredential) -> u64 {
        let sealed = self.vault().seal_account(ACCOUNT_ID, credential, None).unwrap();
        let subject = Vault::subject(ACCOUNT, ACCOUNT_ID);
        let record = Record { subject, message_id: None, payload: Bytes::from(sealed) };
        self.journal.log.append(Stream::Secret, record, Expect::Anything).await.unwrap().sequence
    }

    /// The account is created, or edited, to go by this import.
    pub async fn edit(&mut self, login: u64, enabled: bool) {
        let change = if self.version == 0 { Change::Created } else { Change::Edited };
        self.write(change, login, enabled).await;
    }

    async fn write(&mut self, change: Change, login: u64, enabled: bool) {
        self.version += 1;
        let account = Account {
            id: AccountId::new(ACCOUNT_ID),
            name: "a".to_owned(),
            platform: Platform::Generic,
            base_url: self.upstream.base_url("a"),
            base_url_revision: 1,
            credential: Some(CredentialRef { revision: login, fingerprint: "f".to_owned() }),
            models: vec![ChannelModel::named("m")],
            groups: Vec::new(),
            priority: 0,
            weight: 1,
            limits: Limits::default(),
            session_window: None,
            allow_private: true,
            probe: ProbeSettings::default(),
            enabled,
            version: self.version,
        };
        let body = ConfigChange::Account(Changed { change, changed: Vec::new(), state: account });
        let (entity, of) = body.subject();
        let subject = format!("wb.config.{entity}.{of}");
        let identity = Identity::Derived { id: format!("edit-{}", self.version), producer: "admin-1".parse().unwrap() };
        let event = Event { identity, draft: Draft::new((self.clock)(), body) };
        let record = Record { subject, message_id: None, payload: Bytes::from(event.encode().unwrap()) };
        self.journal.log.append(Stream::Config, record, Expect::Anything).await.unwrap();
    }

    /// The account is deleted.
    pub async fn delete(&mut self, login: u64) {
        self.write(Change::Deleted, login, false).await;
    }

    /// A world whose account has just been imported.
    pub async fn with_account(terms: Terms) -> (Self, u64) {
        let mut world = Self::new().await;
        let login = world.import(&world.login(terms)).await;
        world.edit(login, true).await;
        (world, login)
    }

    pub async fn mark(&self, revision: u64, why: Wish) {
        let mark = Mark { revision, why, replica: "proxy-1".parse().unwrap() };
        let value = Bytes::from(serde_json::to_vec(&mark).unwrap());
        let ttl = Some(Duration::from_secs(10));
        let keyed = &self.journal.keyed;
        keyed.write(Bucket::Permits, &mark_key(ACCOUNT_ID), value, Held::Anything, ttl).await.unwrap();
    }

    /// Starts a refresher; one that was started before under the same name left its folder.
    pub fn start(&self, name: &str) -> Running {
        self.start_at(name, pace())
    }

    pub fn start_at(&self, name: &str, pace: Pace) -> Running {
        let config = OutboxConfig::new(
            self.dir.path().join(format!("{name}-{}", (self.clock)().as_micros())),
            name.parse().unwrap(),
            "wb.traffic.0.upkeep",
            self.clock.clone(),
        );
        let (outbox, publisher) = Outbox::open(config, Boot::new((self.clock)(), 1)).unwrap();
        self.tasks.spawn(publisher.run(self.journal.log.clone(), self.stop.clone()));
        let log = Faulty::over(self.journal.clone(), Faults::NONE, 1);
        let refresher = Arc::new(
            Refresher::new(RefreshParts {
                journal: log.journal(),
                outbox,
                clock: self.clock.clone(),
                vault: Arc::new(self.vault()),
                dispatcher: Dispatcher::new(&DispatchConfig::default()).unwrap(),
                pace,
                dice: waybill_journal::dice::system(),
                dir: self.dir.path().join(format!("{name}-refreshed")),
            })
            .unwrap(),
        );
        let stop = self.stop.child_token();
        let (running, stopping) = (refresher.clone(), stop.clone());
        let task = self.tasks.spawn(async move { running.run(stopping).await });
        Running { refresher, log, task, stop }
    }

    /// Where a refresher keeps what it got and couldn't store yet.
    pub fn kept(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(format!("{name}-refreshed/{ACCOUNT_ID}.json"))
    }

    /// The newest tokens of the account that are stored, with what a replica would use for this login.
    pub async fn stored(&self, login: u64) -> Option<AccountTokens> {
        let vault = self.vault();
        for message in self.journal.log.read(Stream::Secret, 1, 100).await.unwrap() {
            vault.take(&message.subject, message.sequence, &message.payload).unwrap();
        }
        vault.account(ACCOUNT_ID, login)
    }

    /// Waits until the tokens in use for this login are others than those of this revision.
    pub async fn refreshed(&self, login: u64, before: u64) -> AccountTokens {
        until("new tokens are stored", async || self.stored(login).await.unwrap().revision > before).await;
        self.stored(login).await.unwrap()
    }

    async fn told(&self) -> Vec<Body> {
        let messages = self.journal.log.read(Stream::Traffic, 1, 500).await.unwrap();
        let events = messages.iter().flat_map(|message| decode_batch(&message.payload).unwrap());
        events.map(|event| event.unwrap().draft.body).collect()
    }

    pub async fn told_refreshed(&self, count: usize) -> Vec<CredentialRefreshed> {
        let of = |body| if let Body::CredentialRefreshed(told) = body { Some(told) } else { None };
        until("refreshes are told", async || self.told().await.into_iter().filter_map(of).count() >= count).await;
        self.told().await.into_iter().filter_map(of).collect()
    }

    pub async fn told_failed(&self) -> Vec<CredentialRefreshFailed> {
        let of = |body| if let Body::CredentialRefreshFailed(told) = body { Some(told) } else { None };
        self.told().await.into_iter().filter_map(of).collect()
    }

    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(PATIENCE, self.tasks.wait()).await.expect("every task ends");
        self.upstream.stop().await;
    }
}
