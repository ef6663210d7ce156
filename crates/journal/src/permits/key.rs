//! Keys of permits and what stands under them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use waybill_event::{Boot, ProducerId};

use super::subject::Subject;

/// Tells apart what the store holds from what it held before it was emptied.
pub(super) const GENERATION: &str = "permits.generation";
/// Stands for one time to live after the store came back empty.
pub(super) const RECOVERING: &str = "permits.recovering";

/// What a key is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The n-th slot of a subject.
    Slot(Subject, u32),
    /// The n-th rate permit (or chunk of them) of a subject.
    Rate(Subject, u32),
    /// A replica waits for a slot of a subject.
    Demand(Subject, String),
    /// [`GENERATION`].
    Generation,
    /// [`RECOVERING`].
    Recovering,
}

impl Key {
    /// Reads a key; nothing where it is somebody else's, such as a lease's.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            GENERATION => return Some(Self::Generation),
            RECOVERING => return Some(Self::Recovering),
            _ => {}
        }
        let (kind, rest) = text.split_once('.')?;
        let (subject, last) = rest.rsplit_once('.')?;
        let subject = || Subject::read(subject);
        match kind {
            "slot" => Some(Self::Slot(subject(), last.parse().ok()?)),
            "rate" => Some(Self::Rate(subject(), last.parse().ok()?)),
            "demand" => Some(Self::Demand(subject(), last.to_owned())),
            _ => None,
        }
    }
}

pub(super) fn slot(subject: &Subject, n: u32) -> String {
    format!("slot.{subject}.{n}")
}

pub(super) fn rate(subject: &Subject, n: u32) -> String {
    format!("rate.{subject}.{n}")
}

pub(super) fn demand(subject: &Subject, replica: &ProducerId) -> String {
    format!("demand.{subject}.{replica}")
}

/// A claim, as it stands under a key. No two claims are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) holder: ProducerId,
    pub(super) boot: Boot,
    /// Number of the claim in this boot.
    pub(super) n: u64,
    /// How many permits it is; one for a slot.
    pub(super) units: u32,
}

impl Claim {
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// As it is stored. A claim has nothing that couldn't be written.
    pub(super) fn written(&self) -> Bytes {
        serde_json::to_vec(self).map(Bytes::from).unwrap_or_default()
    }
}

/// Where a replica begins to look for a free key.
pub(super) fn offset(replica: &ProducerId) -> u32 {
    crc32fast::hash(replica.as_str().as_bytes())
}
