//! The read models' rows, as a fold of the log.
