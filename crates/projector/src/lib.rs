//! The runners of the folds: what leads, reads the log, folds and writes, for the selector's state and for the read
//! models. The folds themselves are in `domain`, the tables in `read-model`.

mod lag;
pub mod read_models;
pub mod selector;

pub use lag::Behind;
