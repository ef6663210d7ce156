//! Failures before anything was sent.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use waybill_domain::observation::{Fault, Phase, TransportFault};
use waybill_event::failure::Sent;
use waybill_upstream::Limits;

use crate::raw::{Raw, dispatch, limits, read_request};

async fn failed(url: &str, allow_private: bool, limits: Limits) -> TransportFault {
    let fault = dispatch(url, allow_private, limits).await.unwrap_err();
    assert_eq!((fault.sent, fault.received), (Sent::Nothing, 0), "{fault}");
    assert!(!fault.detail.contains("canary"), "{fault}");
    fault
}

async fn check(url: &str, phase: Phase, kind: Fault) {
    let fault = failed(url, true, limits()).await;
    assert_eq!((fault.phase, fault.fault), (phase, kind), "{fault}");
}

#[tokio::test]
async fn nobody_listens() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    check(&format!("http://{address}"), Phase::Connect, Fault::Refused).await;
    check(&format!("https://{address}"), Phase::Connect, Fault::Refused).await;
}

#[tokio::test]
async fn the_name_does_not_resolve() {
    check("http://nope.invalid", Phase::Resolve, Fault::Dns).await;
}

/// A server that reads the start of a TLS handshake and sends these bytes.
async fn tls_answered_with(answer: &'static [u8]) -> Raw {
    Raw::serve(move |_, mut stream| async move {
        let mut hello = [0; 4096];
        let _ = stream.read(&mut hello).await;
        let _ = stream.write_all(answer).await;
    })
    .await
}

#[tokio::test]
async fn tls_fails() {
    let plain = tls_answered_with(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    check(&format!("https://{}", plain.address), Phase::Tls, Fault::Tls).await;
    let closing = tls_answered_with(b"").await;
    check(&format!("https://{}", closing.address), Phase::Tls, Fault::Closed).await;
}

#[tokio::test]
async fn tls_is_not_answered_in_time() {
    let server = Raw::serve(|_, mut stream| async move {
        read_request(&mut stream).await;
    })
    .await;
    let began = Instant::now();
    let limits = Limits { connect: Duration::from_millis(200), ..limits() };
    let fault = failed(&format!("https://{}", server.address), true, limits).await;
    assert_eq!((fault.phase, fault.fault), (Phase::Connect, Fault::TimedOut), "{fault}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn the_head_limit_covers_connecting_too() {
    let server = Raw::serve(|_, mut stream| async move {
        read_request(&mut stream).await;
    })
    .await;
    let limits = Limits { head: Duration::from_millis(200), ..limits() };
    let fault = failed(&format!("https://{}", server.address), true, limits).await;
    assert_eq!((fault.phase, fault.fault), (Phase::Connect, Fault::TimedOut), "{fault}");
}

#[tokio::test]
async fn addresses_that_may_not_be_dialled() {
    let server = Raw::answer("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let port = server.address.port();
    for host in ["127.0.0.1", "2130706433", "0x7f.0.0.1", "[::ffff:127.0.0.1]", "localhost"] {
        let fault = failed(&format!("http://{host}:{port}"), false, limits()).await;
        assert_eq!(fault.fault, Fault::AddressRefused, "{host}: {fault}");
        assert!(fault.detail.contains("`allow_private`"), "{host}: {fault}");
    }
    for host in ["169.254.169.254", "[fd00:ec2::254]", "0.0.0.0"] {
        let fault = failed(&format!("http://{host}:{port}"), true, limits()).await;
        assert_eq!(fault.fault, Fault::AddressRefused, "{host}: {fault}");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(dispatch(&format!("http://localhost:{port}"), true, limits()).await.unwrap().status(), 200);
}
