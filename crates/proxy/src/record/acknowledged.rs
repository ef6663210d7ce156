//! Waiting for the log, where the policy asks for that.

use super::Record;
use crate::metrics::Unacknowledged;
use crate::recording::{Durability, Recording};

impl Record {
    /// Waits until the log has what was written of the admission or the end, if the policy asks for that. Returns false
    /// when it didn't say so in time.
    pub async fn acknowledged(&mut self) -> bool {
        let Some(ordinal) = self.awaited.take() else { return true };
        let Recording { durability, acknowledged_within, .. } = self.replica.recording;
        match durability {
            Durability::Pipelined => true,
            Durability::Acked => {
                let waiting = self.replica.outbox().wait_acknowledged(ordinal);
                matches!(Box::pin(tokio::time::timeout(acknowledged_within, waiting)).await, Ok(true))
            }
        }
    }

    /// Waits as [`Record::acknowledged`] for the end. The answer is there and paid for, and its record stands in the
    /// outbox and says so: when the log doesn't answer, the client gets it all the same, and that is counted.
    pub async fn end_acknowledged(&mut self) {
        if !self.acknowledged().await {
            self.replica.metrics.unacknowledged(Unacknowledged::End);
            tracing::warn!(request_id = %self.story.id, "the log didn't acknowledge a request's end in time");
        }
    }
}
