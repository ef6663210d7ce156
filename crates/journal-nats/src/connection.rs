//! A connection with one role's identity.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{self};
use async_nats::{Client, ConnectOptions};
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_journal::Journal;

use crate::consume::Tasks;
use crate::keeping::Keeping;
use crate::keyed::NatsKeyed;
use crate::log::NatsLog;
use crate::publish::{Publisher, Violations};
use crate::setup::{SetupConfig, SetupError, setup};

/// Acknowledgements that may be awaited at once; more buys nothing.
const MAX_ACK_INFLIGHT: usize = 1_000;

/// Where the log is and as whom to connect.
#[derive(Debug, Clone)]
pub struct NatsConfig {
    /// Addresses of the servers.
    pub urls: Vec<String>,
    /// The role's user; also the prefix of its inboxes.
    pub user: String,
    /// The user's password.
    pub password: SecretString,
    /// Name of the connection, for the server's own pages.
    pub name: String,
    /// How long an append waits for its acknowledgement.
    pub ack_deadline: Duration,
    /// How long any other question waits for its answer.
    pub ask_deadline: Duration,
}

impl NatsConfig {
    /// A connection with the usual deadlines: 2 s for acknowledgements and answers.
    #[must_use]
    pub fn new(urls: Vec<String>, user: String, password: SecretString, name: String) -> Self {
        let deadline = Duration::from_secs(2);
        Self { urls, user, password, name, ack_deadline: deadline, ask_deadline: deadline }
    }
}

/// The log can't be connected to.
#[derive(Debug, thiserror::Error)]
#[error("no connection to the log")]
pub struct ConnectError(#[from] async_nats::ConnectError);

/// How the connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// The server answers.
    Connected,
    /// It was lost and is being tried again.
    Disconnected,
}

/// A connection; it ends with [`Connection::close`], or when the last clone of it and of its journal is dropped.
pub struct Connection {
    client: Client,
    context: jetstream::Context,
    journal: Journal,
    tasks: TaskTracker,
    stop: CancellationToken,
    ask_deadline: Duration,
}

/// Connects. The first connection must succeed; later losses are repaired without end.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(config: NatsConfig) -> Result<Connection, ConnectError> {
    let options = ConnectOptions::new()
        .name(config.name)
        .user_and_password(config.user.clone(), config.password.expose_secret().to_owned())
        .custom_inbox_prefix(format!("_INBOX_{}", config.user))
        .ping_interval(Duration::from_secs(5))
        .request_timeout(Some(config.ask_deadline))
        // The first attempt comes at once: the callback also delays the very first connection.
        .reconnect_delay_callback(|attempt| match attempt {
            0 | 1 => Duration::ZERO,
            n => Duration::from_millis(u64::try_from(n).unwrap_or(u64::MAX).saturating_mul(50).min(1_000)),
        });
    let violations = Violations::default();
    let heard = violations.clone();
    let options = options.event_callback(move |event| {
        heard.hear(&event);
        std::future::ready(())
    });
    let client = options.connect(config.urls).await?;
    let context = ContextBuilder::new()
        .timeout(config.ask_deadline)
        .ack_timeout(config.ack_deadline)
        .max_ack_inflight(MAX_ACK_INFLIGHT)
        .backpressure_on_inflight(true)
        .build(client.clone());
    let publisher = Publisher::new(context.clone(), violations, config.ack_deadline);
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let owned = Tasks::new(tasks.clone(), stop.clone());
    let journal = Journal {
        log: Arc::new(NatsLog::new(
            client.clone(),
            context.clone(),
            publisher.clone(),
            owned.clone(),
            config.ask_deadline,
        )),
        keyed: Arc::new(NatsKeyed::new(context.clone(), publisher, owned, config.ask_deadline)),
    };
    Ok(Connection { client, context, journal, tasks, stop, ask_deadline: config.ask_deadline })
}

impl Connection {
    /// The port over this connection.
    #[must_use]
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// How it is now.
    #[must_use]
    pub fn health(&self) -> Health {
        match self.client.connection_state() {
            State::Connected => Health::Connected,
            State::Pending | State::Disconnected => Health::Disconnected,
        }
    }

    /// A look at all streams and buckets, one question each.
    pub async fn survey(&self) -> crate::Survey {
        crate::survey::survey(&self.client, &self.context).await
    }

    /// Asks how the log is kept.
    #[must_use]
    pub fn keeping(&self) -> Keeping {
        Keeping::new(self.context.clone(), self.ask_deadline)
    }

    /// Creates or updates the streams and buckets. Needs the operator's identity.
    ///
    /// # Errors
    /// [`SetupError`].
    pub async fn setup(&self, config: &SetupConfig) -> Result<(), SetupError> {
        setup(&self.context, config).await
    }

    /// Ends all followers and watches, sends what is still to be sent, and waits for both.
    pub async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Err(error) = self.client.drain().await {
            tracing::debug!(%error, "the connection was gone before it was drained");
        }
    }
}
