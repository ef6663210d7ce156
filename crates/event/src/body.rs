//! The payload of an event: which types and versions exist, and how each is read.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::config::{
    Account, AdminToken, Change, Changed, Channel, ConfigChange, Entity, Group, Intervention, Key, Policy, Price,
    Route, Rules,
};
use crate::control::{
    BlockLifted, BlockSet, BreakerClosed, BreakerHalfOpened, BreakerOpened, ConfigApplied, CredentialRefreshFailed,
    CredentialRefreshed, OutboxDrained, OwnerLost, ProbeFinished, SourceChecked, SourceDisabled, SourceEnabled,
};
use crate::failure::Health;
use crate::traffic::{
    AttemptFinished, AttemptStarted, RequestAdmitted, RequestFinished, SelectionTable, SourceOutcome,
};

/// Why a payload could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// The type is known, this version of it isn't.
    #[error("version {version} of {kind} is not known here")]
    UnknownVersion {
        /// The event's type.
        kind: String,
        /// The version met.
        version: u16,
    },
    /// Type and version are known, the data isn't what they promise.
    #[error("data of {kind} v{version} is malformed")]
    Malformed {
        /// The event's type.
        kind: String,
        /// The version met.
        version: u16,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

/// A stored payload. `VERSION` is the newest version, which alone is written and which the folds use.
pub trait Payload: Serialize + DeserializeOwned {
    /// The event's type, as stored.
    const TYPE: &'static str;
    /// The newest version.
    const VERSION: u16;

    /// Reads any version there ever was, as the newest one. A payload with older versions overrides this.
    ///
    /// # Errors
    /// [`PayloadError`] for a version not known here and for malformed data.
    fn read(version: u16, data: &RawValue) -> Result<Self, PayloadError> {
        if version == Self::VERSION {
            serde_json::from_str(data.get()).map_err(|source| PayloadError::Malformed {
                kind: Self::TYPE.to_owned(),
                version,
                source,
            })
        } else {
            Err(PayloadError::UnknownVersion { kind: Self::TYPE.to_owned(), version })
        }
    }
}

macro_rules! bodies {
    ($($name:ident),+ $(,)?) => {
        /// What an event says.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each variant is named as the payload it holds, which is documented")]
        pub enum Body {
            $($name($name),)+
            /// An edit of configuration.
            Config(Box<ConfigChange>),
            /// A type or version that isn't known here: kept whole, never guessed at.
            Unknown(Unknown),
        }

        impl Body {
            /// Types and newest versions of all traffic and control events.
            pub const TYPES: &'static [(&'static str, u16)] = &[$((<$name as Payload>::TYPE, <$name as Payload>::VERSION),)+];

            fn read_traffic(kind: &str, version: u16, data: &RawValue) -> Option<Result<Self, PayloadError>> {
                match kind {
                    $(<$name as Payload>::TYPE => Some(<$name as Payload>::read(version, data).map(Self::$name)),)+
                    _ => None,
                }
            }

            /// The event's type, as stored.
            #[must_use]
            pub fn kind(&self) -> String {
                self.kind_text().into_owned()
            }

            pub(crate) fn kind_text(&self) -> Cow<'_, str> {
                match self {
                    $(Self::$name(_) => Cow::Borrowed(<$name as Payload>::TYPE),)+
                    Self::Config(change) => Cow::Owned(format!("{}_{}", change.subject().0, change.change().as_str())),
                    Self::Unknown(unknown) => Cow::Borrowed(&unknown.kind),
                }
            }

            /// The version it is stored as.
            #[must_use]
            pub fn version(&self) -> u16 {
                match self {
                    $(Self::$name(_) => <$name as Payload>::VERSION,)+
                    Self::Config(change) => config_version(change),
                    Self::Unknown(unknown) => unknown.version,
                }
            }
        }

        impl Serialize for Body {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(data) => data.serialize(serializer),)+
                    Self::Config(change) => match change.as_ref() {
                        ConfigChange::Channel(c) => c.serialize(serializer),
                        ConfigChange::Group(c) => c.serialize(serializer),
                        ConfigChange::Key(c) => c.serialize(serializer),
                        ConfigChange::AdminToken(c) => c.serialize(serializer),
                        ConfigChange::Policy(c) => c.serialize(serializer),
                        ConfigChange::Route(c) => c.serialize(serializer),
                        ConfigChange::Intervention(c) => c.serialize(serializer),
                        ConfigChange::Rules(c) => c.serialize(serializer),
                        ConfigChange::Account(c) => c.serialize(serializer),
                        ConfigChange::Price(c) => c.serialize(serializer),
                    },
                    Self::Unknown(unknown) => unknown.data.serialize(serializer),
                }
            }
        }

        $(impl From<$name> for Body {
            fn from(data: $name) -> Self {
                Self::$name(data)
            }
        })+
    };
}

bodies!(
    RequestAdmitted,
    AttemptStarted,
    AttemptFinished,
    SourceOutcome,
    RequestFinished,
    SelectionTable,
    BreakerOpened,
    BreakerHalfOpened,
    BreakerClosed,
    ProbeFinished,
    SourceChecked,
    CredentialRefreshed,
    CredentialRefreshFailed,
    BlockSet,
    BlockLifted,
    SourceDisabled,
    SourceEnabled,
    ConfigApplied,
    OutboxDrained,
    OwnerLost,
);

impl From<ConfigChange> for Body {
    fn from(change: ConfigChange) -> Self {
        Self::Config(Box::new(change))
    }
}

/// A payload that isn't known here.
#[derive(Debug, Clone)]
pub struct Unknown {
    /// The event's type.
    pub kind: String,
    /// Its version.
    pub version: u16,
    /// Its data, as stored.
    pub data: Box<RawValue>,
}

impl PartialEq for Unknown {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.version == other.version && self.data.get() == other.data.get()
    }
}

fn config_version(change: &ConfigChange) -> u16 {
    match change {
        ConfigChange::Channel(_) => Channel::VERSION,
        ConfigChange::Group(_) => Group::VERSION,
        ConfigChange::Key(_) => Key::VERSION,
        ConfigChange::AdminToken(_) => AdminToken::VERSION,
        ConfigChange::Policy(_) => Policy::VERSION,
        ConfigChange::Route(_) => Route::VERSION,
        ConfigChange::Intervention(_) => Intervention::VERSION,
        ConfigChange::Rules(_) => Rules::VERSION,
        ConfigChange::Account(_) => Account::VERSION,
        ConfigChange::Price(_) => Price::VERSION,
    }
}

fn read_changed<T: Entity + DeserializeOwned>(
    change: Change,
    version: u16,
    data: &RawValue,
) -> Result<Changed<T>, PayloadError> {
    let kind = || format!("{}_{}", T::ENTITY, change.as_str());
    if version != T::VERSION {
        return Err(PayloadError::UnknownVersion { kind: kind(), version });
    }
    let mut changed: Changed<T> =
        serde_json::from_str(data.get()).map_err(|source| PayloadError::Malformed { kind: kind(), version, source })?;
    changed.change = change;
    Ok(changed)
}

fn read_config(kind: &str, version: u16, data: &RawValue) -> Option<Result<ConfigChange, PayloadError>> {
    let (entity, change) = kind.rsplit_once('_')?;
    let change = Change::ALL.into_iter().find(|c| c.as_str() == change)?;
    let read = match entity {
        Channel::ENTITY => read_changed(change, version, data).map(ConfigChange::Channel),
        Group::ENTITY => read_changed(change, version, data).map(ConfigChange::Group),
        Key::ENTITY => read_changed(change, version, data).map(ConfigChange::Key),
        AdminToken::ENTITY => read_changed(change, version, data).map(ConfigChange::AdminToken),
        Policy::ENTITY => read_changed(change, version, data).map(ConfigChange::Policy),
        Route::ENTITY => read_changed(change, version, data).map(ConfigChange::Route),
        Intervention::ENTITY => read_changed(change, version, data).map(ConfigChange::Intervention),
        Rules::ENTITY => read_changed(change, version, data).map(ConfigChange::Rules),
        Account::ENTITY => read_changed(change, version, data).map(ConfigChange::Account),
        Price::ENTITY => read_changed(change, version, data).map(ConfigChange::Price),
        _ => return None,
    };
    Some(read)
}

impl Body {
    /// Whether other processes act on it, so that it shouldn't wait for company on its way to the log. What only tells how
    /// a request went, and that a source works as it did, can.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::RequestAdmitted(_)
            | Self::AttemptStarted(_)
            | Self::AttemptFinished(_)
            | Self::RequestFinished(_)
            | Self::SelectionTable(_) => false,
            Self::SourceOutcome(outcome) => {
                let troubled = |health| matches!(health, Health::Fail | Health::Busy);
                let healths = [outcome.source_health, outcome.model_health];
                outcome.block.is_some() || outcome.probe || healths.into_iter().any(troubled)
            }
            Self::BreakerOpened(_)
            | Self::BreakerHalfOpened(_)
            | Self::BreakerClosed(_)
            | Self::ProbeFinished(_)
            | Self::SourceChecked(_)
            | Self::CredentialRefreshed(_)
            | Self::CredentialRefreshFailed(_)
            | Self::BlockSet(_)
            | Self::BlockLifted(_)
            | Self::SourceDisabled(_)
            | Self::SourceEnabled(_)
            | Self::ConfigApplied(_)
            | Self::OutboxDrained(_)
            | Self::OwnerLost(_)
            | Self::Config(_)
            | Self::Unknown(_) => true,
        }
    }

    /// Reads a payload. Types and versions that aren't known become [`Body::Unknown`].
    ///
    /// # Errors
    /// [`PayloadError::Malformed`] where type and version are known and the data isn't what they promise.
    pub fn read(kind: &str, version: u16, data: &RawValue) -> Result<Self, PayloadError> {
        let read = Self::read_traffic(kind, version, data)
            .or_else(|| read_config(kind, version, data).map(|r| r.map(Self::from)));
        match read {
            Some(Err(PayloadError::UnknownVersion { .. })) | None => {
                Ok(Self::Unknown(Unknown { kind: kind.to_owned(), version, data: data.to_owned() }))
            }
            Some(read) => read,
        }
    }
}
