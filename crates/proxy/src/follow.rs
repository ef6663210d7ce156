//! What keeps a replica current: followers of the catalogue, of the sealed credentials, of the selector's state and of the
//! other replicas' beats. Each runs until the replica stops; none of them is on a request's path.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;
use waybill_domain::catalog::{Applied, ReplacedSource, UnknownEdit};
use waybill_domain::refreshing;
use waybill_domain::selector::SourceState;
use waybill_event::{ConfigPosition, LogTime, Source, decode_one};
use waybill_journal::presence::Presence;
use waybill_journal::{Bucket, Journal, Message, Start, Stream, Watched};
use waybill_secret::Vault;

use crate::relay::unread;
use crate::replica::{Known, Replica};

/// Key of the fold's own checkpoint in the bucket of the selector's state.
const FOLD_KEY: &str = "_fold";
/// Pause after a failed question, before it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How often the other replicas' beats are taken up; they beat once a second.
const LISTEN: Duration = Duration::from_millis(500);

/// Follows `WB_CONFIG`. It is read whole rather than by its newest messages, so that ids, versions and the position in
/// force are those of the log.
pub async fn catalog(replica: Arc<Replica>, journal: Journal, stop: CancellationToken) {
    let Some(end) = end_of(&journal, Stream::Config, &stop).await else { return };
    let known = &replica.known.catalog;
    if end == 0 {
        Known::set(known);
    }
    let mut messages = journal.log.follow(Stream::Config, Start::LastPerSubject);
    while let Some(message) = until(&stop, messages.next()).await.flatten() {
        match message {
            Ok(message) => {
                let sequence = message.sequence;
                edit(&replica, &message);
                if sequence >= end && !Known::has(known) {
                    tracing::info!(position = sequence, "catalogue is known");
                    Known::set(known);
                }
            }
            Err(error) => tracing::warn!(%error, "the catalogue can't be followed just now"),
        }
    }
}

fn edit(replica: &Replica, message: &Message) {
    let at = ConfigPosition(message.sequence);
    let mut next = replica.snapshot().as_ref().clone();
    let applied = match decode_one(&message.payload) {
        Ok(event) => next.apply(&event, at),
        Err(error) => {
            tracing::error!(position = %at, %error, "an edit can't be read");
            next.block(UnknownEdit { position: at, kind: "unreadable".to_owned(), version: 0 });
            Applied::Blocked
        }
    };
    if let Some(edit) = next.blocked_by() {
        tracing::error!(position = %edit.position, kind = %edit.kind, version = edit.version, "the catalogue has stopped");
    }
    replica.snapshot.store(Arc::new(next));
    match applied {
        Applied::Source(ReplacedSource { new: Some(entity), .. }) => {
            replica.views.adopt(entity.source(), entity.revisions());
            replica.tokens.arrived();
        }
        Applied::Source(ReplacedSource { old: Some(entity), new: None }) => {
            replica.views.forget(entity.source());
            replica.forget_target(entity.source());
        }
        Applied::Source(ReplacedSource { old: None, new: None })
        | Applied::Known
        | Applied::Blocked
        | Applied::Group(_)
        | Applied::Key(_)
        | Applied::AdminToken(_)
        | Applied::Policy(_)
        | Applied::Route(_)
        | Applied::Price(_)
        | Applied::Intervention(_)
        | Applied::Rules(_) => {}
    }
    let snapshot = replica.snapshot();
    replica.gates.relimit(snapshot.catalog());
    replica.tables.retain(&snapshot);
}

/// Follows `WB_SECRET`.
pub async fn credentials(replica: Arc<Replica>, journal: Journal, stop: CancellationToken) {
    let Some(end) = end_of(&journal, Stream::Secret, &stop).await else { return };
    let known = &replica.known.credentials;
    if end == 0 {
        Known::set(known);
    }
    // Two messages a subject are kept and both may be named by the catalogue, so it is read from its beginning.
    let mut messages = journal.log.follow(Stream::Secret, Start::At(1));
    while let Some(message) = until(&stop, messages.next()).await.flatten() {
        match message {
            Ok(message) => {
                credential(&replica, &message);
                if message.sequence >= end && !Known::has(known) {
                    tracing::info!("credentials are known");
                    Known::set(known);
                }
            }
            Err(error) => tracing::warn!(%error, "sealed credentials can't be followed just now"),
        }
    }
}

fn credential(replica: &Replica, message: &Message) {
    if let Err(error) = replica.vault.take(&message.subject, message.sequence, &message.payload) {
        tracing::error!(%error, "a sealed credential can't be used");
        return;
    }
    let Some(account) = Vault::account_of(&message.subject) else { return };
    let Some(tokens) = replica.vault.newest_of_account(account) else { return };
    // What an import makes void, the edit that names it says; a refresh is named by none.
    if tokens.shown.login.is_some() {
        let since = LogTime::from_micros(tokens.shown.issued_ms.saturating_mul(1_000));
        replica.views.refreshed(refreshing::source(account), tokens.revision, since);
    }
    replica.tokens.arrived();
}

/// Watches the selector's state.
pub async fn selector(replica: Arc<Replica>, journal: Journal, stop: CancellationToken) {
    let mut changes = journal.keyed.watch(Bucket::Selector);
    while let Some(change) = until(&stop, changes.next()).await.flatten() {
        match change {
            Ok(Watched::Put(entry)) if entry.key == FOLD_KEY => {}
            Ok(Watched::Put(entry)) => match serde_json::from_slice::<SourceState>(&entry.value) {
                Ok(state) => replica.views.replace(state),
                Err(error) => tracing::error!(key = entry.key, %error, "a state of the selector can't be read"),
            },
            Ok(Watched::Gone { key, .. }) => {
                if let Ok(source) = key.parse::<Source>() {
                    tracing::debug!(%source, "the selector has forgotten a source");
                }
            }
            Ok(Watched::Current) => {
                if !replica.known.selector.swap(true, Ordering::AcqRel) {
                    tracing::info!("the selector's state is known");
                }
            }
            Err(error) => tracing::warn!(%error, "the selector's state can't be watched just now"),
        }
    }
}

/// Takes up what the other replicas tell of themselves.
pub async fn others(replica: Arc<Replica>, presence: Arc<Presence>, stop: CancellationToken) {
    loop {
        replica.hear(&presence.others());
        if until(&stop, tokio::time::sleep(LISTEN)).await.is_none() {
            return;
        }
    }
}

/// Ends streams whose clients don't read them any more.
pub async fn unread(replica: Arc<Replica>, stop: CancellationToken) {
    while until(&stop, tokio::time::sleep(unread::EVERY)).await.is_some() {
        let left = replica.unread().look(tokio::time::Instant::now());
        if left > 0 {
            tracing::info!(left, "streams were ended that their clients didn't read");
        }
    }
}

/// The stream's last sequence now; asked until it is answered.
async fn end_of(journal: &Journal, stream: Stream, stop: &CancellationToken) -> Option<u64> {
    loop {
        match until(stop, journal.log.bounds(stream)).await? {
            Ok(bounds) => return Some(bounds.last),
            Err(error) => {
                tracing::warn!(stream = stream.name(), %error, "the log doesn't answer yet");
                until(stop, tokio::time::sleep(ASK_AGAIN)).await?;
            }
        }
    }
}

/// What a future gives, or nothing once the replica stops.
async fn until<T>(stop: &CancellationToken, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        value = future => Some(value),
    }
}
