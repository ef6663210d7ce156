//! Where attempts at a channel go, for an administrator who tries it.

use std::time::Duration;

use waybill_event::config::Channel;
use waybill_secret::Bearer;
use waybill_upstream::{Target, TargetFault};
use waybill_wire::endpoint::{BaseUrl, BaseUrlFault};

/// Time the whole try may take: models that think before they answer are slow.
pub(crate) const WHOLE: Duration = Duration::from_secs(60);

/// Why a channel can't even be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// Its base URL can't be used.
    #[error("the base URL can't be used")]
    BaseUrl(#[from] BaseUrlFault),
    /// Its credential can't be used.
    #[error(transparent)]
    Credential(#[from] TargetFault),
}

/// Where a channel's attempts go.
pub(crate) fn target(channel: &Channel, bearer: &Bearer) -> Result<Target, TargetError> {
    Ok(Target::new(channel.source(), BaseUrl::parse(&channel.base_url)?, bearer, channel.allow_private)?)
}
