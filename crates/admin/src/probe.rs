//! Where attempts at a source go, for an administrator who tries it.

use std::time::Duration;

use waybill_domain::catalog::SourceEntity;
use waybill_secret::Bearer;
use waybill_upstream::{Target, TargetFault};
use waybill_wire::endpoint::{BaseUrl, BaseUrlFault};

/// Time the whole try may take: models that think before they answer are slow.
pub(crate) const WHOLE: Duration = Duration::from_secs(60);

/// Why a source can't even be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// Its base URL can't be used.
    #[error("the base URL can't be used")]
    BaseUrl(#[from] BaseUrlFault),
    /// Its credential can't be used.
    #[error(transparent)]
    Credential(#[from] TargetFault),
}

/// Where a source's attempts go.
pub(crate) fn target(entity: &SourceEntity, bearer: &Bearer) -> Result<Target, TargetError> {
    Ok(Target::new(entity.source(), BaseUrl::parse(entity.base_url())?, bearer, entity.allow_private())?)
}
