//! The rest of a stream after its first content: each event is forwarded when it is complete, the end is recorded before
//! the last bytes go out, and a cut never looks like an end.

mod alarm;
mod resume;
pub(crate) mod unread;

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use waybill_domain::observation::{Ending, Limit, Observation, Shape};
use waybill_domain::verdict::PublicCode;
use waybill_event::failure::Sent;
use waybill_upstream::observe;
use waybill_wire::chat::{Seen, StreamEnd};
use waybill_wire::error::render_stream_error;
use waybill_wire::retry::hints;

use alarm::{Alarm, Rang};
use resume::Resume;
use unread::Piece;

use crate::answer::Refusal;
use crate::attempt::{Opened, timed_out, wrong};
use crate::chat::Walk;

/// What closes a chat stream.
const DONE: &[u8] = b"data: [DONE]\n\n";
/// Time an upstream gets for what may still follow its terminal signal: usage and the closing sentinel.
const AFTER_END: Duration = Duration::from_secs(3);
/// Time it gets for the sentinel where usage has come already, and after that to end the body, so that its connection can
/// be used again.
const AFTER_DONE: Duration = Duration::from_millis(250);

/// A committed stream on its way to the client.
pub struct Relay {
    opened: Opened,
    walk: Walk,
    provider: String,
    idle: Duration,
    /// When the request has run out of time.
    ends: Instant,
    include_usage: bool,
    now_ms: i64,
    phase: Phase,
    alarm: Alarm,
    /// What the client has, where the policy resumes streams that break off.
    resume: Option<Box<Resume>>,
    /// How the stream broke off, until it is resumed or given up.
    cut: Option<Box<Observation>>,
    /// What of a resumed answer goes to the client before its next read.
    pending: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Flowing,
    Resuming,
    Draining,
    Over,
}

/// What the relay needs besides the stream.
pub struct Settings {
    /// The provider's kind.
    pub provider: String,
    /// Between two chunks.
    pub idle: Duration,
    /// When the whole request has run out of time.
    pub ends: Instant,
    /// Whether the client asked for the usage chunk.
    pub include_usage: bool,
    /// UTC at the attempt's start, in milliseconds.
    pub now_ms: i64,
    /// Whether a stream that breaks off is resumed where that can be verified.
    pub resumes: bool,
}

impl Relay {
    /// A relay of a stream whose first content is held.
    #[must_use]
    pub fn new(mut opened: Opened, mut walk: Walk, settings: Settings) -> Self {
        // A stream may last; of its headers only wait hints are still asked for.
        opened.headers = hints(&opened.headers);
        if !settings.resumes {
            walk.make_no_further_attempt();
        }
        let Settings { provider, idle, ends, include_usage, now_ms, resumes } = settings;
        let (phase, alarm) = (Phase::Held, Alarm::new(idle, walk.stopping()));
        let resume = resumes.then(|| Box::new(Resume::of(&opened.held)));
        Self {
            opened,
            walk,
            provider,
            idle,
            ends,
            include_usage,
            now_ms,
            phase,
            alarm,
            resume,
            cut: None,
            pending: None,
        }
    }

    /// The body of the client's answer. Dropping it drops the upstream's connection and closes the record.
    pub fn into_body(self) -> Body {
        let replica = self.walk.replica().clone();
        let ends = self.ends;
        let pieces = futures_util::stream::unfold(Box::new(self), |mut relay| async move {
            let bytes = relay.next().await?;
            let last = matches!(relay.phase, Phase::Draining | Phase::Over);
            Some((Piece { bytes, last }, relay))
        });
        Body::from_stream(replica.unread().watched(pieces, ends))
    }

    async fn next(&mut self) -> Option<Bytes> {
        match self.phase {
            Phase::Held => {
                self.phase = Phase::Flowing;
                let held = std::mem::take(&mut self.opened.held);
                // A silent answer may be over already; what follows is seen with the next read.
                Some(held)
            }
            Phase::Flowing | Phase::Resuming => self.flow().await,
            Phase::Draining => {
                // The client has everything; only the connection's end is still read.
                let rest = async { while let Ok(Some(_)) = self.opened.reply.chunk().await {} };
                if tokio::time::timeout(AFTER_DONE, rest).await.is_ok() {
                    self.walk.record.upstream_over();
                }
                self.phase = Phase::Over;
                None
            }
            Phase::Over => None,
        }
    }

    async fn flow(&mut self) -> Option<Bytes> {
        loop {
            let ready = self.pending.take().unwrap_or_else(|| self.frames());
            if !ready.is_empty() {
                self.walk.record.end_acknowledged().await;
                return Some(ready);
            }
            match self.phase {
                Phase::Flowing => {}
                Phase::Resuming => {
                    // Few streams break off; the others shouldn't carry the room for it.
                    if let Some(last) = Box::pin(self.go_on_elsewhere()).await {
                        self.walk.record.end_acknowledged().await;
                        return Some(last);
                    }
                    continue;
                }
                Phase::Held | Phase::Draining | Phase::Over => return None,
            }
            let own = Instant::now() + self.patience();
            let last = match self.alarm.bound(own.min(self.ends), &mut self.opened.reply).await {
                Rang::Read(Ok(Some(chunk))) => {
                    self.opened.splitter.push(&chunk);
                    continue;
                }
                Rang::Read(Ok(None)) => {
                    let last = self.ended();
                    self.walk.record.upstream_over();
                    last
                }
                Rang::Read(Err(fault)) => {
                    let observed = observe::transport(&self.provider, fault, true);
                    self.cut_short(observed)
                }
                Rang::Stopping => self.stopped(),
                Rang::Late => {
                    let limit = if self.ends < own { Limit::Deadline } else { Limit::Idle };
                    self.cut_short(timed_out(&self.provider, limit, Sent::Response, true))
                }
            };
            if last.is_empty() && self.phase == Phase::Resuming {
                continue;
            }
            self.walk.record.end_acknowledged().await;
            return Some(last);
        }
    }

    /// How long the next chunk may take. After the terminal signal only usage and the sentinel may come.
    fn patience(&self) -> Duration {
        let watch = &self.opened.watch;
        match (watch.ended(), watch.usage().is_some()) {
            (false, _) => self.idle,
            (true, false) => AFTER_END.min(self.idle),
            (true, true) => AFTER_DONE.min(self.idle),
        }
    }

    /// All complete events received so far, as one piece.
    fn frames(&mut self) -> Bytes {
        let mut first: Option<Bytes> = None;
        let mut more = BytesMut::new();
        let mut push = |bytes: Bytes| match (&first, more.is_empty()) {
            (None, true) => first = Some(bytes),
            (Some(before), true) => {
                more.extend_from_slice(before);
                more.extend_from_slice(&bytes);
            }
            (_, false) => more.extend_from_slice(&bytes),
        };
        loop {
            let frame = match self.opened.splitter.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => {
                    push(self.broken(wrong(&self.provider, self.opened.status, Shape::BrokenEvent, true)));
                    break;
                }
            };
            match self.opened.watch.take(&frame) {
                Seen::Content | Seen::Silent => match self.told(&frame) {
                    Some(bytes) => push(bytes),
                    None => {
                        push(self.differs());
                        break;
                    }
                },
                Seen::UsageOnly if self.include_usage => push(frame.raw),
                Seen::UsageOnly => {}
                Seen::Done if self.lags() => {
                    push(self.differs());
                    break;
                }
                Seen::Done => {
                    self.complete();
                    push(frame.raw);
                    self.phase = Phase::Draining;
                    break;
                }
                Seen::Error | Seen::Malformed => {
                    let (status, headers) = (self.opened.status, &self.opened.headers);
                    let observed = observe::stream(&self.provider, status, headers, &self.opened.watch, self.now_ms);
                    push(self.broken(Observation { committed: true, ..observed }));
                    break;
                }
            }
        }
        if more.is_empty() { first.unwrap_or_default() } else { more.freeze() }
    }

    /// The body ended without the sentinel: a stream that is complete is closed properly, any other is cut.
    fn ended(&mut self) -> Bytes {
        let mut tail = BytesMut::new();
        if let Some(last) = self.opened.splitter.finish() {
            match self.opened.watch.take(&last) {
                Seen::Content | Seen::Silent => match self.told(&last) {
                    Some(bytes) if last.complete => tail.extend_from_slice(&bytes),
                    Some(_) => tail.extend_from_slice(&last.terminated()),
                    None => return self.differs(),
                },
                Seen::UsageOnly if self.include_usage => tail.extend_from_slice(&last.terminated()),
                // A partial event is dropped, before anything of ours is appended.
                Seen::UsageOnly | Seen::Done | Seen::Error | Seen::Malformed => {}
            }
        }
        match self.opened.watch.end() {
            StreamEnd::Complete | StreamEnd::Empty if self.lags() => return self.differs(),
            StreamEnd::Complete | StreamEnd::Empty => {
                self.complete();
                self.phase = Phase::Over;
                tail.extend_from_slice(DONE);
            }
            StreamEnd::Cut | StreamEnd::Failed => {
                let (status, headers) = (self.opened.status, &self.opened.headers);
                let observed = observe::stream(&self.provider, status, headers, &self.opened.watch, self.now_ms);
                tail.extend_from_slice(&self.broken(Observation { committed: true, ..observed }));
            }
        }
        tail.freeze()
    }

    /// The connection failed or fell silent: after the terminal signal that costs nothing.
    fn cut_short(&mut self, observed: Observation) -> Bytes {
        if self.opened.watch.ended() { self.ended() } else { self.broken(observed) }
    }

    /// The replica must stop: what isn't complete is told as cut, and nobody goes on with it.
    fn stopped(&mut self) -> Bytes {
        if self.opened.watch.ended() {
            return self.ended();
        }
        self.give_up(Observation { committed: true, ..Observation::new(self.provider.as_str(), Ending::Local) })
    }

    fn complete(&mut self) {
        let watch = &self.opened.watch;
        self.walk.record.reported(watch.usage(), watch.model());
        self.walk.record.succeeded(self.opened.heard.clone());
    }

    fn broken(&mut self, observed: Observation) -> Bytes {
        if self.can_resume(&observed) {
            // Whatever it may still have to say, it isn't asked any more while others are.
            self.opened.reply.leave();
            self.cut = Some(Box::new(observed));
            self.phase = Phase::Resuming;
            return Bytes::new();
        }
        self.give_up(observed)
    }

    /// The client gets the protocol's own error event, and the request ends.
    fn give_up(&mut self, observed: Observation) -> Bytes {
        let watch = &self.opened.watch;
        self.walk.record.reported(watch.usage(), watch.model());
        let code = code_of(&observed);
        self.opened.reply.leave();
        self.walk.record.broke_off(observed, self.opened.heard.clone(), code.as_str());
        self.last_words(code)
    }

    fn last_words(&mut self, code: PublicCode) -> Bytes {
        self.phase = Phase::Over;
        let message = format!("{} (request {})", code.message(), self.walk.record.id());
        render_stream_error(&Refusal::saying(code, message).public())
    }
}

fn code_of(observed: &Observation) -> PublicCode {
    match &observed.ending {
        Ending::TimedOut { limit: Limit::Deadline, .. } => PublicCode::DeadlineExceeded,
        _ => PublicCode::StreamInterrupted,
    }
}
