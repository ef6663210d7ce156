//! Publishing one message and learning what became of it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self};
use async_nats::{Event, ServerError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use waybill_journal::{AppendError, Appended};

use crate::convert::{append_error, is_under_way};

/// Pause before a message that met another one under way is sent again.
const UNDER_WAY_PAUSE: Duration = Duration::from_millis(5);
/// Complaints of the server that wait to be heard; a connection that provokes more at once gets its answers later.
const COMPLAINTS: usize = 64;

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
    told: broadcast::Sender<Arc<str>>,
}

impl Default for Violations {
    fn default() -> Self {
        Self { told: broadcast::Sender::new(COMPLAINTS) }
    }
}

impl Violations {
    /// Takes what the client tells of its connection.
    pub(crate) fn hear(&self, event: &Event) {
        match event {
            Event::ServerError(ServerError::Other(text)) => {
                tracing::error!(error = text, "the log's server complains");
                // Whoever waits for nothing has nothing to hear.
                let _unheard = self.told.send(text.to_lowercase().into());
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
        self.ask(subject, self.send(subject, message)).await
    }

    /// Waits for the answer to something that is sent to `subject`, or for the server's complaint about it.
    pub(crate) async fn ask<T>(
        &self,
        subject: &str,
        asked: impl Future<Output = Result<T, AppendError>>,
    ) -> Result<T, AppendError> {
        // A complaint that was there before this message doesn't speak of it.
        let mut complaints = self.violations.told.subscribe();
        let quoted = format!("publish to \"{}\"", subject.to_lowercase());
        let complaint = async {
            loop {
                match complaints.recv().await {
                    Ok(text) if text.contains(&quoted) => return,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => std::future::pending::<()>().await,
                }
            }
        };
        // The library bounds the wait for the acknowledgement, but not the one for a place among those in flight.
        tokio::select! {
            answered = tokio::time::timeout(self.deadline * 2, asked) => answered.unwrap_or_else(|_| {
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
