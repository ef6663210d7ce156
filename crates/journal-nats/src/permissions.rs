//! What each role may do in NATS: who writes what is a matter of identity, not of manners.

use waybill_journal::{Bucket, Stream};

/// The identities there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Serves clients.
    Proxy,
    /// Folds the log.
    Projector,
    /// Brings disabled sources back.
    Upkeep,
    /// Makes edits.
    Admin,
    /// Sets the log up.
    Operator,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [Self::Proxy, Self::Projector, Self::Upkeep, Self::Admin, Self::Operator];

    /// The role's user.
    #[must_use]
    pub const fn user(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Projector => "projector",
            Self::Upkeep => "upkeep",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }

    /// Subjects of events that it writes.
    const fn writes(self) -> &'static [&'static str] {
        match self {
            Self::Proxy => &["wb.traffic.0.proxy"],
            Self::Projector => &["wb.traffic.0.control"],
            // It stores what it refreshes; a channel's key is nobody's but the admin's.
            Self::Upkeep => &["wb.traffic.0.upkeep", "wb.secret.account.*"],
            Self::Admin => &["wb.config.>", "wb.secret.>"],
            Self::Operator => &[],
        }
    }

    /// Buckets that it writes.
    const fn holds(self) -> &'static [Bucket] {
        match self {
            Self::Proxy => &[Bucket::Permits, Bucket::Presence, Bucket::Sticky],
            Self::Upkeep => &[Bucket::Permits, Bucket::Presence],
            Self::Projector => &[Bucket::Selector, Bucket::Permits, Bucket::Presence],
            Self::Admin => &[Bucket::Presence],
            Self::Operator => &[],
        }
    }

    /// Streams that it reads. Sealed credentials are for those who use or make them.
    const fn reads(self) -> &'static [Stream] {
        match self {
            Self::Proxy => &[Stream::Config, Stream::Secret],
            // It looks up where an hour of traffic ends before it purges that hour.
            Self::Upkeep => &[Stream::Config, Stream::Secret, Stream::Traffic],
            Self::Projector => &[Stream::Config, Stream::Traffic],
            Self::Admin => &[Stream::Config, Stream::Secret, Stream::Traffic],
            Self::Operator => &[],
        }
    }

    /// Streams whose oldest messages it removes.
    const fn purges(self) -> &'static [Stream] {
        match self {
            Self::Upkeep => &[Stream::Traffic],
            Self::Proxy | Self::Projector | Self::Admin | Self::Operator => &[],
        }
    }
}

/// Subjects that a role may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// To publish to.
    pub publish: Vec<String>,
    /// To subscribe to.
    pub subscribe: Vec<String>,
}

/// What a role may do.
#[must_use]
pub fn role_permissions(role: Role) -> Permissions {
    if role == Role::Operator {
        return Permissions { publish: vec![">".to_owned()], subscribe: vec![">".to_owned()] };
    }
    let mut publish: Vec<String> = role.writes().iter().map(|subject| (*subject).to_owned()).collect();
    publish.extend(role.holds().iter().map(|bucket| format!("$KV.{}.>", bucket.name())));
    publish.extend(role.purges().iter().map(|stream| format!("$JS.API.STREAM.PURGE.{}", stream.name())));
    // Everybody may see how the stream is kept that everything goes to.
    if !role.reads().contains(&Stream::Traffic) {
        publish.push(format!("$JS.API.STREAM.INFO.{}", Stream::Traffic.name()));
    }
    let streams = role.reads().iter().map(|stream| stream.name().to_owned());
    let buckets = Bucket::ALL.iter().map(|bucket| format!("KV_{}", bucket.name()));
    publish.push("$JS.API.INFO".to_owned());
    for stream in streams.chain(buckets) {
        publish.extend(reading(&stream));
    }
    Permissions { publish, subscribe: vec![format!("_INBOX_{}.>", role.user())] }
}

/// What reading and following a stream takes.
fn reading(stream: &str) -> [String; 9] {
    [
        format!("$JS.API.STREAM.INFO.{stream}"),
        format!("$JS.API.STREAM.MSG.GET.{stream}"),
        format!("$JS.API.DIRECT.GET.{stream}"),
        format!("$JS.API.DIRECT.GET.{stream}.>"),
        format!("$JS.API.CONSUMER.CREATE.{stream}"),
        format!("$JS.API.CONSUMER.CREATE.{stream}.>"),
        format!("$JS.API.CONSUMER.INFO.{stream}.>"),
        format!("$JS.API.CONSUMER.DELETE.{stream}.>"),
        format!("$JS.FC.{stream}.>"),
    ]
}
