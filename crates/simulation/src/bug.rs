//! Mistakes that are made on purpose, in what surrounds the product's code: each stands for one that the code could have,
//! and a run that doesn't notice it checks too little.

mod flawed;
mod hasty;

use std::fmt;
use std::str::FromStr;

pub use flawed::Flawed;
pub use hasty::Hasty;

/// A planted mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The publisher takes a message for stored when it has sent it, and trims its file.
    AckDropped,
    /// A fold's checkpoint doesn't hold which ordinals it has had.
    OrdinalNotStored,
    /// A leader's writes aren't compared with what stands there.
    EpochUnchecked,
    /// The end of a file is read as a record although its checksum is wrong.
    TornTailRead,
    /// Events that come late count as evidence.
    LateCounted,
    /// Configuration is adopted when it is read, not where its marker stands.
    MarkerEarly,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::AckDropped,
        Self::OrdinalNotStored,
        Self::EpochUnchecked,
        Self::TornTailRead,
        Self::LateCounted,
        Self::MarkerEarly,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AckDropped => "ack-dropped",
            Self::OrdinalNotStored => "ordinal-not-stored",
            Self::EpochUnchecked => "epoch-unchecked",
            Self::TornTailRead => "torn-tail-read",
            Self::LateCounted => "late-counted",
            Self::MarkerEarly => "marker-early",
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Bug {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|bug| bug.as_str() == text)
            .ok_or_else(|| format!("there is no planted bug {text:?}"))
    }
}
