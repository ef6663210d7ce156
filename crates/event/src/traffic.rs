//! What a request leaves in the log: one module per event, one struct per version, the newest one used by the folds.

pub mod attempt_finished;
pub mod attempt_started;
pub mod request_admitted;
pub mod request_finished;
pub mod selection_table;
pub mod source_outcome;

pub use attempt_finished::{AttemptFinished, Evidence, Shadow};
pub use attempt_started::AttemptStarted;
pub use request_admitted::{Protocol, RequestAdmitted, SessionBy, SessionRef};
pub use request_finished::{FinalState, RequestFinished};
pub use selection_table::{Factors, SelectionTable, TableCandidate};
pub use source_outcome::SourceOutcome;
