//! Which addresses may be dialled. A base URL is an operator's text: it must not lead the gateway into its own network
//! unless the channel says so, and never to the metadata services of a cloud.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address isn't dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No setting permits it.
    #[error("{address} is {what}, which is never dialled")]
    Never {
        /// The address.
        address: IpAddr,
        /// What it is, with its article.
        what: &'static str,
    },
    /// The channel's `allow_private` permits it.
    #[error("{address} is {what}; it is dialled only where `allow_private` is set (`--allow-private`)")]
    Private {
        /// The address.
        address: IpAddr,
        /// What it is, with its article.
        what: &'static str,
    },
}

enum Class {
    Public,
    Private(&'static str),
    Never(&'static str),
}

const METADATA: &str = "a cloud metadata address";
const LINK_LOCAL: &str = "a link-local address";

/// Metadata services outside the link-local ranges: Alibaba, Azure's host, Oracle.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
/// Metadata services within the unique local range: AWS, Google.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// Checks an address, also one that is written inside an IPv6 address.
///
/// # Errors
/// [`Refused`] for link-local, metadata, unspecified, multicast and reserved addresses; for loopback, private, shared
/// and unique local ones unless `allow_private`.
pub fn check(address: IpAddr, allow_private: bool) -> Result<(), Refused> {
    let class = match address {
        IpAddr::V4(v4) => class_v4(v4),
        IpAddr::V6(v6) => embedded_v4(v6).map_or_else(|| class_v6(v6), class_v4),
    };
    match class {
        Class::Public => Ok(()),
        Class::Private(_) if allow_private => Ok(()),
        Class::Private(what) => Err(Refused::Private { address, what }),
        Class::Never(what) => Err(Refused::Never { address, what }),
    }
}

fn class_v4(v4: Ipv4Addr) -> Class {
    if METADATA_V4.contains(&v4) {
        return Class::Never(METADATA);
    }
    match v4.octets() {
        [0, ..] => Class::Never("an unspecified address"),
        [169, 254, ..] => Class::Never(LINK_LOCAL),
        [224..=239, ..] => Class::Never("a multicast address"),
        [240..=255, ..] => Class::Never("a reserved or broadcast address"),
        [127, ..] => Class::Private("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Class::Private("a private address"),
        [100, 64..=127, ..] => Class::Private("a shared (carrier-grade NAT) address"),
        [192, 0, 0, _] | [198, 18..=19, ..] => Class::Private("a special-purpose address"),
        _ => Class::Public,
    }
}

fn class_v6(v6: Ipv6Addr) -> Class {
    if METADATA_V6.contains(&v6) {
        return Class::Never(METADATA);
    }
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Never("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Private("a loopback address"),
        [0xfe80..=0xfebf, ..] => Class::Never(LINK_LOCAL),
        [0xff00..=0xffff, ..] => Class::Never("a multicast address"),
        [0xfec0..=0xfeff, ..] => Class::Private("a site-local address"),
        [0xfc00..=0xfdff, ..] => Class::Private("a unique local address"),
        // Teredo tunnels to an address that its server chooses.
        [0x2001, 0, ..] => Class::Private("a tunnel address"),
        _ => Class::Public,
    }
}

/// The IPv4 address that a mapped, compatible, translated (NAT64) or 6to4 address leads to.
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(of(high, low)),
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(of(high, low)),
        [0x64, 0xff9b, _, _, _, _, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}
