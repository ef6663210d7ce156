//! Failures after the connection stands.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use waybill_domain::observation::{Fault, Phase, TransportFault};
use waybill_event::failure::Sent;
use waybill_upstream::Limits;

use crate::raw::{Raw, dispatch, limits, read_request};

fn check(fault: &TransportFault, phase: Phase, kind: Fault, sent: Sent, received: u64) {
    assert_eq!((fault.phase, fault.fault, fault.sent, fault.received), (phase, kind, sent, received), "{fault}");
    assert!(!fault.detail.is_empty() && !fault.detail.contains("canary"), "{fault}");
}

/// What becomes of an answer's body that is sent and then ended, by a close or by a reset.
async fn check_body(answer: &'static str, reset: bool, kind: Fault, received: u64) {
    let read = Arc::new(Notify::new());
    let reader = read.clone();
    let server = Raw::serve(move |_, mut stream| {
        let read = read.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            if reset {
                // A reset overtakes what wasn't read yet.
                read.notified().await;
                stream.set_zero_linger().unwrap();
            }
        }
    })
    .await;
    let mut reply = server.dispatch().await.unwrap();
    let fault = loop {
        match reply.chunk().await {
            Ok(Some(_)) => reader.notify_one(),
            Ok(None) => panic!("{answer} must not end well"),
            Err(fault) => break fault,
        }
    };
    check(&fault, Phase::Body, kind, Sent::Response, received);
}

#[tokio::test]
async fn closed_before_the_head() {
    let server = Raw::answer("").await;
    check(&server.dispatch().await.unwrap_err(), Phase::Head, Fault::Closed, Sent::Request, 0);
    assert_eq!(server.connections(), 1);
    let server = Raw::answer("HTTP/1.1 200 OK\r\ncontent-").await;
    check(&server.dispatch().await.unwrap_err(), Phase::Head, Fault::Closed, Sent::Request, 0);
}

#[tokio::test]
async fn reset_before_the_head() {
    let server = Raw::serve(|_, mut stream| async move {
        read_request(&mut stream).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    check(&server.dispatch().await.unwrap_err(), Phase::Head, Fault::Reset, Sent::Request, 0);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn no_answer_in_time() {
    let server = Raw::serve(|_, mut stream| async move {
        read_request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let limits = Limits { head: Duration::from_millis(200), ..limits() };
    let fault = dispatch(&server.url(), true, limits).await.unwrap_err();
    check(&fault, Phase::Head, Fault::TimedOut, Sent::Request, 0);
}

#[tokio::test]
async fn something_else_than_http() {
    let server = Raw::answer("SSH-2.0-OpenSSH_9.6\r\n").await;
    check(&server.dispatch().await.unwrap_err(), Phase::Head, Fault::Protocol, Sent::Request, 0);
}

#[tokio::test]
async fn bodies_that_break_off() {
    check_body("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789", false, Fault::Closed, 10).await;
    check_body("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", false, Fault::Closed, 0).await;
    check_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n", false, Fault::Closed, 5).await;
    check_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfir", false, Fault::Closed, 3).await;
    check_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n", false, Fault::Protocol, 0).await;
    check_body("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789", true, Fault::Reset, 10).await;
}

#[tokio::test]
async fn bodies_beyond_what_is_read() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789";
    let server = Raw::answer(answer).await;
    let fault = server.dispatch().await.unwrap().read_to_end(9).await.unwrap_err();
    check(&fault, Phase::Body, Fault::TooLarge, Sent::Response, 10);
    assert_eq!(server.dispatch().await.unwrap().read_to_end(10).await.unwrap(), "0123456789");
    assert_eq!(server.dispatch().await.unwrap().read_up_to(4).await.unwrap(), ("0123".into(), false));
}
