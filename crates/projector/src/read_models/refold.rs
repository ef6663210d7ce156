//! A fold from scratch: what the tables must hold.

use std::collections::BTreeSet;

use waybill_domain::dedup::Dedup;
use waybill_domain::history::{ConfigRows, Placed, TrafficRows};
use waybill_event::Position;
use waybill_journal::{Log, ReadError};
use waybill_read_model::{Comparison, Projection, ReadModel, StoreError};

use super::gather::{Gathered, stream};
use super::status::Counts;

/// Messages read at once.
const PAGE: usize = 1_000;

/// Why a fold from scratch failed.
#[derive(Debug, thiserror::Error)]
pub enum RefoldError {
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] ReadError),
    /// The store can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is an edit that this program can't read.
    #[error(transparent)]
    UnknownEdit(#[from] waybill_domain::catalog::UnknownEdit),
    /// The log begins after its first message: what is gone can't be folded.
    #[error("the log of {projection} begins at {first} only")]
    Aged {
        /// The projection.
        projection: Projection,
        /// The first message there is.
        first: u64,
    },
}

/// Folds the log from its beginning up to a position, and compares the rows with the tables. The fold in the tables
/// must stand at that position, and stand still.
///
/// # Errors
/// [`RefoldError`].
pub async fn verify(
    log: &dyn Log,
    store: &ReadModel,
    projection: Projection,
    upto: u64,
) -> Result<Comparison, RefoldError> {
    let refused = left_out(store, projection).await?;
    let mut rows = (TrafficRows::default(), ConfigRows::default());
    let mut dedup = Dedup::default();
    let mut from = 1;
    while from <= upto {
        let messages = log.read(stream(projection), from, PAGE).await?;
        let Some(first) = messages.first().map(|message| message.sequence) else { break };
        if from == 1 && first > 1 {
            return Err(RefoldError::Aged { projection, first });
        }
        let mut gathered = Gathered::default();
        for message in messages.iter().filter(|message| message.sequence <= upto) {
            gathered.add(projection, message);
        }
        gathered.drop_known(&mut dedup, false, &mut Counts::default());
        for placed in gathered.events.iter().filter(|placed| !refused.contains(&placed.position)) {
            fold(&mut rows, projection, placed)?;
        }
        if let Some(edit) = gathered.stop {
            return Err(edit.into());
        }
        from = messages.last().map_or(upto, |message| message.sequence) + 1;
    }
    Ok(match projection {
        Projection::Traffic => store.compare_traffic(&rows.0).await?,
        Projection::Config => store.compare_config(&rows.1).await?,
    })
}

fn fold(rows: &mut (TrafficRows, ConfigRows), projection: Projection, placed: &Placed) -> Result<(), RefoldError> {
    match projection {
        Projection::Traffic => {
            rows.0.apply(placed);
        }
        Projection::Config => rows.1.apply(placed)?,
    }
    Ok(())
}

/// Positions of the events that the store could not take.
async fn left_out(store: &ReadModel, projection: Projection) -> Result<BTreeSet<Position>, StoreError> {
    let mut positions = BTreeSet::new();
    loop {
        let page = store.unprojectable(projection, positions.last().copied(), 1_000).await?;
        if page.is_empty() {
            return Ok(positions);
        }
        positions.extend(page.into_iter().map(|left| left.position));
    }
}
