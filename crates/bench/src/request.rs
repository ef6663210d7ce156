//! The requests that are sent, as bytes: what an OpenAI SDK writes, with a body of the wanted kind.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::json;

/// The model of all requests but those whose streams stay open.
pub(crate) const MODEL: &str = "bench-chat";
/// The model whose streams say one word and then nothing.
pub(crate) const HELD_MODEL: &str = "bench-held";

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// A body of 1 KB, a whole answer.
    Small,
    /// A body of 100 KB, a whole answer.
    Large,
    /// A body of 1 KB, a streamed answer.
    Stream,
    /// A stream that stays open.
    Held,
}

impl Kind {
    const fn body_bytes(self) -> usize {
        match self {
            Self::Small | Self::Stream | Self::Held => 1_024,
            Self::Large => 100 * 1_024,
        }
    }

    const fn streamed(self) -> bool {
        matches!(self, Self::Stream | Self::Held)
    }

    fn body(self) -> String {
        const TEXT: &str = "The log keeps what was decided and why: \"every attempt\", its verdict and the source.\n\
                            Whoever asks later reads it there, and doesn't have to guess.\n\n";
        let model = if self == Self::Held { HELD_MODEL } else { MODEL };
        let mut messages = vec![json!({"role": "system", "content": "You are a helpful assistant."})];
        let mut length = 200;
        while length < self.body_bytes() {
            let turn = TEXT.repeat(((self.body_bytes() - length) / TEXT.len()).clamp(1, 24));
            length += turn.len() + 40;
            messages.push(json!({"role": if messages.len() % 2 == 1 { "user" } else { "assistant" }, "content": turn}));
        }
        let messages = serde_json::Value::from(messages);
        let stream = if self.streamed() { r#""stream":true,"# } else { "" };
        format!(r#"{{"model":"{model}",{stream}"messages":{messages},"temperature":0.7,"max_tokens":512}}"#)
    }

    /// The whole request for a server at `host`, with this credential.
    pub(crate) fn bytes(self, host: &str, token: &str) -> Bytes {
        let body = self.body();
        let mut head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip, deflate\r\nConnection: \
             keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\nUser-Agent: OpenAI/Python \
             2.8.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.8.0\r\nX-Stainless-OS: \
             Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: \
             3.11.2\r\nAuthorization: Bearer {token}\r\nX-Stainless-Async: false\r\nx-stainless-retry-count: \
             0\r\nx-stainless-read-timeout: 600\r\n"
        );
        // Writing into a String doesn't fail.
        let _written = write!(head, "Content-Length: {}\r\n\r\n{body}", body.len());
        head.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_about_the_promised_length() {
        for kind in [Kind::Small, Kind::Large, Kind::Stream, Kind::Held] {
            let body = kind.body();
            assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok(), "{body}");
            let (length, wanted) = (body.len(), kind.body_bytes());
            assert!((wanted * 9 / 10..wanted * 12 / 10).contains(&length), "{kind:?}: {length}");
        }
    }
}
