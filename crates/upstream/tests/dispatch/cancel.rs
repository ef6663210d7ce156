//! Who lets go of a dispatch or of its reply ends the upstream's work.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::raw::{Raw, dispatcher, limits, outbound, read_request, target, until_closed};

/// Serves one connection with these bytes and tells when the request was read and when the other side was gone.
async fn serve(answer: &'static str) -> (Raw, mpsc::Receiver<&'static str>) {
    let (tell, told) = mpsc::channel(4);
    let server = Raw::serve(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            tell.send("read").await.unwrap();
            until_closed(&mut stream).await;
            tell.send("closed").await.unwrap();
        }
    })
    .await;
    (server, told)
}

async fn next(told: &mut mpsc::Receiver<&'static str>) -> Option<&'static str> {
    tokio::time::timeout(Duration::from_secs(5), told.recv()).await.unwrap()
}

#[tokio::test]
async fn before_the_head() {
    let (server, mut told) = serve("").await;
    // The client lives on: it is the dropped dispatch that closes the connection.
    let (dispatcher, target) = (dispatcher(), target(&server.url(), true));
    tokio::select! {
        outcome = dispatcher.dispatch(&target, outbound(), limits()) => panic!("{outcome:?}"),
        word = next(&mut told) => assert_eq!(word, Some("read")),
    }
    assert_eq!(next(&mut told).await, Some("closed"));
}

#[tokio::test]
async fn within_the_body() {
    let (server, mut told) = serve("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
    let dispatcher = dispatcher();
    let mut reply = dispatcher.dispatch(&target(&server.url(), true), outbound(), limits()).await.unwrap();
    assert_eq!(reply.chunk().await.unwrap().unwrap(), "first");
    assert_eq!(next(&mut told).await, Some("read"));
    drop(reply);
    assert_eq!(next(&mut told).await, Some("closed"));
}

#[test]
fn dispatches_may_move_between_threads() {
    fn check<T: Send>(_: T) {}
    let (dispatcher, target) = (dispatcher(), target("http://127.0.0.1", true));
    check(dispatcher.dispatch(&target, outbound(), limits()));
    check(dispatcher.fetch_models(&target, limits()));
}
