//! Addresses in base URLs: what would never be dialled is refused when it is written down, not at the first request. A
//! name says nothing of where it leads; names are checked when they are dialled.

use url::{Host, Url};
use waybill_domain::catalog::{Catalog, Rejection};
use waybill_event::config::{Channel, ConfigChange};
use waybill_upstream::guard;

/// Checks the channels among `changes`, as far as their base URL or the permission for private addresses is new.
///
/// # Errors
/// [`Rejection::Invalid`] with the field that `field` names for the channel.
pub(super) fn check(
    catalog: &Catalog,
    changes: &[ConfigChange],
    field: impl Fn(&Channel) -> String,
) -> Result<(), Rejection> {
    for change in changes {
        let ConfigChange::Channel(changed) = change else { continue };
        let channel = &changed.state;
        let held = catalog.channels.get(&channel.id);
        let same =
            held.is_some_and(|held| held.base_url == channel.base_url && held.allow_private == channel.allow_private);
        if !same && let Err(why) = permitted(channel) {
            return Err(Rejection::Invalid { field: field(channel), message: why.to_string() });
        }
    }
    Ok(())
}

fn permitted(channel: &Channel) -> Result<(), guard::Refused> {
    let url = Url::parse(&channel.base_url).ok();
    let address = match url.as_ref().and_then(Url::host) {
        Some(Host::Ipv4(address)) => address.into(),
        Some(Host::Ipv6(address)) => address.into(),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    guard::check(address, channel.allow_private)
}
