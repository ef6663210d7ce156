//! A limit of time for each chunk of a stream. Its timer stays where it is while chunks come in time, since setting one
//! for every chunk would cost more than the chunk; it only rings early, and is then set anew. A replica that must stop
//! rings, too.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use waybill_domain::observation::TransportFault;
use waybill_upstream::Reply;

/// What a read of a stream gives: a chunk, its regular end, or a fault.
type Read = Result<Option<Bytes>, TransportFault>;

/// What ended the wait for a chunk.
pub(super) enum Rang {
    /// The chunk, the body's end, or a fault.
    Read(Read),
    /// Nothing came in time.
    Late,
    /// The replica must stop.
    Stopping,
}

/// The timer of one stream.
pub(super) struct Alarm {
    timer: Pin<Box<Sleep>>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Alarm {
    /// A timer that first rings after `usual`, or when `stopping` is cancelled.
    pub(super) fn new(usual: Duration, stopping: &CancellationToken) -> Self {
        let stopping = Box::pin(stopping.clone().cancelled_owned());
        Self { timer: Box::pin(tokio::time::sleep(usual)), stopping }
    }

    /// The next chunk, unless it doesn't come until `end`.
    pub(super) async fn bound(&mut self, end: Instant, reply: &mut Reply) -> Rang {
        if self.timer.deadline() > end {
            self.timer.as_mut().reset(end);
        }
        loop {
            tokio::select! {
                biased;
                read = reply.chunk() => return Rang::Read(read),
                () = self.stopping.as_mut() => return Rang::Stopping,
                () = self.timer.as_mut() => {
                    if Instant::now() >= end {
                        return Rang::Late;
                    }
                    self.timer.as_mut().reset(end);
                }
            }
        }
    }
}
