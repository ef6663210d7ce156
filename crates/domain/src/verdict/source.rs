//! What says how long a block lasts.

use std::fmt;

use serde::{Serialize, Serializer};

use super::rule::Zone;

/// What says how long a block lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockSource {
    /// There is no block.
    None,
    /// The rule.
    Rule,
    /// A header of the answer.
    Header(String),
    /// A member of the error's body, with dots between names.
    Body(String),
    /// The next midnight, or the like, of a zone.
    Calendar(Zone),
    /// Whoever probes, until it works again.
    UntilProbe,
    /// An operator.
    UntilOperator,
}

impl fmt::Display for BlockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Rule => f.write_str("rule"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Body(place) => write!(f, "body:{place}"),
            Self::Calendar(zone) => write!(f, "calendar:{zone}"),
            Self::UntilProbe => f.write_str("until_probe"),
            Self::UntilOperator => f.write_str("until_operator"),
        }
    }
}

impl Serialize for BlockSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
