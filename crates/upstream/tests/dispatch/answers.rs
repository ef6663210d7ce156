//! Requests and answers that go well.

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};

use waybill_upstream::Outbound;
use waybill_wire::headers::ToUpstream;

use crate::raw::{BODY, Raw, dispatcher, limits, outbound, read_request, target};

#[tokio::test]
async fn the_request_is_ours_and_its_body_the_clients() {
    let (seen, mut requests) = mpsc::channel(1);
    let server = Raw::serve(move |_, mut stream| {
        let seen = seen.clone();
        async move {
            seen.send(read_request(&mut stream).await).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-extra: 1\r\n\r\n{}").await.unwrap();
        }
    })
    .await;
    let headers = HeaderMap::from_iter(
        [
            ("authorization", "Bearer client"),
            ("cookie", "c"),
            ("user-agent", "client"),
            ("accept-encoding", "gzip"),
            ("x-forwarded-for", "1.2.3.4"),
            ("connection", "close"),
            ("idempotency-key", "i"),
        ]
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))),
    );
    let headers = ToUpstream::of(&headers);
    let request = Outbound { accept_stream: true, headers: &headers, ..outbound() };
    let mut reply = dispatcher().dispatch(&target(&server.url(), true), request, limits()).await.unwrap();
    assert_eq!((reply.status().as_u16(), reply.resent()), (200, false));
    assert_eq!(reply.headers().get("x-extra").unwrap(), "1");
    assert_eq!(reply.read_to_end(10).await.unwrap(), "{}");

    let text = requests.recv().await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.as_bytes(), BODY);
    let mut lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /v1/chat/completions HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", server.address);
    let agent = format!("user-agent: waybill/{}", env!("CARGO_PKG_VERSION"));
    let length = format!("content-length: {}", BODY.len());
    assert_eq!(
        lines,
        [
            "accept-encoding: identity",
            "accept: text/event-stream",
            "authorization: Bearer sk-canary-0123456789",
            &length,
            "content-type: application/json",
            &host,
            "idempotency-key: i",
            &agent,
        ]
    );
}

#[tokio::test]
async fn chunks_come_as_they_are_sent() {
    let (go, gone) = oneshot::channel();
    let gone = std::sync::Mutex::new(Some(gone));
    let server = Raw::serve(move |_, mut stream| {
        let gone = gone.lock().unwrap().take();
        async move {
            read_request(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
            stream.write_all(head).await.unwrap();
            gone.unwrap().await.unwrap();
            stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let mut reply = server.dispatch().await.unwrap();
    assert_eq!(reply.chunk().await.unwrap().unwrap(), "first");
    go.send(()).unwrap();
    assert_eq!(reply.chunk().await.unwrap().unwrap(), "second");
    assert_eq!(reply.chunk().await.unwrap(), None);
    assert_eq!(reply.received(), 11);
}

#[tokio::test]
async fn interim_answers_are_passed_over() {
    let server =
        Raw::answer("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(server.dispatch().await.unwrap().status(), 200);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = Raw::answer("HTTP/1.1 307 Go\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(server.dispatch().await.unwrap().status(), 307);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn encoded_bodies_pass_untouched() {
    let server = Raw::answer("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 8\r\n\r\nnot gzip").await;
    let mut reply = server.dispatch().await.unwrap();
    assert_eq!(reply.headers().get("content-encoding").unwrap(), "gzip");
    assert_eq!(reply.read_to_end(100).await.unwrap(), "not gzip");
}

#[tokio::test]
async fn a_body_ends_with_its_connection_where_no_length_is_given() {
    let server = Raw::answer("HTTP/1.0 200 OK\r\n\r\nall of it").await;
    assert_eq!(server.dispatch().await.unwrap().read_to_end(100).await.unwrap(), "all of it");
}
