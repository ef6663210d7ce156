//! What the API reads: a narrow face of the read model, so that the API can be tried on rows folded in memory too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use waybill_domain::history::{CauseAttempt, ConfigHistoryRow, RequestRow, TransitionRow};
use waybill_event::{ConfigPosition, LogTime, RequestId, Source};
use waybill_read_model::read::{
    ConfigHistoryQuery, Ended, History, Move, ProjectionPosition, RequestQuery, ShadowReport,
};
use waybill_read_model::{Projection, ReadModel, StoreError};

/// Pause between looks at the read model's position.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What the API reads.
#[async_trait]
pub trait Reads: Send + Sync + 'static {
    /// How far the projections are.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn projections(&self) -> Result<Vec<ProjectionPosition>, StoreError>;

    /// Requests, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn requests(&self, query: &RequestQuery) -> Result<Vec<RequestRow>, StoreError>;

    /// All that is known of one request.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn history(&self, id: RequestId) -> Result<Option<History>, StoreError>;

    /// Edits, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn edits(&self, query: &ConfigHistoryQuery) -> Result<Vec<ConfigHistoryRow>, StoreError>;

    /// What candidates of rules would have said otherwise of requests that came at `since` or later.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn shadows(&self, since: LogTime, limit: u32) -> Result<ShadowReport, StoreError>;

    /// What happened to a source before a time, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn transitions(
        &self,
        source: Source,
        before: Option<LogTime>,
        limit: u32,
    ) -> Result<Vec<TransitionRow>, StoreError>;

    /// The attempts that caused transitions, by the transition's id.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn causes(
        &self,
        source: Source,
        transitions: &[TransitionRow],
    ) -> Result<BTreeMap<String, CauseAttempt>, StoreError>;

    /// Requests since then that these sources didn't serve, by reason.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn moves(&self, sources: &[Source], since: LogTime, limit: u32) -> Result<Vec<Move>, StoreError>;

    /// The last attempts since then at each of these sources, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn ended(
        &self,
        sources: &[Source],
        since: LogTime,
        each: u32,
    ) -> Result<BTreeMap<Source, Vec<Ended>>, StoreError>;
}

#[async_trait]
impl Reads for ReadModel {
    async fn projections(&self) -> Result<Vec<ProjectionPosition>, StoreError> {
        Self::projections(self).await
    }
    async fn requests(&self, query: &RequestQuery) -> Result<Vec<RequestRow>, StoreError> {
        Self::requests(self, query).await
    }
    async fn history(&self, id: RequestId) -> Result<Option<History>, StoreError> {
        Self::history(self, id).await
    }
    async fn edits(&self, query: &ConfigHistoryQuery) -> Result<Vec<ConfigHistoryRow>, StoreError> {
        self.config_history(query).await
    }
    async fn shadows(&self, since: LogTime, limit: u32) -> Result<ShadowReport, StoreError> {
        Self::shadows(self, since, limit).await
    }
    async fn transitions(
        &self,
        source: Source,
        before: Option<LogTime>,
        limit: u32,
    ) -> Result<Vec<TransitionRow>, StoreError> {
        Self::transitions(self, Some(source), before, limit).await
    }
    async fn causes(
        &self,
        source: Source,
        transitions: &[TransitionRow],
    ) -> Result<BTreeMap<String, CauseAttempt>, StoreError> {
        Self::causes(self, source, transitions).await
    }
    async fn moves(&self, sources: &[Source], since: LogTime, limit: u32) -> Result<Vec<Move>, StoreError> {
        Self::moves(self, sources, since, limit).await
    }
    async fn ended(
        &self,
        sources: &[Source],
        since: LogTime,
        each: u32,
    ) -> Result<BTreeMap<Source, Vec<Ended>>, StoreError> {
        Self::ended(self, sources, since, each).await
    }
}

/// A shared read model.
#[derive(Clone)]
pub struct SharedReads(Arc<dyn Reads>);

impl SharedReads {
    /// Shares it.
    #[must_use]
    pub fn new(reads: impl Reads) -> Self {
        Self(Arc::new(reads))
    }

    /// Waits until an edit is readable, at most `deadline`; says whether it is.
    pub async fn has(&self, position: ConfigPosition, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        let config = Projection::Config.as_str();
        loop {
            match tokio::time::timeout_at(end, self.0.projections()).await {
                Ok(Ok(all)) if all.iter().any(|p| p.projection == config && p.position >= position.0) => return true,
                Ok(Ok(_)) => {}
                // A read model that is away needn't be waited for.
                Ok(Err(_)) | Err(_) => return false,
            }
            if Instant::now() + LOOK_AGAIN >= end {
                return false;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl std::ops::Deref for SharedReads {
    type Target = dyn Reads;
    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}
