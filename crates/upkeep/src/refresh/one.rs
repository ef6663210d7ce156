//! One refresh, from the lease to the record.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use waybill_domain::catalog::SourceEntity;
use waybill_event::control::{CredentialRefreshFailed, CredentialRefreshed, RefreshReason};
use waybill_event::{Body, ConfigPosition, Draft, FailureKind, LogTime, Scope};
use waybill_journal::Stream;
use waybill_secret::{ACCOUNT, AccountTokens, OauthCredential, Refreshing, Vault};
use waybill_upstream::{Granted, TokenFault};

use super::Refresher;
use super::lease::NotNow;
use super::spool::{Kept, Room};
use super::storing::Stored;

/// When something is tried again that the store couldn't answer.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What is due, with what was known when it was.
pub(super) struct Job {
    pub(super) entity: SourceEntity,
    pub(super) tokens: AccountTokens,
    pub(super) why: RefreshReason,
    /// Failures before, in a row.
    pub(super) failures: u32,
    pub(super) config: ConfigPosition,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// New tokens are stored.
    Refreshed,
    /// There were newer ones already, or the account goes by another login now.
    Newer,
    /// Somebody else is at it, or the store can't say.
    NotNow { until: LogTime },
    /// It failed, and may succeed later.
    Failed {
        /// How long the OAuth server wants to be left alone, where it said so.
        wait: Option<Duration>,
    },
    /// It failed for good.
    Refused,
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) account: u64,
    pub(super) why: RefreshReason,
    pub(super) came: Came,
}

impl Refresher {
    pub(super) async fn refresh(&self, job: Job, stop: CancellationToken) -> Done {
        let (account, why) = (job.entity.id(), job.why);
        let claimed = match self.leases.claim(account, job.tokens.revision, (self.clock)()).await {
            Ok(claimed) => claimed,
            Err(NotNow::Until { until }) => return Done { account, why, came: Came::NotNow { until } },
            Err(error @ NotNow::Store { .. }) => {
                tracing::warn!(account, %error, "an account's tokens can't be refreshed now");
                return Done { account, why, came: Came::NotNow { until: (self.clock)() + ASK_AGAIN } };
            }
        };
        let came = self.refresh_leased(&job, &stop).await;
        self.leases.give_up(claimed).await;
        Done { account, why, came }
    }

    async fn refresh_leased(&self, job: &Job, stop: &CancellationToken) -> Came {
        let account = job.entity.id();
        let Some(refreshing) = &job.tokens.credential.refreshing else { return Came::Newer };
        match self.has_newer(job).await {
            Ok(false) => {}
            Ok(true) => return Came::Newer,
            Err(error) => {
                tracing::warn!(account, error, "the newest tokens of an account can't be read");
                return Came::NotNow { until: (self.clock)() + ASK_AGAIN };
            }
        }
        let room = match self.spool.reserve(account) {
            Ok(room) => room,
            Err(error) => return self.cannot(job, &format!("there is no room for new tokens: {error}")),
        };
        let (begun, asked_at) = (Instant::now(), (self.clock)());
        match self.dispatcher.refresh(refreshing, job.entity.allow_private(), self.pace.answer).await {
            Ok(granted) => self.keep(job, refreshing, granted, room, (begun, asked_at), stop).await,
            Err(fault) => {
                room.give_back();
                self.judge(job, &fault).await
            }
        }
    }

    /// What was got is on disk before anything else, then in the log, then told.
    async fn keep(
        &self,
        job: &Job,
        refreshing: &Refreshing,
        granted: Granted,
        room: Room,
        (begun, asked_at): (Instant, LogTime),
        stop: &CancellationToken,
    ) -> Came {
        let rotated = granted.refresh.is_some();
        let lives = granted.expires_in.map(|lives| i64::try_from(lives.as_millis()).unwrap_or(i64::MAX));
        let issued_ms = asked_at.as_millis();
        let token = granted.refresh.unwrap_or_else(|| refreshing.token.clone());
        let credential = OauthCredential {
            access: granted.access,
            issued_ms,
            expires_ms: lives.map(|lives| issued_ms.saturating_add(lives)),
            scopes: granted.scopes.unwrap_or_else(|| job.tokens.credential.scopes.clone()),
            refreshing: Some(Refreshing { token, ..refreshing.clone() }),
        };
        let (account, login) = (job.entity.id(), job.tokens.login);
        let message = match self.vault.seal_account(account, &credential, Some(login)) {
            Ok(message) => message,
            Err(error) => return self.cannot(job, &format!("new tokens can't be sealed: {error}")),
        };
        let kept = Kept {
            account,
            login,
            replaces: job.tokens.revision,
            message_id: format!("refreshed:{account}:{}:{}", job.tokens.revision, asked_at.as_micros()),
            message: String::from_utf8(message).unwrap_or_default(),
            rotated,
            expires_ms: credential.expires_ms,
            why: job.why,
        };
        if let Err(error) = room.keep(&kept) {
            // The log may take them all the same.
            tracing::error!(account, %error, "refreshed tokens can't be kept on disk");
        }
        match self.store(&kept, Some(login), stop).await {
            Stored::At(revision) => {
                self.tell_refreshed(&kept, revision, Some(&job.entity), job.config, begun.elapsed());
                self.spool.forget(account);
                Came::Refreshed
            }
            Stored::Superseded => {
                self.spool.forget(account);
                Came::Newer
            }
            Stored::Stopped => Came::Refreshed,
        }
    }

    /// A refusal is believed only once the store has been asked whether there are newer tokens.
    async fn judge(&self, job: &Job, fault: &TokenFault) -> Came {
        if !fault.is_final() {
            let wait = match fault {
                TokenFault::Refused { retry_after, .. } => *retry_after,
                TokenFault::Endpoint { .. } | TokenFault::Transport(_) | TokenFault::NoToken => None,
            };
            self.cannot(job, &fault.to_string());
            return Came::Failed { wait };
        }
        match self.has_newer(job).await {
            Ok(true) => Came::Newer,
            Err(error) => {
                tracing::warn!(
                    error,
                    account = job.entity.id(),
                    "a refusal can't be checked against the newest tokens"
                );
                Came::NotNow { until: (self.clock)() + ASK_AGAIN }
            }
            Ok(false) => {
                tracing::error!(account = job.entity.id(), %fault, "an account's tokens can't be refreshed any more");
                self.tell_failed(job, Some(fault), &fault.to_string());
                self.status.write().refused += 1;
                Came::Refused
            }
        }
    }

    /// It failed, and may succeed later: told when that begins.
    fn cannot(&self, job: &Job, message: &str) -> Came {
        tracing::warn!(account = job.entity.id(), failures = job.failures + 1, message, "a refresh has failed");
        if job.failures == 0 {
            self.tell_failed(job, None, message);
        }
        self.status.write().failed += 1;
        Came::Failed { wait: None }
    }

    /// Whether the store has newer tokens of this login than those to be refreshed.
    async fn has_newer(&self, job: &Job) -> Result<bool, String> {
        let (account, login) = (job.entity.id(), job.tokens.login);
        let subject = Vault::subject(ACCOUNT, account);
        let found = self.journal.log.last_of_subject(Stream::Secret, &subject).await.map_err(|e| e.to_string())?;
        if let Some(message) = found {
            self.vault.take(&subject, message.sequence, &message.payload).map_err(|e| e.to_string())?;
        }
        Ok(self.vault.account(account, login).is_some_and(|held| held.revision > job.tokens.revision))
    }

    pub(super) fn tell_refreshed(
        &self,
        kept: &Kept,
        revision: u64,
        entity: Option<&SourceEntity>,
        config: ConfigPosition,
        took: Duration,
    ) {
        let Some(entity) = entity else { return };
        tracing::info!(account = kept.account, revision, why = ?kept.why, "an account's tokens were refreshed");
        self.record(
            entity,
            config,
            CredentialRefreshed {
                scope: Scope { source: entity.source(), model: None },
                credential_revision: revision,
                replaces: kept.replaces,
                why: kept.why,
                rotated: kept.rotated,
                expires_at: kept.expires_ms.map(from_millis),
                took_ms: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
            },
        );
        self.status.write().refreshed += 1;
    }

    fn tell_failed(&self, job: &Job, refused: Option<&TokenFault>, message: &str) {
        let (status, code) = match refused {
            Some(TokenFault::Refused { status, code, .. }) => (Some(*status), code.clone()),
            Some(TokenFault::Endpoint { .. } | TokenFault::Transport(_) | TokenFault::NoToken) | None => (None, None),
        };
        self.record(
            &job.entity,
            job.config,
            CredentialRefreshFailed {
                scope: Scope { source: job.entity.source(), model: None },
                credential_revision: job.tokens.revision,
                base_url_revision: job.entity.revisions().base_url,
                is_final: refused.is_some(),
                kind: FailureKind::AuthInvalid,
                status,
                code,
                message: message.to_owned(),
                expires_at: job.tokens.credential.expires_ms.map(from_millis),
            },
        );
    }

    fn record(&self, entity: &SourceEntity, config: ConfigPosition, body: impl Into<Body>) {
        let draft =
            Draft { source: Some(entity.source_ref()), config: Some(config), ..Draft::new((self.clock)(), body) };
        let encoded = draft.encode().map_err(|e| e.to_string());
        let appended = encoded.and_then(|event| self.outbox.append(&[event]).map_err(|e| e.to_string()));
        if let Err(error) = appended {
            tracing::error!(error, source = %entity.source(), "what became of an account's tokens can't be recorded");
            self.status.write().unrecorded += 1;
        }
    }
}

fn from_millis(millis: i64) -> LogTime {
    LogTime::from_micros(millis.saturating_mul(1_000))
}
