//! Going on with a stream that broke off: the request is asked again elsewhere, and what comes is forwarded only from the
//! point on where it has repeated exactly what the client has. On the first difference the client gets the error event.

use bytes::{BufMut as _, Bytes, BytesMut};
use waybill_domain::attempt::Conclusion;
use waybill_domain::observation::{Ending, Limit, Observation};
use waybill_domain::verdict::PublicCode;
use waybill_wire::chat::{Repeated, Repetition, Transcript};
use waybill_wire::sse::Frame;

use super::{Phase, Relay, code_of};
use crate::attempt::Attempted;
use crate::attempt::checked::frames;

/// What the client has of the answer.
pub(super) enum Resume {
    /// All that was forwarded.
    Following(Transcript),
    /// Another answer is being compared with it.
    Repeating(Repetition),
    /// Nothing can be compared any more.
    Lost,
}

impl Resume {
    /// What the frames held back until the first content tell.
    pub(super) fn of(held: &Bytes) -> Self {
        let mut transcript = Transcript::default();
        for frame in frames(held) {
            if !frame.data().is_empty() {
                transcript.take(frame.data());
            }
        }
        Self::Following(transcript)
    }
}

impl Relay {
    /// What of a frame goes to the client; nothing at all where it isn't what the client has.
    pub(super) fn told(&mut self, frame: &Frame) -> Option<Bytes> {
        let Some(resume) = self.resume.as_deref_mut() else { return Some(frame.raw.clone()) };
        match resume {
            Resume::Lost => Some(frame.raw.clone()),
            Resume::Following(transcript) => {
                if !frame.data().is_empty() {
                    transcript.take(frame.data());
                }
                Some(frame.raw.clone())
            }
            // Comments keep the connection alive while the answers are compared.
            Resume::Repeating(_) if frame.data().is_empty() => Some(frame.raw.clone()),
            Resume::Repeating(repetition) => {
                let told = match repetition.take(frame.data()) {
                    Repeated::Known => Bytes::new(),
                    Repeated::New(chunk) => {
                        let mut bytes = BytesMut::new();
                        bytes.put_slice(b"data: ");
                        bytes.put_slice(chunk.to_string().as_bytes());
                        bytes.put_slice(b"\n\n");
                        bytes.freeze()
                    }
                    Repeated::Differs => return None,
                };
                if repetition.caught_up() {
                    let repetition = std::mem::replace(resume, Resume::Lost);
                    if let Resume::Repeating(repetition) = repetition {
                        *resume = Resume::Following(repetition.into_transcript());
                    }
                }
                Some(told)
            }
        }
    }

    /// Whether the present answer hasn't repeated all that the client has.
    pub(super) fn lags(&self) -> bool {
        matches!(self.resume.as_deref(), Some(Resume::Repeating(repetition)) if !repetition.caught_up())
    }

    /// Whether what broke off may be asked for again.
    pub(super) fn can_resume(&self, observed: &Observation) -> bool {
        let exact = match self.resume.as_deref() {
            Some(Resume::Following(transcript)) => transcript.is_exact(),
            Some(Resume::Repeating(_)) => true,
            Some(Resume::Lost) | None => false,
        };
        exact && !matches!(observed.ending, Ending::TimedOut { limit: Limit::Deadline, .. } | Ending::Local)
    }

    /// The other answer is another one: nothing is spliced.
    pub(super) fn differs(&mut self) -> Bytes {
        self.resume = None;
        let observed = Observation { committed: true, ..Observation::new(self.provider.as_str(), Ending::Local) };
        self.give_up(observed)
    }

    /// Asks elsewhere. Gives the client's last bytes where nobody can be asked; else the stream flows on.
    pub(super) async fn go_on_elsewhere(&mut self) -> Option<Bytes> {
        let cut = self.cut.take()?;
        let mut observed = Observation { committed: false, ..*cut };
        let mut heard = self.opened.heard.clone();
        loop {
            if let Some(conclusion) = self.walk.after(observed.clone(), heard).await {
                return Some(self.end_of_the_walk(conclusion, &observed));
            }
            match self.walk.attempt().await {
                Attempted::Opened(opened) => {
                    self.walk.record.commit();
                    self.take_over(*opened);
                    return None;
                }
                Attempted::Failed(failed) => (observed, heard) = *failed,
                Attempted::Answered(_) => {
                    // A whole answer to a streamed request has no events to be compared.
                    self.resume = None;
                    return Some(self.differs());
                }
            }
        }
    }

    fn end_of_the_walk(&mut self, conclusion: Conclusion, observed: &Observation) -> Bytes {
        self.resume = None;
        tracing::debug!(?conclusion, "a stream that broke off can't be resumed");
        let code =
            if conclusion == Conclusion::DeadlineExceeded { PublicCode::DeadlineExceeded } else { code_of(observed) };
        self.walk.record.interrupted(code.as_str());
        self.last_words(code)
    }

    /// The next answer is compared with what the client has, from its first frame on.
    fn take_over(&mut self, opened: crate::attempt::Opened) {
        let told = self.resume.take().map(|resume| *resume);
        let repetition = match told {
            Some(Resume::Following(transcript)) => Some(transcript.repeated()),
            // What the client has is what the first answer told; the second one only repeated it.
            Some(Resume::Repeating(repetition)) => Some(repetition.into_transcript().repeated()),
            Some(Resume::Lost) | None => None,
        };
        self.resume = repetition.map(|repetition| Box::new(Resume::Repeating(repetition)));
        let held = opened.held.clone();
        self.opened = opened;
        if let Some(running) = self.walk.record.running() {
            running.entity.provider().clone_into(&mut self.provider);
        }
        self.phase = Phase::Flowing;
        // They were watched when they came; here they are only compared.
        let mut fresh = BytesMut::new();
        for frame in frames(&held) {
            match self.told(&frame) {
                Some(bytes) => fresh.extend_from_slice(&bytes),
                None => {
                    self.pending = Some(self.differs());
                    return;
                }
            }
        }
        self.pending = Some(fresh.freeze()).filter(|bytes| !bytes.is_empty());
    }
}
