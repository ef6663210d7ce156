use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use waybill_scripted_upstream::{After, Chat, Outcome, Reply, Script, ScriptedUpstream, Then};

use super::client::{End, Seen, chat_request, connect, ended, one};

fn words(n: usize) -> Reply {
    Reply::chat(Chat::words(n))
}

/// Time between the first read and the last.
fn spread(seen: &Seen) -> Duration {
    let times: Vec<Instant> = seen.reads.iter().map(|(_, at)| *at).collect();
    *times.last().unwrap() - *times.first().unwrap()
}

#[tokio::test]
async fn a_cut_comes_before_the_head_between_frames_or_inside_one() {
    let (seen, call) = one(words(3).fault(After::Request, Then::Cut), true).await;
    assert_eq!((seen.bytes.len(), seen.end, call.outcome()), (0, End::Closed, Some(Outcome::Cut)));
    let (seen, _) = one(words(3).fault(After::Frames(2), Then::Cut), true).await;
    let (chunks, complete) = seen.chunks();
    assert_eq!((chunks.len(), complete, seen.end), (2, false, End::Closed));
    let (seen, call) = one(words(3).fault(After::Bytes(50), Then::Cut), true).await;
    let (chunks, complete) = seen.chunks();
    assert_eq!((chunks.concat().len(), complete, call.sent_bytes), (50, false, 50));
    let (seen, _) = one(words(3).fault(After::Bytes(20), Then::Cut), false).await;
    assert_eq!(seen.raw_body().len(), 20);
    assert!(!seen.head().contains("content-length: 20\r\n"), "the head promises the whole body");
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    let (seen, call) = one(words(3).fault(After::Request, Then::Reset), true).await;
    assert_eq!((seen.bytes.len(), seen.end, call.outcome()), (0, End::Reset, Some(Outcome::Reset)));
    // What was sent just before a reset may never reach the client; a pause lets it.
    let slow = words(3).delay_per_chunk(20).fault(After::Frames(2), Then::Reset);
    let (seen, _) = one(slow, true).await;
    assert_eq!((seen.chunks().0.len(), seen.end), (2, End::Reset));
}

#[tokio::test]
async fn a_stall_pauses_and_goes_on() {
    let (seen, call) = one(words(2).fault(After::Frames(2), Then::Stall { ms: 120 }), true).await;
    assert!(spread(&seen) >= Duration::from_millis(115) && seen.chunks().1);
    assert_eq!(call.outcome(), Some(Outcome::Sent));
    let (seen, call) = one(words(1).delay_head(120), false).await;
    assert!(call.answered.unwrap() - call.received >= Duration::from_millis(120));
    assert!(seen.text().contains("word1"));
}

#[tokio::test]
async fn drips_and_pauses_come_piece_by_piece() {
    let (seen, _) = one(Reply::json(200, serde_json::json!("abcdef")).drip(2, 15), false).await;
    assert_eq!(seen.raw_body(), b"\"abcdef\"");
    assert!(seen.reads.len() >= 4 && spread(&seen) >= Duration::from_millis(40), "{} reads", seen.reads.len());
    let (seen, _) = one(words(3).delay_per_chunk(15), true).await;
    assert!(spread(&seen) >= Duration::from_millis(75));
}

#[tokio::test]
async fn a_client_that_goes_away_is_noticed_at_once_wherever_it_goes() {
    let hang = || words(3).fault(After::Frames(1), Then::Hang);
    for reply in [hang(), words(3).delay_head(60_000), words(3).delay_per_chunk(60_000)] {
        let upstream = ScriptedUpstream::start(Script::new().always("a", reply)).await.unwrap();
        let (mut connection, path) = connect(&upstream.base_url("a")).await;
        connection.write_all(chat_request(&path, true, false).as_bytes()).await.unwrap();
        while upstream.in_flight("a") == 0 {
            tokio::task::yield_now().await;
        }
        let left = Instant::now();
        drop(connection);
        let call = ended(&upstream, "a").await;
        assert_eq!(call.outcome(), Some(Outcome::ClientGone));
        assert!(call.client_gone().unwrap().duration_since(left) < Duration::from_millis(500));
        assert_eq!(upstream.in_flight("a"), 0);
        upstream.stop().await;
    }
}

#[tokio::test]
async fn a_stop_ends_what_hangs() {
    let upstream =
        ScriptedUpstream::start(Script::new().always("a", words(1).fault(After::Bytes(0), Then::Hang))).await.unwrap();
    let (mut connection, path) = connect(&upstream.base_url("a")).await;
    connection.write_all(chat_request(&path, true, false).as_bytes()).await.unwrap();
    let mut first = [0; 12];
    connection.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    upstream.stop().await;
    assert_eq!(ended(&upstream, "a").await.outcome(), Some(Outcome::Stopped));
}
