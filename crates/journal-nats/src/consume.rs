//! Followers: ordered consumers, made anew after every fault, read by a task of their own so that they are polled all the
//! time, and handed on through a bounded channel.

use std::time::Duration;

use async_nats::jetstream::consumer::push::OrderedConfig;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::{self};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_journal::{ReadError, Start};

use crate::convert::unavailable;

/// Messages that wait for their reader.
const BUFFER: usize = 1_024;
/// Pause before a consumer is made anew; it doubles with each failure in a row.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The owner of all follower tasks of a connection.
#[derive(Clone)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// A message as the consumer got it.
pub(crate) struct Delivered {
    pub(crate) message: jetstream::Message,
    /// Messages that the server knows to come after it.
    pub(crate) pending: u64,
}

/// What a consumer's life is made of.
pub(crate) enum Happened {
    /// Before a consumer is made: this is the stream's last sequence, as its leader has it.
    Found { last: u64 },
    /// A consumer was made; this many messages were there for it.
    Began { pending: u64 },
    /// A message.
    Delivered(Box<Delivered>),
    /// A fault; the consumer is made anew.
    Failed(ReadError),
}

/// Says what to do with what happened to a follower.
pub(crate) trait Follower: Send + 'static {
    /// What its reader gets.
    type Item: Send + 'static;
    /// Where a new consumer begins.
    fn start(&self) -> Start;
    /// What is told of it, in order.
    fn take(&mut self, happened: Happened) -> Vec<Self::Item>;
}

impl Tasks {
    pub(crate) const fn new(tracker: TaskTracker, stop: CancellationToken) -> Self {
        Self { tracker, stop }
    }

    /// Follows `subject` of `stream` until the reader is dropped or the connection is closed.
    pub(crate) fn follow<F: Follower>(
        &self,
        context: jetstream::Context,
        stream: &'static str,
        subject: String,
        follower: F,
    ) -> BoxStream<'static, F::Item> {
        let (send, receive) = mpsc::channel(BUFFER);
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            let run = Run { context, stream, subject, follower, send };
            tokio::select! {
                () = stop.cancelled() => {}
                () = run.run() => {}
            }
        });
        futures_util::stream::unfold(receive, |mut receive| async move {
            let item = receive.recv().await?;
            Some((item, receive))
        })
        .boxed()
    }
}

/// The reader is gone.
struct Unread;

struct Run<F: Follower> {
    context: jetstream::Context,
    stream: &'static str,
    subject: String,
    follower: F,
    send: mpsc::Sender<F::Item>,
}

impl<F: Follower> Run<F> {
    async fn run(mut self) {
        let mut pause = PAUSE;
        loop {
            let mut delivered = false;
            let failed = match self.once(&mut delivered).await {
                Ok(error) => error,
                Err(Unread) => return,
            };
            if self.tell(Happened::Failed(failed)).await.is_err() {
                return;
            }
            pause = if delivered { PAUSE } else { (pause * 2).min(PAUSE_MAX) };
            tokio::select! {
                () = self.send.closed() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One consumer, from its making to its first fault.
    async fn once(&mut self, delivered: &mut bool) -> Result<ReadError, Unread> {
        let last = match self.last().await {
            Ok(last) => last,
            Err(error) => return Ok(error),
        };
        self.tell(Happened::Found { last }).await?;
        let config = OrderedConfig {
            deliver_subject: self.context.client().new_inbox(),
            filter_subject: self.subject.clone(),
            deliver_policy: policy(self.follower.start()),
            replay_policy: ReplayPolicy::Instant,
            ..OrderedConfig::default()
        };
        let consumer = match self.context.create_consumer_on_stream(config, self.stream).await {
            Ok(consumer) => consumer,
            Err(error) => return Ok(unavailable(&error)),
        };
        self.tell(Happened::Began { pending: consumer.cached_info().num_pending }).await?;
        let mut messages = match consumer.messages().await {
            Ok(messages) => messages,
            Err(error) => return Ok(unavailable(&error)),
        };
        loop {
            let next = tokio::select! {
                () = self.send.closed() => return Err(Unread),
                next = messages.next() => next,
            };
            let message = match next {
                Some(Ok(message)) => message,
                Some(Err(error)) => return Ok(unavailable(&error)),
                None => return Ok(ReadError::Unavailable { reason: "the consumer ended".to_owned() }),
            };
            let pending = match message.info() {
                Ok(info) => info.pending,
                Err(error) => return Ok(ReadError::Unavailable { reason: error.to_string() }),
            };
            *delivered = true;
            self.tell(Happened::Delivered(Box::new(Delivered { message, pending }))).await?;
        }
    }

    async fn last(&mut self) -> Result<u64, ReadError> {
        let stream = self.context.get_stream_no_info(self.stream).await.map_err(|error| unavailable(&error))?;
        let info = stream.get_info().await.map_err(|error| unavailable(&error))?;
        Ok(info.state.last_sequence)
    }

    async fn tell(&mut self, happened: Happened) -> Result<(), Unread> {
        for item in self.follower.take(happened) {
            self.send.send(item).await.map_err(|_| Unread)?;
        }
        Ok(())
    }
}

fn policy(start: Start) -> DeliverPolicy {
    match start {
        Start::At(sequence) => DeliverPolicy::ByStartSequence { start_sequence: sequence.max(1) },
        Start::LastPerSubject => DeliverPolicy::LastPerSubject,
        Start::New => DeliverPolicy::New,
    }
}
