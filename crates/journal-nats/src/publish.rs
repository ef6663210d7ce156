//! Publishing one message and learning what became of it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self};
use async_nats::{Event, ServerError};
use tokio::sync::watch;
use tokio::time::Instant;
use waybill_journal::{AppendError, Appended};

use crate::convert::{append_error, is_under_way};

/// Pause before a message that met another one under way is sent again.
const UNDER_WAY_PAUSE: Duration = Duration::from_millis(5);

/// Publishes on one connection.
#[derive(Clone)]
pub(crate) struct Publisher {
    context: jetstream::Context,
    violations: Violations,
    /// For the message and its acknowledgement.
    deadline: Duration,
}

/// What the server says of messages that the user may not send. It never answers them; it complains beside.
#[derive(Clone)]
pub(crate) struct Violations {
    last: Arc<watch::Sender<String>>,
}

impl Default for Violations {
    fn default() -> Self {
        Self { last: Arc::new(watch::Sender::new(String::new())) }
    }
}

impl Violations {
    /// Takes what the client tells of its connection.
    pub(crate) fn hear(&self, event: &Event) {
        match event {
            Event::ServerError(ServerError::Other(text)) => {
                tracing::error!(error = text, "the log's server complains");
                self.last.send_replace(text.to_lowercase());
            }
            Event::Connected => tracing::info!("connected to the log"),
            // Asked for by ourselves, when the connection is closed.
            Event::Draining | Event::Closed => tracing::debug!(%event, "the connection to the log ends"),
            other => tracing::warn!(event = %other, "the connection to the log has changed"),
        }
    }
}

impl Publisher {
    pub(crate) const fn new(context: jetstream::Context, violations: Violations, deadline: Duration) -> Self {
        Self { context, violations, deadline }
    }

    /// Publishes and waits for the acknowledgement. While another write to the same subject is under way it is sent
    /// again: only then is it decided whether what this one expects holds.
    pub(crate) async fn publish(&self, subject: &str, message: PublishMessage) -> Result<Appended, AppendError> {
        let mut complaints = self.violations.last.subscribe();
        complaints.mark_unchanged();
        let quoted = format!("publish to \"{}\"", subject.to_lowercase());
        // A complaint that was there before this message doesn't speak of it.
        let complaint = async {
            while complaints.changed().await.is_ok() {
                if complaints.borrow_and_update().contains(&quoted) {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        // The library bounds the wait for the acknowledgement, but not the one for a place among those in flight.
        tokio::select! {
            published = tokio::time::timeout(self.deadline * 2, self.send(subject, message)) => published.unwrap_or_else(|_| {
                Err(AppendError::Unknown { reason: "no acknowledgement within the deadline".to_owned() })
            }),
            () = complaint => Err(AppendError::Refused { reason: format!("this user may not publish to {subject}") }),
        }
    }

    async fn send(&self, subject: &str, message: PublishMessage) -> Result<Appended, AppendError> {
        let end = Instant::now() + self.deadline;
        loop {
            let sent = self.context.send_publish(subject.to_owned(), message.clone()).await;
            let acknowledged = sent.map_err(|error| append_error(&error))?.await;
            match acknowledged {
                Ok(ack) => return Ok(Appended { sequence: ack.sequence, duplicate: ack.duplicate }),
                Err(error) if is_under_way(&error) && Instant::now() < end => {
                    tokio::time::sleep(UNDER_WAY_PAUSE).await;
                }
                Err(error) => return Err(append_error(&error)),
            }
        }
    }
}
