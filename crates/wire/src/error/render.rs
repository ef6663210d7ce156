//! Errors as OpenAI clients expect them.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;

/// An error as a client sees it. What stands here is public.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicError {
    /// HTTP status, where the response's head isn't sent yet.
    pub status: u16,
    /// The `type`.
    pub kind: Cow<'static, str>,
    /// The `code`.
    pub code: Option<Cow<'static, str>>,
    /// The message.
    pub message: String,
    /// The request field that it speaks of.
    pub param: Option<Cow<'static, str>>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

/// The JSON body of an error response.
#[must_use]
pub fn render_error(error: &PublicError) -> Bytes {
    let mut out = BytesMut::with_capacity(128 + error.message.len());
    write(error, &mut out);
    out.freeze()
}

/// The event that ends a stream with an error. It stands at the start of a frame: what came before must be complete.
#[must_use]
pub fn render_stream_error(error: &PublicError) -> Bytes {
    let mut out = BytesMut::with_capacity(136 + error.message.len());
    out.put_slice(b"data: ");
    write(error, &mut out);
    out.put_slice(b"\n\n");
    out.freeze()
}

fn write(error: &PublicError, out: &mut BytesMut) {
    let envelope = Envelope {
        error: Body {
            message: &error.message,
            r#type: &error.kind,
            param: error.param.as_deref(),
            code: error.code.as_deref(),
        },
    };
    // Strings and options always serialise, and a growing buffer always takes them.
    if serde_json::to_writer(out.writer(), &envelope).is_err() {
        debug_assert!(false, "an error body always serialises");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, error: &PublicError) {
        let body = String::from_utf8(render_error(error).to_vec()).unwrap();
        let event = String::from_utf8(render_stream_error(error).to_vec()).unwrap();
        insta::assert_snapshot!(format!("{name}_body"), body);
        insta::assert_snapshot!(format!("{name}_event"), event);
        assert_eq!(event, format!("data: {body}\n\n"));
    }

    #[test]
    fn errors_have_the_shape_that_clients_know() {
        check(
            "full",
            &PublicError {
                status: 400,
                kind: "invalid_request_error".into(),
                code: Some("invalid_value".into()),
                message: "`model` must be a string\n\"x\"".to_owned(),
                param: Some("model".into()),
            },
        );
        check(
            "bare",
            &PublicError {
                status: 502,
                kind: "upstream_error".into(),
                code: None,
                message: "no source could answer".to_owned(),
                param: None,
            },
        );
    }
}
