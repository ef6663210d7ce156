//! The live feed: what is appended to the log from now on, decoded once for all who listen. Nothing is followed while
//! nobody listens; a listener that can't keep up loses events and is told how many.

use std::sync::Arc;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{ConfigPosition, DecodeError, Event, LogTime, Position, decode_batch, decode_one};
use waybill_journal::log::Following;
use waybill_journal::{Log, Message, ReadError, Start, Stream};

/// Events kept for slow listeners.
const KEPT: usize = 4_096;
/// Listeners at a time.
pub const LISTENERS: usize = 64;

/// Where an event of the feed stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the configuration stream.
    Config(ConfigPosition),
    /// In the traffic stream.
    Traffic(Position),
}

/// An event as it passes by.
#[derive(Debug, Clone)]
pub struct Passing {
    /// Where it stands.
    pub place: Place,
    /// When the store took it.
    pub stored_at: LogTime,
    /// The event.
    pub event: Arc<Event>,
}

struct Running {
    sender: broadcast::Sender<Passing>,
    stop: CancellationToken,
}

/// The feed. Cheap to clone.
#[derive(Clone)]
pub struct Feed {
    log: Arc<dyn Log>,
    tasks: TaskTracker,
    stop: CancellationToken,
    running: Arc<Mutex<Option<Running>>>,
}

/// Why nobody can listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// There are as many listeners as there may be.
    #[error("there may be at most {LISTENERS} listeners at a time")]
    Crowded,
    /// The log can't be reached.
    #[error(transparent)]
    Away(#[from] ReadError),
}

/// One listener's end of the feed. The last one that goes stops the following.
pub struct Listener {
    feed: Feed,
    /// The events.
    pub events: broadcast::Receiver<Passing>,
}

impl Feed {
    /// A feed of this log; its tasks belong to `tasks` and end with `stop`.
    #[must_use]
    pub fn new(log: Arc<dyn Log>, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { log, tasks, stop, running: Arc::default() }
    }

    /// Listens: everything that is appended after this returns will be told.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn listen(&self) -> Result<Listener, ListenError> {
        if let Some(events) = self.join()? {
            return Ok(Listener { feed: self.clone(), events });
        }
        let mut starts = Vec::with_capacity(2);
        for stream in [Stream::Traffic, Stream::Config] {
            starts.push((stream, self.log.bounds(stream).await?.last + 1));
        }
        let events = match self.join()? {
            // Somebody else began to listen meanwhile.
            Some(events) => events,
            None => self.begin(&starts),
        };
        Ok(Listener { feed: self.clone(), events })
    }

    fn join(&self) -> Result<Option<broadcast::Receiver<Passing>>, ListenError> {
        match self.running.lock().as_ref() {
            Some(Running { sender, .. }) if sender.receiver_count() >= LISTENERS => Err(ListenError::Crowded),
            Some(Running { sender, .. }) => Ok(Some(sender.subscribe())),
            None => Ok(None),
        }
    }

    fn begin(&self, starts: &[(Stream, u64)]) -> broadcast::Receiver<Passing> {
        let mut running = self.running.lock();
        if let Some(Running { sender, .. }) = running.as_ref() {
            return sender.subscribe();
        }
        let (sender, events) = broadcast::channel(KEPT);
        let stop = self.stop.child_token();
        for (stream, from) in starts {
            let following = self.log.follow(*stream, Start::At(*from));
            self.tasks.spawn(pass_on(following, *stream, sender.clone(), stop.clone()));
        }
        *running = Some(Running { sender, stop });
        events
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut running = self.feed.running.lock();
        // This listener's own end still counts.
        if running.as_ref().is_some_and(|r| r.sender.receiver_count() <= 1)
            && let Some(last) = running.take()
        {
            last.stop.cancel();
        }
    }
}

async fn pass_on(
    mut following: Following,
    stream: Stream,
    sender: broadcast::Sender<Passing>,
    stop: CancellationToken,
) {
    loop {
        let item = tokio::select! {
            () = stop.cancelled() => return,
            item = following.next() => item,
        };
        match item {
            Some(Ok(message)) => {
                for passing in decode(stream, &message) {
                    // Nobody listening is no fault: the last one is just leaving.
                    let _heard = sender.send(passing);
                }
            }
            Some(Err(error)) => tracing::warn!(%error, stream = stream.name(), "the feed is interrupted"),
            None => return,
        }
    }
}

fn decode(stream: Stream, message: &Message) -> Vec<Passing> {
    let passing = |place, event: Result<Event, DecodeError>| match event {
        Ok(event) => Some(Passing { place, stored_at: message.stored_at, event: Arc::new(event) }),
        Err(error) => {
            tracing::warn!(%error, sequence = message.sequence, "an event can't be read");
            None
        }
    };
    match stream {
        Stream::Config => {
            let place = Place::Config(ConfigPosition(message.sequence));
            passing(place, decode_one(&message.payload)).into_iter().collect()
        }
        Stream::Traffic => match decode_batch(&message.payload) {
            Ok(events) => {
                let numbered = (0_u16..).zip(events);
                let place = |index| Place::Traffic(Position::new(message.sequence, index));
                numbered.filter_map(|(index, event)| passing(place(index), event)).collect()
            }
            Err(error) => {
                tracing::warn!(%error, sequence = message.sequence, "a message can't be read");
                Vec::new()
            }
        },
        // Sealed credentials aren't for the feed.
        Stream::Secret => Vec::new(),
    }
}
