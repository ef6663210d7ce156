//! What an HTTP client's error means as a fact: phase, kind, and how much of the request had left.

use std::error::Error;
use std::io;

use waybill_domain::observation::{Fault, Phase, TransportFault};
use waybill_event::failure::Sent;
use waybill_wire::mask::mask;

use crate::dispatch::{ConnectFault, NoEndpoint};
use crate::guard::Refused;
use crate::resolve::ResolveFault;
use crate::track::{ConnectTimedOut, Stage, Track};

/// Facts of a connection that wasn't made.
pub(crate) fn connecting(error: &ConnectFault, track: &Track) -> TransportFault {
    let (phase, fault) = Seen::read(error).connecting(track.stage());
    TransportFault { phase, fault, sent: Sent::Nothing, received: 0, detail: detail(error.0.as_ref()) }
}

/// Facts of an error on a connection, before the answer's head.
pub(crate) fn before_head(error: &hyper::Error) -> TransportFault {
    let seen = Seen::read(error);
    let sent = if seen.canceled { Sent::Nothing } else { Sent::Request };
    TransportFault { phase: Phase::Head, fault: seen.of_connection(), sent, received: 0, detail: detail(error) }
}

/// Facts of an error within the answer's body.
pub(crate) fn in_body(error: &(dyn Error + 'static), received: u64) -> TransportFault {
    let fault = Seen::read(error).of_connection();
    TransportFault { phase: Phase::Body, fault, sent: Sent::Response, received, detail: detail(error) }
}

/// Facts of a URL that can't be asked for.
pub(crate) fn unaddressable(error: &NoEndpoint) -> TransportFault {
    TransportFault {
        phase: Phase::Connect,
        fault: Fault::Unreachable,
        sent: Sent::Nothing,
        received: 0,
        detail: error.to_string(),
    }
}

/// Facts of a head that didn't come in time.
pub(crate) fn head_timed_out(track: &Track) -> TransportFault {
    let (phase, sent, detail) = match track.stage() {
        Stage::Resolving => (Phase::Resolve, Sent::Nothing, "the name wasn't resolved in time"),
        Stage::Connecting => (Phase::Connect, Sent::Nothing, "no connection in time"),
        Stage::Pooled | Stage::Connected => (Phase::Head, Sent::Request, "no answer in time"),
    };
    TransportFault { phase, fault: Fault::TimedOut, sent, received: 0, detail: detail.to_owned() }
}

/// Facts of a body that didn't come in time.
pub(crate) fn body_timed_out() -> TransportFault {
    TransportFault {
        phase: Phase::Body,
        fault: Fault::TimedOut,
        sent: Sent::Response,
        received: 0,
        detail: "the answer's body didn't arrive in time".to_owned(),
    }
}

/// Facts of an address that isn't dialled.
pub(crate) fn refused(refused: Refused) -> TransportFault {
    TransportFault {
        phase: Phase::Connect,
        fault: Fault::AddressRefused,
        sent: Sent::Nothing,
        received: 0,
        detail: refused.to_string(),
    }
}

/// Facts of a body beyond what we read.
pub(crate) fn too_large(limit: usize, received: u64) -> TransportFault {
    TransportFault {
        phase: Phase::Body,
        fault: Fault::TooLarge,
        sent: Sent::Response,
        received,
        detail: format!("the answer is larger than {limit} bytes"),
    }
}

/// Whether a dead pooled connection explains a fault: nothing came back on a connection that another request had used,
/// or the peer said that it hadn't begun. One fresh connection settles it.
pub(crate) fn is_stale(error: &hyper::Error, track: &Track) -> bool {
    let seen = Seen::read(error);
    if seen.timeout {
        return false;
    }
    if seen.unstarted {
        return true;
    }
    track.stage() != Stage::Connected && matches!(seen.of_connection(), Fault::Closed | Fault::Reset)
}

/// What the chain of an error holds.
#[derive(Debug, Default)]
struct Seen {
    refused: bool,
    resolve: bool,
    connect_timeout: bool,
    tls: bool,
    io: Option<io::ErrorKind>,
    canceled: bool,
    incomplete: bool,
    parse: bool,
    timeout: bool,
    /// HTTP/2 said that the stream wasn't begun.
    unstarted: bool,
    stream_reset: bool,
}

impl Seen {
    fn read(error: &(dyn Error + 'static)) -> Self {
        let mut seen = Self::default();
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(link) = next {
            seen.look_at(link);
            next = link.source();
        }
        seen
    }

    fn look_at(&mut self, link: &(dyn Error + 'static)) {
        if let Some(fault) = link.downcast_ref::<ResolveFault>() {
            self.refused |= matches!(fault, ResolveFault::Refused(_));
            self.resolve = true;
        }
        self.connect_timeout |= link.is::<ConnectTimedOut>();
        self.tls |= link.is::<rustls::Error>();
        if let Some(hyper) = link.downcast_ref::<hyper::Error>() {
            self.canceled |= hyper.is_canceled();
            self.incomplete |= hyper.is_incomplete_message() || hyper.is_closed();
            self.parse |= hyper.is_parse();
            self.timeout |= hyper.is_timeout();
        }
        if let Some(io) = link.downcast_ref::<io::Error>() {
            self.io = Some(io.kind());
            // An I/O error's source skips the error that it wraps.
            if let Some(inner) = io.get_ref() {
                self.look_at(inner);
            }
        }
        let text = link.to_string();
        // The HTTP/2 crate's error type isn't exported by the one above it.
        self.unstarted |= text.contains("refused stream before processing");
        self.stream_reset |= text.contains("stream error received") || text.contains("connection error received");
    }

    fn connecting(&self, stage: Stage) -> (Phase, Fault) {
        let early = if stage == Stage::Resolving { Phase::Resolve } else { Phase::Connect };
        match self {
            Self { refused: true, .. } => (Phase::Resolve, Fault::AddressRefused),
            Self { resolve: true, .. } => (Phase::Resolve, Fault::Dns),
            Self { connect_timeout: true, .. } | Self { timeout: true, .. } => (early, Fault::TimedOut),
            Self { tls: true, .. } => (Phase::Tls, Fault::Tls),
            // While dialling, an end of file can only come from the TLS handshake.
            Self { io: Some(io::ErrorKind::UnexpectedEof), .. } => (Phase::Tls, Fault::Closed),
            Self { io: Some(kind), .. } => (early, of_io(*kind).unwrap_or(Fault::Unreachable)),
            _ => (early, Fault::Unreachable),
        }
    }

    fn of_connection(&self) -> Fault {
        if self.timeout {
            return Fault::TimedOut;
        }
        if self.tls {
            return Fault::Tls;
        }
        if let Some(fault) = self.io.and_then(of_io) {
            return fault;
        }
        if self.stream_reset || self.unstarted {
            Fault::Reset
        } else if self.parse {
            Fault::Protocol
        } else if self.incomplete || self.canceled {
            Fault::Closed
        } else {
            Fault::Protocol
        }
    }
}

fn of_io(kind: io::ErrorKind) -> Option<Fault> {
    Some(match kind {
        io::ErrorKind::ConnectionRefused => Fault::Refused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => Fault::Reset,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => Fault::Unreachable,
        io::ErrorKind::TimedOut => Fault::TimedOut,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => Fault::Closed,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Fault::Protocol,
        _ => return None,
    })
}

/// The chain's words, masked and bounded.
fn detail(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(link) = next {
        let text = link.to_string();
        if words.last().is_none_or(|last| !last.contains(&text)) {
            words.push(text);
        }
        next = link.source();
    }
    mask(&words.join(": "))
}
