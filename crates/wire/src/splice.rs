//! Edits of a request body that leave every other byte as the client wrote it.

#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::peek::{Layout, StreamOptions};

const USAGE_OPTIONS: &[u8] = br#"{"include_usage":true}"#;

/// Replaces the model's value; everything else stays byte by byte. The same buffer comes back if nothing changes.
#[must_use]
pub fn splice_model(body: &Bytes, span: Range<usize>, model: &str) -> Bytes {
    let mut edits = Edits::default();
    edits.model(body, span, model);
    edits.apply(body)
}

/// Replaces the model's value and, if `want_usage`, makes the request ask for the usage chunk of a stream.
/// Everything else stays byte by byte; the same buffer comes back if nothing changes.
#[must_use]
pub fn rewrite(body: &Bytes, layout: &Layout, model: &str, want_usage: bool) -> Bytes {
    let mut edits = Edits::default();
    edits.model(body, layout.model.clone(), model);
    if want_usage {
        edits.usage(body, layout);
    }
    edits.apply(body)
}

#[derive(Default)]
struct Edits(Vec<(Range<usize>, Vec<u8>)>);

impl Edits {
    fn model(&mut self, body: &[u8], span: Range<usize>, model: &str) {
        // A string can always be written.
        if let Ok(value) = serde_json::to_vec(model) {
            self.put(body, span, value);
        }
    }

    fn usage(&mut self, body: &[u8], layout: &Layout) {
        match &layout.stream_options {
            StreamOptions::Absent => {
                let at = layout.object_start;
                // The body has a model, so the new member is never the last one.
                let member = [b"\"stream_options\":", USAGE_OPTIONS, b","].concat();
                self.put(body, at..at, member);
            }
            StreamOptions::Null(span) => self.put(body, span.clone(), USAGE_OPTIONS.to_vec()),
            StreamOptions::Object { span, empty } => {
                let at = span.start + 1;
                let comma: &[u8] = if *empty { b"" } else { b"," };
                self.put(body, at..at, [b"\"include_usage\":true", comma].concat());
            }
            StreamOptions::Usage(span) => self.put(body, span.clone(), b"true".to_vec()),
            StreamOptions::Other => {}
        }
    }

    fn put(&mut self, body: &[u8], span: Range<usize>, value: Vec<u8>) {
        if body.get(span.clone()) != Some(value.as_slice()) {
            self.0.push((span, value));
        }
    }

    fn apply(mut self, body: &Bytes) -> Bytes {
        if self.0.is_empty() {
            return body.clone();
        }
        self.0.sort_by_key(|(span, _)| span.start);
        let grown: usize = self.0.iter().map(|(_, value)| value.len()).sum();
        let mut out = BytesMut::with_capacity(body.len() + grown);
        let mut done = 0;
        for (span, value) in &self.0 {
            out.put_slice(body.get(done..span.start).unwrap_or_default());
            out.put_slice(value);
            done = span.end;
        }
        out.put_slice(body.get(done..).unwrap_or_default());
        out.freeze()
    }
}
