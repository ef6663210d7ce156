//! The way of an edit: decided on the own fold, appended on condition that the log hasn't moved, decided again when it
//! has, and read back when nobody could tell whether it was stored.

mod addresses;
mod tried;
pub mod wish;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waybill_domain::catalog::{Catalog, Rejection, subject};
use waybill_event::config::ConfigChange;
use waybill_event::{Actor, Body, ConfigPosition, Draft, Event, Identity, ProducerId, decode_one};
use waybill_journal::{AppendError, Expect, Log, ReadError, Record, Stream};
use waybill_secret::{RandomError, SealError};

use crate::clock::Clock;
use crate::fold::{Behind, Fold};

pub use wish::{ManifestWish, SourceWish, Wish};

/// How often an edit is decided again because others edited meanwhile.
const DECISIONS: usize = 5;
/// How often one append is sent while nobody can tell whether it was stored.
const SENDS: usize = 3;
/// Time the own fold gets to reach the log's end.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How many messages are read back when looking for an edit of unknown fate.
const READ_BACK: usize = 500;

/// Who edits, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Who.
    pub actor: Actor,
    /// Why, in their words.
    pub reason: Option<String>,
}

/// An edit that is in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Position of its last event; where nothing changed, the position it was decided at.
    pub position: ConfigPosition,
    /// What changed; empty when everything was so already.
    pub changes: Vec<ConfigChange>,
}

/// Why an edit didn't come about, or perhaps didn't.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The command is refused.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Others edited again and again.
    #[error("others edited configuration {DECISIONS} times meanwhile; try again")]
    Contended,
    /// The log can't be reached; nothing was stored.
    #[error("the log can't be reached: {reason}")]
    LogAway {
        /// What happened.
        reason: String,
    },
    /// The log fell silent; whether the edit was stored will show.
    #[error("the log fell silent: whether the edit was stored isn't known ({reason})")]
    FateUnknown {
        /// What happened.
        reason: String,
    },
    /// The log is full.
    #[error("the log is full")]
    LogFull,
    /// The log refused the edit.
    #[error("the log refused the edit: {reason}")]
    LogRefused {
        /// Its words.
        reason: String,
    },
    /// The own fold doesn't keep up.
    #[error("configuration isn't folded yet")]
    Behind(#[from] Behind),
    /// A credential can't be sealed.
    #[error("the credential can't be sealed")]
    Seal(#[source] SealError),
    /// There are no random bytes for a token.
    #[error("no token can be made")]
    Random(#[from] RandomError),
    /// An event can't be written.
    #[error("the edit can't be written as an event")]
    Encode(#[source] serde_json::Error),
}

impl From<ReadError> for EditError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable { reason } => Self::LogAway { reason },
            gap @ ReadError::Gap { .. } => Self::LogAway { reason: gap.to_string() },
        }
    }
}

/// Makes edits.
#[derive(Clone)]
pub struct Editor {
    log: Arc<dyn Log>,
    fold: Fold,
    producer: ProducerId,
    clock: Clock,
}

impl Editor {
    /// An editor that writes as `producer`.
    #[must_use]
    pub fn new(log: Arc<dyn Log>, fold: Fold, producer: ProducerId, clock: Clock) -> Self {
        Self { log, fold, producer, clock }
    }

    /// The catalogue as of the log's end.
    ///
    /// # Errors
    /// [`EditError::LogAway`], [`EditError::Behind`].
    pub async fn newest(&self) -> Result<Arc<Catalog>, EditError> {
        let bounds = self.log.bounds(Stream::Config).await?;
        Ok(self.fold.at(ConfigPosition(bounds.last), CATCH_UP).await?)
    }

    /// Makes a wish come true.
    ///
    /// # Errors
    /// [`EditError`].
    pub async fn edit(&self, author: &Author, wish: &mut dyn Wish) -> Result<Committed, EditError> {
        for _ in 0..DECISIONS {
            // Asking the log first tells a log that is away from an edit whose fate isn't known.
            let catalog = self.newest().await?;
            let changes = wish.decide(&catalog).await?;
            if changes.is_empty() {
                return Ok(Committed { position: catalog.position, changes });
            }
            let batch = self.batch(author, &changes)?;
            if let Some(position) = self.append(&batch, catalog.position).await? {
                self.fold.at(position, CATCH_UP).await?;
                for change in &changes {
                    let (entity, id) = change.subject();
                    let (done, version) = (change.change().as_str(), change.version());
                    tracing::info!(entity, id, done, version, position = position.0, "configuration edited");
                }
                return Ok(Committed { position, changes });
            }
        }
        Err(EditError::Contended)
    }

    fn batch(&self, author: &Author, changes: &[ConfigChange]) -> Result<Vec<Record>, EditError> {
        let at = (self.clock)();
        let record = |change: &ConfigChange| {
            let id = uuid::Uuid::now_v7().to_string();
            let mut draft = Draft::new(at, Body::from(change.clone()));
            draft.actor = Some(author.actor.clone());
            draft.reason.clone_from(&author.reason);
            let identity = Identity::Derived { id: id.clone(), producer: self.producer.clone() };
            let payload = Event { identity, draft }.encode().map_err(EditError::Encode)?;
            Ok(Record { subject: subject(change), message_id: Some(id), payload: Bytes::from(payload) })
        };
        changes.iter().map(record).collect()
    }

    /// Appends the batch if the log's end is still `after`. `None` when it has moved on.
    async fn append(&self, batch: &[Record], after: ConfigPosition) -> Result<Option<ConfigPosition>, EditError> {
        let mut silence = String::new();
        for _ in 0..SENDS {
            let sent = match batch {
                [one] => self.log.append(Stream::Config, one.clone(), Expect::LastInStream(after.0)).await,
                many => self.log.append_all(Stream::Config, many.to_vec(), after.0).await,
            };
            match sent {
                Ok(appended) => return Ok(Some(ConfigPosition(appended.sequence))),
                // After a silence the conflict may be with this very edit.
                Err(AppendError::Conflict) if silence.is_empty() => return Ok(None),
                Err(AppendError::Conflict) => return self.find(batch, after).await,
                Err(AppendError::Full) => return Err(EditError::LogFull),
                Err(AppendError::Refused { reason }) => return Err(EditError::LogRefused { reason }),
                Err(AppendError::Unknown { reason }) => {
                    tracing::warn!(reason, "the log fell silent over an edit; asking again");
                    silence = reason;
                }
            }
        }
        match self.find(batch, after).await {
            Ok(Some(position)) => Ok(Some(position)),
            // It may still arrive, so nobody may say that it wasn't stored.
            Ok(None) | Err(_) => Err(EditError::FateUnknown { reason: silence }),
        }
    }

    /// Looks for the batch's last event behind `after`.
    async fn find(&self, batch: &[Record], after: ConfigPosition) -> Result<Option<ConfigPosition>, EditError> {
        let wanted = batch.last().and_then(|record| record.message_id.as_deref());
        let messages = self.log.read(Stream::Config, after.0 + 1, READ_BACK).await?;
        let found = messages.iter().find(|message| {
            decode_one(&message.payload).is_ok_and(|event| Some(event.identity.to_string().as_str()) == wanted)
        });
        Ok(found.map(|message| ConfigPosition(message.sequence)))
    }
}
