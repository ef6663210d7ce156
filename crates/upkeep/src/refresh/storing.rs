//! Refreshed tokens on their way into the log: none is lost, and none overwrites what an operator has imported meanwhile.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use waybill_domain::catalog::SourceEntity;
use waybill_event::ConfigPosition;
use waybill_event::control::RefreshReason;
use waybill_journal::log::AppendError;
use waybill_journal::{Expect, Record, Stream};
use waybill_secret::vault::shown;
use waybill_secret::{ACCOUNT, Vault};

use super::Refresher;
use super::one::{Came, Done};
use super::spool::Kept;

/// Pause after the log hasn't answered.
const AGAIN: Duration = Duration::from_millis(500);

/// What became of tokens that were to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// They are in the log at this revision.
    At(u64),
    /// Others of the same login are newer, or the account goes by another login.
    Superseded,
    /// The process stops; they wait on disk for its next start.
    Stopped,
}

/// What stands under the account's subject now.
enum Stands {
    /// These very tokens.
    These(u64),
    /// Others of the same login, newer than those that these replace.
    Newer,
    /// Something else, at this sequence.
    Other(u64),
}

impl Refresher {
    /// Stores what an earlier start got.
    pub(super) async fn store_found(
        &self,
        kept: Kept,
        entity: Option<SourceEntity>,
        config: ConfigPosition,
        stop: CancellationToken,
    ) -> Done {
        let account = kept.account;
        let kept = Kept { why: RefreshReason::Recovered, ..kept };
        let named = entity.as_ref().and_then(|entity| Some(entity.credential()?.revision));
        let came = match self.store(&kept, named, &stop).await {
            Stored::At(revision) => {
                self.tell_refreshed(&kept, revision, entity.as_ref(), config, Duration::ZERO);
                self.spool.forget(account);
                Came::Refreshed
            }
            Stored::Superseded => {
                tracing::warn!(account, "tokens of an earlier start are of no use any more");
                self.spool.forget(account);
                Came::Newer
            }
            Stored::Stopped => Came::Newer,
        };
        Done { account, why: RefreshReason::Recovered, came }
    }

    /// Stores tokens, however long that takes. `named` is the login that the catalogue names; nothing is stored for an
    /// account that goes by another one, or is gone.
    pub(super) async fn store(&self, kept: &Kept, named: Option<u64>, stop: &CancellationToken) -> Stored {
        let subject = Vault::subject(ACCOUNT, kept.account);
        let payload = Bytes::from(kept.message.clone());
        let mut expected = kept.replaces;
        if named != Some(kept.login) {
            return Stored::Superseded;
        }
        loop {
            let message_id = Some(kept.message_id.clone());
            let record = Record { subject: subject.clone(), message_id, payload: payload.clone() };
            let expect = Expect::LastOfSubject(expected);
            let fault = match self.journal.log.append(Stream::Secret, record, expect).await {
                Ok(appended) => {
                    if let Err(error) = self.vault.take(&subject, appended.sequence, &payload) {
                        tracing::error!(%error, "refreshed tokens can't be opened");
                    }
                    return Stored::At(appended.sequence);
                }
                Err(AppendError::Conflict) => match self.stands(kept, &subject, &payload).await {
                    Ok(Stands::These(sequence)) => return Stored::At(sequence),
                    Ok(Stands::Newer) => return Stored::Superseded,
                    // An import that no edit names yet, or that was taken back: both stand side by side.
                    Ok(Stands::Other(sequence)) if sequence != expected => {
                        expected = sequence;
                        continue;
                    }
                    Ok(Stands::Other(_)) => "the log contradicts itself".to_owned(),
                    Err(fault) => fault,
                },
                Err(error) => error.to_string(),
            };
            tracing::warn!(account = kept.account, fault, "refreshed tokens can't be stored yet");
            tokio::select! {
                () = stop.cancelled() => return Stored::Stopped,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    async fn stands(&self, kept: &Kept, subject: &str, payload: &Bytes) -> Result<Stands, String> {
        let last = self.journal.log.last_of_subject(Stream::Secret, subject).await.map_err(|e| e.to_string())?;
        let Some(last) = last else { return Ok(Stands::Other(0)) };
        if last.payload == *payload {
            return Ok(Stands::These(last.sequence));
        }
        let login = shown(&last.payload).map(|shown| shown.login.unwrap_or(last.sequence));
        if login == Some(kept.login) && last.sequence > kept.replaces {
            return Ok(Stands::Newer);
        }
        Ok(Stands::Other(last.sequence))
    }
}
