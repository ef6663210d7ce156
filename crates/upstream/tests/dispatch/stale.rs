//! Pooled connections that died between requests.

use tokio::io::AsyncWriteExt;
use waybill_domain::observation::{Fault, Phase};

use crate::raw::{Raw, dispatcher, limits, outbound, read_request, target};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Answers the first request of the first connection, then lets every connection die upon its next request;
/// connections from `healthy_from` on answer.
async fn serve(healthy_from: usize) -> Raw {
    Raw::serve(move |number, mut stream| async move {
        if number == 0 || number >= healthy_from {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
        }
        read_request(&mut stream).await;
    })
    .await
}

#[tokio::test]
async fn a_dead_pooled_connection_is_replaced_once() {
    let server = serve(1).await;
    let (dispatcher, target) = (dispatcher(), target(&server.url(), true));
    let mut first = dispatcher.dispatch(&target, outbound(), limits()).await.unwrap();
    assert_eq!(first.read_to_end(10).await.unwrap(), "{}");
    let second = dispatcher.dispatch(&target, outbound(), limits()).await.unwrap();
    assert_eq!((second.status().as_u16(), second.resent()), (200, true));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn and_not_a_second_time() {
    let server = serve(usize::MAX).await;
    let (dispatcher, target) = (dispatcher(), target(&server.url(), true));
    let mut first = dispatcher.dispatch(&target, outbound(), limits()).await.unwrap();
    assert_eq!(first.read_to_end(10).await.unwrap(), "{}");
    let fault = dispatcher.dispatch(&target, outbound(), limits()).await.unwrap_err();
    assert_eq!((fault.phase, fault.fault), (Phase::Head, Fault::Closed), "{fault}");
    assert_eq!(server.connections(), 2);
}
