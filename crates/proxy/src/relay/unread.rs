//! Streams whose clients don't read them. A body is asked for its next piece only once the client has taken those before,
//! so that a stream which nobody reads would be nobody's to end: its source's slot, its key's, and its upstream would be
//! held for as long as the connection stands. All streams are looked at once a second; one that wasn't read for a minute, or
//! whose request has run out of time meanwhile, ends as if its client had left.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two looks.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Looks that a client is given for each piece.
const MOST: u32 = 60;
/// Looks that it is given in any case, and to ask for the end of what it has been sent whole.
const LEAST: u32 = 2;

/// Pieces of a stream; the last one with content says so.
type Pieces = Pin<Box<dyn Stream<Item = Piece> + Send>>;

/// What goes to the client.
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// Nothing more of the answer follows.
    pub(super) last: bool,
}

/// The streams of a replica that are open.
#[derive(Default)]
pub(crate) struct Unread(Mutex<Vec<Weak<Open>>>);

struct Open {
    pieces: Mutex<Option<Pieces>>,
    /// The client has a piece and hasn't asked for the next one.
    is_clients: AtomicBool,
    /// All of the answer was handed over.
    whole: AtomicBool,
    /// Looks since the client's turn began.
    looks: AtomicU32,
    /// When the request has run out of time.
    ends: Instant,
}

impl Unread {
    /// A stream of these pieces, whose request has run out of time at `ends`.
    pub(super) fn watched(&self, pieces: impl Stream<Item = Piece> + Send + 'static, ends: Instant) -> Reading {
        let open = Arc::new(Open {
            pieces: Mutex::new(Some(Box::pin(pieces))),
            is_clients: AtomicBool::new(false),
            whole: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            ends,
        });
        self.0.lock().push(Arc::downgrade(&open));
        Reading(open)
    }

    /// Looks at all of them; how many were ended.
    pub(crate) fn look(&self, now: Instant) -> usize {
        let mut open = Vec::new();
        self.0.lock().retain(|known| {
            open.extend(known.upgrade());
            known.strong_count() > 0
        });
        open.iter().filter(|open| open.is_left(now)).count()
    }
}

impl Open {
    /// Ends the stream if its client has left it. What it holds goes back as it is dropped.
    fn is_left(&self, now: Instant) -> bool {
        if !self.is_clients.load(Ordering::Acquire) {
            return false;
        }
        let looks = self.looks.fetch_add(1, Ordering::AcqRel) + 1;
        let over = self.whole.load(Ordering::Acquire) || now >= self.ends;
        if looks <= if over { LEAST } else { MOST } {
            return false;
        }
        // Who is being asked just now isn't left.
        let left =
            self.pieces.try_lock().filter(|_| self.is_clients.load(Ordering::Acquire)).and_then(|mut p| p.take());
        left.is_some()
    }
}

/// The stream as its client reads it.
pub(super) struct Reading(Arc<Open>);

impl Stream for Reading {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let open = &self.0;
        let mut pieces = open.pieces.lock();
        open.is_clients.store(false, Ordering::Release);
        let Some(stream) = pieces.as_mut() else {
            // A cut never looks like an end.
            let cut = || io::Error::new(io::ErrorKind::TimedOut, "the client didn't read");
            return Poll::Ready((!open.whole.load(Ordering::Acquire)).then(|| Err(cut())));
        };
        let Some(Piece { bytes, last }) = ready!(stream.as_mut().poll_next(context)) else { return Poll::Ready(None) };
        open.looks.store(0, Ordering::Release);
        open.whole.store(last, Ordering::Release);
        open.is_clients.store(true, Ordering::Release);
        Poll::Ready(Some(Ok(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};

    use super::*;

    /// A stream of so many pieces, and whether it is still held.
    fn of(unread: &Unread, pieces: usize, ends: Duration) -> (Reading, Weak<()>) {
        let held = Arc::new(());
        let alive = Arc::downgrade(&held);
        let pieces = stream::iter(0..pieces).map(move |n| {
            let _held = &held;
            Piece { bytes: Bytes::from_static(b"x"), last: n + 1 == pieces }
        });
        (unread.watched(pieces, Instant::now() + ends), alive)
    }

    fn looks(unread: &Unread, times: u32) -> usize {
        (0..times).map(|_| unread.look(Instant::now())).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_reads_is_let_go_and_looks_cut() {
        let unread = Unread::default();
        let (mut reading, alive) = of(&unread, 3, Duration::from_secs(600));
        assert_eq!(looks(&unread, 100), 0, "it wasn't asked for anything yet");
        reading.next().await.unwrap().unwrap();
        assert_eq!(looks(&unread, 60), 0);
        reading.next().await.unwrap().unwrap();
        assert_eq!((looks(&unread, 60), alive.strong_count()), (0, 1), "each piece has its own time");
        assert_eq!((looks(&unread, 1), alive.strong_count()), (1, 0));
        assert!(reading.next().await.unwrap().is_err());
        drop(reading);
        assert_eq!(looks(&unread, 1), 0);
        assert!(unread.0.lock().is_empty(), "what is over is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_handed_over_whole_is_let_go_soon_and_ends_properly() {
        let unread = Unread::default();
        let (mut reading, alive) = of(&unread, 1, Duration::from_secs(600));
        reading.next().await.unwrap().unwrap();
        assert_eq!((looks(&unread, 3), alive.strong_count()), (1, 0));
        assert!(reading.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_out_of_time_is_let_go_while_its_client_is_slow() {
        let unread = Unread::default();
        let (mut reading, alive) = of(&unread, 3, Duration::from_secs(2));
        reading.next().await.unwrap().unwrap();
        assert_eq!(looks(&unread, 2), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!((looks(&unread, 1), alive.strong_count()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_is_waited_for_is_not_the_clients_to_answer_for() {
        let unread = Unread::default();
        let pieces = stream::pending().boxed();
        let mut reading = unread.watched(pieces, Instant::now() + Duration::from_secs(600));
        assert!(futures_util::poll!(reading.next()).is_pending());
        assert_eq!(looks(&unread, 100), 0);
    }
}
