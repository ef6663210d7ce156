//! Addresses in base URLs: what would never be dialled is refused when it is written down, not at the first request. A
//! name says nothing of where it leads; names are checked when they are dialled.

use std::sync::Arc;

use url::{Host, Url};
use waybill_domain::catalog::{Catalog, Rejection, SourceEntity};
use waybill_event::config::ConfigChange;
use waybill_upstream::guard;

/// Checks the sources among `changes`, as far as their base URL or the permission for private addresses is new.
///
/// # Errors
/// [`Rejection::Invalid`] with the field that `field` names for the source.
pub(super) fn check(
    catalog: &Catalog,
    changes: &[ConfigChange],
    field: impl Fn(&SourceEntity) -> String,
) -> Result<(), Rejection> {
    for change in changes {
        let entity: SourceEntity = match change {
            ConfigChange::Channel(changed) => Arc::new(changed.state.clone()).into(),
            ConfigChange::Account(changed) => Arc::new(changed.state.clone()).into(),
            _ => continue,
        };
        let held = catalog.entity(entity.source());
        let same = held
            .is_some_and(|held| held.base_url() == entity.base_url() && held.allow_private() == entity.allow_private());
        if !same && let Err(why) = permitted(&entity) {
            return Err(Rejection::Invalid { field: field(&entity), message: why.to_string() });
        }
    }
    Ok(())
}

fn permitted(entity: &SourceEntity) -> Result<(), guard::Refused> {
    let url = Url::parse(entity.base_url()).ok();
    let address = match url.as_ref().and_then(Url::host) {
        Some(Host::Ipv4(address)) => address.into(),
        Some(Host::Ipv6(address)) => address.into(),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    guard::check(address, entity.allow_private())
}
