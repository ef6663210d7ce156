//! Refreshing of accounts' tokens, as it is agreed beside the log: the mark by which a replica asks for it, and the lease
//! that lets one process at a time use a refresh token.

use serde::{Deserialize, Serialize};
use waybill_event::{LogTime, ProducerId, Source, SourceKind};

const MARK: &str = "refresh.";
const LEASE: &str = "refreshing.";

/// Why a replica asks for newer tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// The ones it has are expired.
    Expired,
    /// An upstream refused them.
    Refused,
}

/// What stands under an account's mark for a short while: whoever refreshes looks at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Revision of the tokens that won't do.
    pub revision: u64,
    /// Why.
    pub why: Wish,
    /// Who asks.
    pub replica: ProducerId,
}

/// What stands under an account's lease: who uses the refresh token of which tokens, and until when everybody else waits
/// for what comes of it. A refresh token that is used twice may cost the whole login, so that others wait for somebody
/// who died over it, too: it may come back with the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who.
    pub holder: ProducerId,
    /// Tells this write from every other of the holder's.
    pub token: u64,
    /// Revision of the tokens whose refresh token is used.
    pub revision: u64,
    /// Until when others wait.
    pub until: LogTime,
}

/// The key of an account's mark.
#[must_use]
pub fn mark_key(account: u64) -> String {
    format!("{MARK}{account}")
}

/// The account whose mark a key is; `None` for every other key.
#[must_use]
pub fn marked(key: &str) -> Option<u64> {
    key.strip_prefix(MARK)?.parse().ok()
}

/// The key of an account's lease.
#[must_use]
pub fn lease_key(account: u64) -> String {
    format!("{LEASE}{account}")
}

/// The account whose lease a key is; `None` for every other key.
#[must_use]
pub fn leased(key: &str) -> Option<u64> {
    key.strip_prefix(LEASE)?.parse().ok()
}

/// The source that an account is.
#[must_use]
pub const fn source(account: u64) -> Source {
    Source { kind: SourceKind::Account, id: account }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_their_account() {
        assert_eq!(marked(&mark_key(7)), Some(7));
        assert_eq!((marked(&lease_key(7)), leased(&lease_key(7))), (None, Some(7)));
        assert_eq!(marked("probe.channel.7.disabled"), None);
        assert_eq!(mark_key(7), "refresh.7");
    }
}
