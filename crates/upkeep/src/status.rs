//! How upkeep stands, for readiness and metrics.

use waybill_event::{ConfigPosition, LogTime};

/// How upkeep stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether the catalogue was read to what was its end at the start.
    pub catalog_current: bool,
    /// Position of the catalogue it goes by.
    pub catalog_position: ConfigPosition,
    /// The edit that this program can't read and at which its catalogue stopped, if there is one.
    pub catalog_blocked: Option<String>,
    /// Whether the sources' state was read to what was its end at the start.
    pub states_current: bool,
    /// Why the log or the bucket could lately not be followed, and when that was.
    pub fault: Option<(String, LogTime)>,
    /// Sources that want probing.
    pub disabled: usize,
    /// Sources that serve and are checked.
    pub checked: usize,
    /// Checks sent since the start.
    pub checks: u64,
    /// Checks that showed something amiss.
    pub checks_failed: u64,
    /// Probes under way.
    pub under_way: usize,
    /// Probes sent since the start.
    pub probes: u64,
    /// Probes that brought a source back.
    pub brought_back: u64,
    /// Probes that couldn't be sent: no credential, or no permit from the store.
    pub unready: u64,
    /// Results that couldn't be recorded.
    pub unrecorded: u64,
}

impl Status {
    /// Whether it knows all that it needs.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.catalog_current && self.states_current && self.catalog_blocked.is_none() && self.fault.is_none()
    }
}
