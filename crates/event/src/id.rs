//! Ids that name their kind. Numeric ids are given by the log's writer of configuration; request ids are UUIDv7.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::LogTime;

/// The kinds of entities that carry numeric ids.
pub mod kind {
    /// An API key at a base URL.
    #[derive(Debug, Clone, Copy)]
    pub enum Channel {}
    /// A subscription's login.
    #[derive(Debug, Clone, Copy)]
    pub enum Account {}
    /// An access and pricing domain.
    #[derive(Debug, Clone, Copy)]
    pub enum Group {}
    /// A client's key.
    #[derive(Debug, Clone, Copy)]
    pub enum Key {}
    /// A client-visible model name with its targets.
    #[derive(Debug, Clone, Copy)]
    pub enum Route {}
    /// An administrator's token.
    #[derive(Debug, Clone, Copy)]
    pub enum AdminToken {}
}

/// A numeric id of one kind of entity; never 0, never reused.
pub struct Id<K> {
    raw: u64,
    kind: PhantomData<fn() -> K>,
}

/// Id of a channel.
pub type ChannelId = Id<kind::Channel>;
/// Id of an account.
pub type AccountId = Id<kind::Account>;
/// Id of a group.
pub type GroupId = Id<kind::Group>;
/// Id of a client key.
pub type KeyId = Id<kind::Key>;
/// Id of a route.
pub type RouteId = Id<kind::Route>;
/// Id of an admin token.
pub type AdminTokenId = Id<kind::AdminToken>;

impl<K> Id<K> {
    /// The id with this number.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self { raw, kind: PhantomData }
    }

    /// The bare number, for columns and subjects.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.raw
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Id<K> {}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}
impl<K> Eq for Id<K> {}
impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.raw.cmp(&other.raw)
    }
}
impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}
impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.raw)
    }
}
impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}
impl<K> FromStr for Id<K> {
    type Err = std::num::ParseIntError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().map(Self::new)
    }
}
impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.raw)
    }
}
impl<'de, K> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::new)
    }
}

/// Id of a client's request: a UUIDv7, whose first 48 bits are the milliseconds at which it was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(Uuid);

impl RequestId {
    /// Builds the id from its time and 74 random bits; the excess bits of `random` are ignored.
    #[must_use]
    pub fn from_parts(at: LogTime, random: [u8; 10]) -> Self {
        let millis = u64::try_from(at.as_micros() / 1_000).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// The id as a UUID.
    #[must_use]
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }

    /// Wraps a UUID that was stored as a request's id.
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The millisecond at which the request was admitted, as the id itself tells it (1970 for a foreign UUID).
    #[must_use]
    pub fn admitted_at(self) -> LogTime {
        let micros = self.0.get_timestamp().map_or(0, |t| {
            let (seconds, nanos) = t.to_unix();
            i64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000).saturating_add(i64::from(nanos) / 1_000)
        });
        LogTime::from_micros(micros)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl FromStr for RequestId {
    type Err = uuid::Error;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(s).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_tells_its_millisecond() {
        let at = LogTime::from_micros(1_790_812_800_123_456);
        let id = RequestId::from_parts(at, [7; 10]);
        assert_eq!(id.admitted_at(), LogTime::from_micros(1_790_812_800_123_000));
        assert_eq!(id.to_string().parse::<RequestId>().unwrap(), id);
    }
}
