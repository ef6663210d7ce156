//! Tables folded from the log, in Postgres: rows, checkpoints, queries. How events become rows is in `domain::history`;
//! who folds, and when, is in `projector`.

mod checkpoint;
mod column;
mod commit;
mod compare;
mod error;
mod partition;
pub mod read;
mod store;
mod table;
mod unprojectable;

pub use checkpoint::{Checkpoint, Projection};
pub use commit::{Batch, Committed};
pub use compare::{Comparison, Difference};
pub use error::StoreError;
pub use partition::Dropped;
pub use store::{Deadlines, ReadModel};
pub use unprojectable::{Unprojectable, Why};
