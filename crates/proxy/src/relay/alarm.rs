//! A limit of time for each chunk of a stream. Its timer stays where it is while chunks come in time, since setting one
//! for every chunk would cost more than the chunk; it only rings early, and is then set anew.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep};
use waybill_domain::observation::TransportFault;
use waybill_upstream::Reply;

/// What a read of a stream gives: a chunk, its regular end, or a fault.
type Read = Result<Option<Bytes>, TransportFault>;

/// The timer of one stream.
pub(super) struct Alarm {
    timer: Pin<Box<Sleep>>,
}

impl Alarm {
    /// A timer that first rings after `usual`.
    pub(super) fn new(usual: Duration) -> Self {
        Self { timer: Box::pin(tokio::time::sleep(usual)) }
    }

    /// The next chunk, or `None` if it doesn't come within `limit`.
    pub(super) async fn bound(&mut self, limit: Duration, reply: &mut Reply) -> Option<Read> {
        let end = Instant::now() + limit;
        if self.timer.deadline() > end {
            self.timer.as_mut().reset(end);
        }
        loop {
            tokio::select! {
                biased;
                read = reply.chunk() => return Some(read),
                () = self.timer.as_mut() => {
                    if Instant::now() >= end {
                        return None;
                    }
                    self.timer.as_mut().reset(end);
                }
            }
        }
    }
}
