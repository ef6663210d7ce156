//! One reply: what is sent, in which pieces, how fast, and where it goes wrong.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Chat;

/// The reply to one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// Wait before the head, in milliseconds.
    pub delay_head_ms: u64,
    /// Whether `103 Early Hints` comes before the head.
    pub early_hints: bool,
    /// Status code.
    pub status: u16,
    /// Headers beside those that follow from the body.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Body,
    /// How the body's end is told; chunks for streams and a length for the rest when absent.
    pub framing: Option<Framing>,
    /// Whether the body is compressed with gzip, asked for or not.
    pub gzip: bool,
    /// In which pieces the body is written.
    pub chunking: Chunking,
    /// Wait before each piece but the first, in milliseconds.
    pub delay_per_chunk_ms: u64,
    /// Splits every piece into small ones with pauses.
    pub drip: Option<Drip>,
    /// Where it goes wrong.
    pub fault: Option<Fault>,
    /// Whether the connection closes after it, announced by `connection: close`.
    pub close: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            delay_head_ms: 0,
            early_hints: false,
            status: 200,
            headers: Vec::new(),
            body: Body::default(),
            framing: None,
            gzip: false,
            chunking: Chunking::default(),
            delay_per_chunk_ms: 0,
            drip: None,
            fault: None,
            close: false,
        }
    }
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Body {
    /// A chat answer.
    Chat(Chat),
    /// A JSON value.
    Json(Value),
    /// An error object as OpenAI sends it.
    Error {
        /// `code` of the error.
        kind: String,
        /// `message` of the error; a fixed one when absent.
        #[serde(default)]
        message: Option<String>,
    },
    /// Text of a given content type.
    Text {
        /// Content type.
        content_type: String,
        /// The text.
        text: String,
    },
    /// Bytes of a given content type.
    Bytes {
        /// Content type.
        content_type: String,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// An event stream of these frames, each without its blank line.
    Frames(Vec<String>),
    /// No body.
    Empty,
    /// These bytes instead of any HTTP response; then the connection closes.
    Wire(String),
}

impl Default for Body {
    fn default() -> Self {
        Self::Chat(Chat::default())
    }
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// `content-length`.
    Length,
    /// `transfer-encoding: chunked`.
    Chunked,
    /// The connection closes.
    Close,
}

/// In which pieces a body is written; each is a chunk of its own under [`Framing::Chunked`], and flushed by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chunking {
    /// One piece for each event of a stream; other bodies in one piece.
    #[default]
    Frames,
    /// Everything in one piece.
    Whole,
    /// Pieces of this many bytes.
    Bytes(usize),
    /// A cut inside every character that takes several bytes.
    SplitUtf8,
}

/// Pieces of `bytes` bytes, one each `every_ms` milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drip {
    /// Bytes of a piece.
    pub bytes: usize,
    /// Milliseconds between pieces.
    pub every_ms: u64,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Where.
    pub after: After,
    /// What.
    pub then: Then,
}

/// A place in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// The request was read; nothing was sent.
    Request,
    /// This many bytes of the body were sent; 0 is right after the head.
    Bytes(usize),
    /// This many pieces of the body were sent; 0 is right after the head.
    Frames(usize),
}

/// What goes wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The connection closes in good order.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more comes for this many milliseconds, then the rest.
    Stall {
        /// How long.
        ms: u64,
    },
    /// Nothing more ever comes; the connection stays open.
    Hang,
}

impl Reply {
    /// A sensible chat answer, streamed when the request asks for it.
    #[must_use]
    pub fn chat(chat: Chat) -> Self {
        Self { body: Body::Chat(chat), ..Self::default() }
    }

    /// An error as OpenAI sends it: a status and an error object with this `code`.
    #[must_use]
    pub fn error(status: u16, kind: impl Into<String>) -> Self {
        Self { status, body: Body::Error { kind: kind.into(), message: None }, ..Self::default() }
    }

    /// A status with a JSON body.
    #[must_use]
    pub fn json(status: u16, value: Value) -> Self {
        Self { status, body: Body::Json(value), ..Self::default() }
    }

    /// A status with an HTML page, as proxies and captive portals send them.
    #[must_use]
    pub fn html(status: u16) -> Self {
        let text = format!("<!doctype html>\n<html><body><h1>{status}</h1><p>nginx</p></body></html>\n");
        Self { status, body: Body::Text { content_type: "text/html".into(), text }, ..Self::default() }
    }

    /// A status with nothing.
    #[must_use]
    pub fn empty(status: u16) -> Self {
        Self { status, body: Body::Empty, ..Self::default() }
    }

    /// A redirect.
    #[must_use]
    pub fn redirect(status: u16, location: impl Into<String>) -> Self {
        Self::empty(status).header("location", location)
    }

    /// An event stream of these frames, each without its blank line.
    #[must_use]
    pub fn frames<F: Into<String>>(frames: impl IntoIterator<Item = F>) -> Self {
        Self { body: Body::Frames(frames.into_iter().map(Into::into).collect()), ..Self::default() }
    }

    /// Bytes that are no HTTP response.
    #[must_use]
    pub fn wire(text: impl Into<String>) -> Self {
        Self { body: Body::Wire(text.into()), ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Waits before the head.
    #[must_use]
    pub fn delay_head(mut self, ms: u64) -> Self {
        self.delay_head_ms = ms;
        self
    }

    /// Waits before each piece but the first.
    #[must_use]
    pub fn delay_per_chunk(mut self, ms: u64) -> Self {
        self.delay_per_chunk_ms = ms;
        self
    }

    /// Goes wrong.
    #[must_use]
    pub fn fault(mut self, after: After, then: Then) -> Self {
        self.fault = Some(Fault { after, then });
        self
    }

    /// Writes the body in other pieces.
    #[must_use]
    pub fn chunking(mut self, chunking: Chunking) -> Self {
        self.chunking = chunking;
        self
    }

    /// Tells the body's end in another way.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = Some(framing);
        self
    }

    /// Sends a few bytes at a time.
    #[must_use]
    pub fn drip(mut self, bytes: usize, every_ms: u64) -> Self {
        self.drip = Some(Drip { bytes, every_ms });
        self
    }

    /// Compresses the body.
    #[must_use]
    pub fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }
}
