//! What all requests of a replica share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use foldhash::HashMap;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use waybill_domain::catalog::{Snapshot, SourceEntity};
use waybill_domain::refreshing::Wish;
use waybill_event::config::{Key, StoredHash};
use waybill_event::selection::SkipReason;
use waybill_event::{LogTime, RequestId, Source, SourceKind, UsageWindow};
use waybill_journal::dice::Dice;
use waybill_journal::outbox::Outbox;
use waybill_journal::presence::Others;
use waybill_journal::sticky::Bindings;
use waybill_secret::{Bearer, NoBearer, Peppers, Vault};
use waybill_upstream::{Dispatcher, Target};
use waybill_wire::endpoint::BaseUrl;

use crate::budgets::Budgets;
use crate::emit::Emitter;
use crate::gates::Gates;
use crate::headroom::Headroom;
use crate::metrics::Metrics;
use crate::probes::Probes;
use crate::recording::Recording;
use crate::relay::unread::Unread;
use crate::tables::Tables;
use crate::tokens::Tokens;
use crate::views::Views;

/// Tells the time of the log; `None` until the replica's clock has met the store's.
pub type Clock = Arc<dyn Fn() -> Option<LogTime> + Send + Sync>;

/// Limits of a replica.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest body of a request, in bytes.
    pub max_body_bytes: u64,
    /// Largest answer that is read whole, in bytes.
    pub max_answer_bytes: usize,
    /// Largest event of a stream, in bytes.
    pub max_frame_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_body_bytes: 32 << 20, max_answer_bytes: 32 << 20, max_frame_bytes: 4 << 20 }
    }
}

/// What a replica is built from.
pub struct Parts {
    /// The outbox.
    pub outbox: Outbox,
    /// The clock.
    pub clock: Clock,
    /// Opened credentials.
    pub vault: Arc<Vault>,
    /// Peppers of client keys.
    pub peppers: Arc<Peppers>,
    /// Sends attempts.
    pub dispatcher: Dispatcher,
    /// Claims probes.
    pub probes: Probes,
    /// Asks for accounts' next tokens.
    pub tokens: Tokens,
    /// Limits of sources, keys and users.
    pub gates: Gates,
    /// Where conversations are served.
    pub bindings: Bindings,
    /// How requests are recorded.
    pub recording: Recording,
    /// Limits.
    pub limits: Limits,
    /// Random numbers: parts of ids, phases of wheels, spread of waits.
    pub dice: Dice,
}

/// A source as an attempt needs it: there is none without a credential of that very source that held when it was made.
#[derive(Debug, Clone)]
pub(crate) struct Usable {
    /// The source, as it is configured.
    pub(crate) entity: SourceEntity,
    /// Where attempts go, and with which credential.
    pub(crate) target: Arc<Target>,
    /// Revision of that credential.
    pub(crate) revision: u64,
}

/// Why a source can't be dispatched to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// This replica doesn't have the credential that the catalogue names, or nobody could send it.
    NoCredential,
    /// The access token of this revision has expired, or was refused just now.
    Token {
        /// The revision.
        revision: u64,
        /// What upkeep is asked for.
        why: Wish,
    },
}

impl From<NoBearer> for Unusable {
    fn from(none: NoBearer) -> Self {
        match none {
            NoBearer::Missing => Self::NoCredential,
            NoBearer::Expired { revision } => Self::Token { revision, why: Wish::Expired },
        }
    }
}

/// What a target was made of: the version of its source's entity, and the revision of the credential.
type Made = (u64, u64);

/// One replica.
pub struct Replica {
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) views: Arc<Views>,
    pub(crate) tables: Tables,
    pub(crate) emitter: Emitter,
    pub(crate) clock: Clock,
    pub(crate) vault: Arc<Vault>,
    peppers: Arc<Peppers>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) metrics: Metrics,
    pub(crate) probes: Probes,
    pub(crate) tokens: Tokens,
    pub(crate) gates: Gates,
    pub(crate) bindings: Bindings,
    pub(crate) budgets: Budgets,
    pub(crate) headroom: Headroom,
    unread: Unread,
    pub(crate) recording: Recording,
    pub(crate) limits: Limits,
    pub(crate) dice: Dice,
    pub(crate) known: Known,
    targets: RwLock<HashMap<Source, (Made, Arc<Target>)>>,
    draining: AtomicBool,
    stopping: CancellationToken,
}

/// What the replica has learnt since its start; until all of it is known, it serves nobody.
#[derive(Debug, Default)]
pub struct Known {
    /// The catalogue was read to what was its end at the start.
    pub catalog: AtomicBool,
    /// So were the sealed credentials.
    pub credentials: AtomicBool,
    /// So was the selector's state.
    pub selector: AtomicBool,
}

impl Known {
    /// Whether a part is known.
    #[must_use]
    pub fn has(part: &AtomicBool) -> bool {
        part.load(Ordering::Acquire)
    }

    /// A part is known from now on.
    pub fn set(part: &AtomicBool) {
        part.store(true, Ordering::Release);
    }
}

impl Replica {
    /// A replica that knows nothing yet; the followers of [`crate::follow`] fill it.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let views =
            Arc::new(Views::new(parts.outbox.producer().clone(), parts.outbox.boot(), Some(parts.gates.clone())));
        Arc::new(Self {
            snapshot: ArcSwap::default(),
            views: views.clone(),
            tables: Tables::new(parts.dice.clone()),
            emitter: Emitter::new(parts.outbox, views),
            clock: parts.clock,
            vault: parts.vault,
            peppers: parts.peppers,
            dispatcher: parts.dispatcher,
            metrics: Metrics::new(),
            probes: parts.probes,
            tokens: parts.tokens,
            gates: parts.gates,
            bindings: parts.bindings,
            budgets: Budgets::new(),
            headroom: Headroom::default(),
            unread: Unread::default(),
            recording: parts.recording,
            limits: parts.limits,
            dice: parts.dice,
            known: Known::default(),
            targets: RwLock::default(),
            draining: AtomicBool::new(false),
            stopping: CancellationToken::new(),
        })
    }

    /// The catalogue in force.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// This replica's views.
    #[must_use]
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// The outbox.
    #[must_use]
    pub fn outbox(&self) -> &Outbox {
        self.emitter.outbox()
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Limits of sources, keys and users.
    #[must_use]
    pub const fn gates(&self) -> &Gates {
        &self.gates
    }

    /// Where conversations are served.
    #[must_use]
    pub const fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// What upstreams told of accounts' usage windows, as far as it holds.
    #[must_use]
    pub fn headroom(&self) -> BTreeMap<Source, Vec<UsageWindow>> {
        (self.clock)().map(|now| self.headroom.told(now)).unwrap_or_default()
    }

    /// Streams that are open.
    pub(crate) const fn unread(&self) -> &Unread {
        &self.unread
    }

    /// What the replica has learnt.
    #[must_use]
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// The time, if the replica knows everything that it needs to serve.
    #[must_use]
    pub fn serving_since_now(&self) -> Option<LogTime> {
        let known = &self.known;
        let all = Known::has(&known.catalog) && Known::has(&known.credentials) && Known::has(&known.selector);
        if all { (self.clock)() } else { None }
    }

    /// What the other replicas tell of themselves: what is the fleet's is shared with them.
    pub fn hear(&self, others: &Others) {
        self.views.hear(&others.busy);
        self.budgets.shared_by(others.count.saturating_add(1));
    }

    /// How many replicas serve, this one included, as far as it has heard.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.budgets.replicas()
    }

    /// The replica is on its way out: answers ask for their connection to be closed.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether it is on its way out.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Cancelled when what is still open must end: streams with the error event, whole answers with a refusal.
    #[must_use]
    pub const fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// An id for a request that arrives now.
    pub(crate) fn new_request(&self, now: LogTime) -> RequestId {
        let (high, low) = ((self.dice)().to_be_bytes(), (self.dice)().to_be_bytes());
        let mut random = [0; 10];
        for (slot, byte) in random.iter_mut().zip(high.into_iter().chain(low)) {
            *slot = byte;
        }
        RequestId::from_parts(now, random)
    }

    /// The client key that a token is for.
    #[must_use]
    pub(crate) fn key_of(&self, snapshot: &Snapshot, token: &str) -> Option<Arc<Key>> {
        self.peppers.hash_all(token).find_map(|hash| {
            let stored = StoredHash { pepper: hash.pepper.as_str().to_owned(), mac: hash.mac_text() };
            snapshot.key_by_hash(&stored).cloned()
        })
    }

    /// A source with what it takes to be dispatched to now.
    ///
    /// # Errors
    /// [`Unusable`].
    pub(crate) fn usable(&self, entity: &SourceEntity) -> Result<Usable, Unusable> {
        let (source, named) = (entity.source(), entity.credential().ok_or(Unusable::NoCredential)?.revision);
        // The tokens of an account are refreshed without an edit: the newest that descend from the ones named count.
        let bearer = match source.kind {
            SourceKind::Channel => None,
            SourceKind::Account => {
                let now = (self.clock)().ok_or(Unusable::NoCredential)?;
                let bearer = self.vault.of_account(source.id, named, now.as_millis())?;
                let revision = bearer.revision();
                if self.tokens.is_refused(source.id, revision) {
                    return Err(Unusable::Token { revision, why: Wish::Refused });
                }
                Some(bearer)
            }
        };
        let made = (entity.version(), bearer.as_ref().map_or(named, Bearer::revision));
        let usable = |target| Usable { entity: entity.clone(), target, revision: made.1 };
        if let Some((held, target)) = self.targets.read().get(&source)
            && *held == made
        {
            return Ok(usable(target.clone()));
        }
        let bearer = bearer.map_or_else(|| self.vault.of_channel(source.id, named), Ok)?;
        let base_url = BaseUrl::parse(entity.base_url()).map_err(|_| Unusable::NoCredential)?;
        let target = Target::new(source, base_url, &bearer, entity.allow_private());
        let target = Arc::new(target.map_err(|_| Unusable::NoCredential)?);
        self.targets.write().insert(source, (made, target.clone()));
        Ok(usable(target))
    }

    /// The same, where an account's next access token is waited for a little if the present one has expired.
    ///
    /// # Errors
    /// Why the source is passed over.
    pub(crate) async fn usable_soon(&self, entity: &SourceEntity) -> Result<Usable, SkipReason> {
        match self.usable(entity) {
            Ok(usable) => Ok(usable),
            Err(Unusable::NoCredential) => Err(SkipReason::NoCredential),
            Err(Unusable::Token { revision, why }) => {
                let now = self.vault.account(entity.id(), entity.credential().map_or(0, |named| named.revision));
                if !now.is_some_and(|tokens| tokens.shown.refreshable) {
                    return Err(SkipReason::CredentialExpired);
                }
                // It may be given another login meanwhile.
                let configured = || self.snapshot().catalog().entity(entity.source()).filter(SourceEntity::enabled);
                let there = || self.usable(&configured()?).ok();
                // Few requests get here; the others shouldn't carry the room for it.
                let waited = Box::pin(self.tokens.wait(entity.id(), (revision, why), there)).await;
                self.metrics.token_waited(waited.is_some());
                waited.ok_or(SkipReason::CredentialExpired)
            }
        }
    }

    /// An upstream has refused a credential that a refresh may mend: upkeep is asked for the next one.
    pub(crate) fn refused(&self, entity: &SourceEntity, revision: u64) {
        if let SourceEntity::Account(account) = entity {
            self.tokens.refused(account.id.get(), revision);
        }
    }

    /// Forgets the target of a source that is gone.
    pub(crate) fn forget_target(&self, source: Source) {
        self.targets.write().remove(&source);
        if source.kind == SourceKind::Account {
            self.tokens.forget(source.id);
            self.headroom.forget(source);
        }
    }
}
