use std::net::SocketAddr;

use axum::routing::any;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::*;

struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<Drained>,
}

async fn start() -> Serving {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let router = Router::new().route("/", any(|| async { "here" }));
    let served = TaskTracker::new().spawn(serve(listener, router, stop.clone(), Duration::from_secs(5)));
    Serving { address, stop, served }
}

/// Sends the pieces, and gives what comes back until it contains `until` or ends.
async fn told(pieces: &[&[u8]], until: &[u8]) -> Vec<u8> {
    let serving = start().await;
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut told = Vec::new();
    while !told.windows(until.len()).any(|window| window == until) {
        if stream.read_buf(&mut told).await.unwrap() == 0 {
            break;
        }
    }
    serving.stop.cancel();
    drop(stream);
    serving.served.await.unwrap();
    told
}

#[tokio::test]
async fn either_version_is_served_by_its_first_bytes() {
    let rest = b" / HTTP/1.1\r\nhost: here\r\ncontent-length: 0\r\n\r\n";
    for pieces in [&[&b"GET"[..], rest][..], &[b"P", b"OST", rest], &[b"PR", b"OPFIND", rest]] {
        let told = told(pieces, b"here").await;
        assert!(told.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&told));
    }
    // An empty frame of settings, after which the server's own are told.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for pieces in [&[&HTTP2_PREFACE[..], &settings][..], &[&HTTP2_PREFACE[..3], &HTTP2_PREFACE[3..], &settings]] {
        let told = told(pieces, &[4]).await;
        assert_eq!(told.get(3), Some(&4), "{told:?}");
    }
}

#[tokio::test]
async fn a_connection_that_says_nothing_holds_up_no_stop() {
    let serving = start().await;
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    // Served connections are counted from here on: another one is answered.
    let mut other = TcpStream::connect(serving.address).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut told = Vec::new();
    other.read_to_end(&mut told).await.unwrap();
    assert!(told.starts_with(b"HTTP/1.1 200 OK\r\n"));
    serving.stop.cancel();
    assert_eq!(serving.served.await.unwrap(), Drained::Clean);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
}
