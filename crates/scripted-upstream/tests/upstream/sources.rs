use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waybill_scripted_upstream::{Chat, Reply, Script, ScriptedUpstream, Source, StartError};

use super::client::{call, chat_request, connect, read_all};

/// Reads one reply with a content length from a connection that stays open.
async fn read_one(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).await.unwrap();
        text.push(char::from(byte[0]));
    }
    let length = text.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    text + std::str::from_utf8(&body).unwrap()
}

fn status(text: &str) -> &str {
    text.split(' ').nth(1).unwrap()
}

#[tokio::test]
async fn calls_are_answered_in_turn_and_the_last_reply_repeats() {
    let source = Source::default().times(2, &Reply::error(500, "oops")).then(Reply::default());
    let upstream = ScriptedUpstream::start(Script::new().source("a", source.clone())).await.unwrap();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(status(&call(&upstream, "a", false).await.text()).to_owned());
    }
    assert_eq!(statuses, ["500", "500", "200", "200"]);
    assert_eq!(upstream.calls_of("a").iter().map(|call| call.turn).collect::<Vec<_>>(), [0, 1, 2, 3]);
    upstream.set_source("a", source);
    assert_eq!(status(&call(&upstream, "a", false).await.text()), "500");
}

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let upstream = ScriptedUpstream::start(Script::new()).await.unwrap();
    let (mut connection, path) = connect(&upstream.base_url("a")).await;
    for _ in 0..3 {
        connection.write_all(chat_request(&path, false, false).as_bytes()).await.unwrap();
        assert_eq!(status(&read_one(&mut connection).await), "200");
    }
    // Two at once: the second waits its turn.
    connection.write_all(chat_request(&path, false, false).repeat(2).as_bytes()).await.unwrap();
    read_one(&mut connection).await;
    read_one(&mut connection).await;
    assert_eq!((upstream.calls().len(), upstream.most_in_flight("a")), (5, 1));
}

#[tokio::test]
async fn sources_on_one_port_are_told_apart_by_path() {
    let script = Script::new()
        .source("a", Source::default().saying("I am a."))
        .source("b", Source::default().saying("I am b.").with_key("secret"));
    let upstream = ScriptedUpstream::start(script).await.unwrap();
    assert!(call(&upstream, "a", false).await.text().contains("I am a."));
    assert_eq!(status(&call(&upstream, "b", false).await.text()), "401");
    assert_eq!(upstream.calls_of("b").len(), 1);
}

#[tokio::test]
async fn models_are_listed() {
    let script = Script::new().source("a", Source::default().with_models(["gpt-4o", "o3"]));
    let upstream = ScriptedUpstream::start(script).await.unwrap();
    let get = async |path: &str| {
        let mut connection = TcpStream::connect(("127.0.0.1", upstream.port())).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        read_all(&mut connection).await.text()
    };
    let list = get("/a/v1/models").await;
    assert!(list.contains(r#""object":"list""#) && list.contains("gpt-4o") && list.contains("o3"), "{list}");
    assert!(get("/a/v1/models/o3").await.contains(r#""id":"o3""#));
    assert_eq!(status(&get("/a/v1/models/none").await), "404");
    assert_eq!(status(&get("/a/v1/odd").await), "404");
    // Only chats take turns.
    assert!(upstream.calls_of("a").iter().all(|call| call.turn == 0));
}

#[tokio::test]
async fn a_closed_port_refuses_and_opens_again_where_it_was() {
    let script = Script::new().source("a", Source::default().on_own_port());
    let upstream = ScriptedUpstream::start(script).await.unwrap();
    let url = upstream.base_url("a");
    let (mut open, _) = connect(&url).await;
    assert_eq!(status(&call(&upstream, "a", false).await.text()), "200");
    upstream.close("a").await.unwrap();
    let address = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // Connections that were open break.
    assert!(read_all(&mut open).await.bytes.is_empty());
    upstream.open("a").await.unwrap();
    assert_eq!(upstream.base_url("a"), url);
    assert_eq!(status(&call(&upstream, "a", false).await.text()), "200");
    assert!(matches!(upstream.close("b").await, Err(StartError::NoOwnPort(_))));
}

#[tokio::test]
async fn calls_at_once_are_counted() {
    let script = Script::new().always("a", Reply::chat(Chat::words(1)).delay_head(100));
    let upstream = ScriptedUpstream::start(script).await.unwrap();
    tokio::join!(call(&upstream, "a", true), call(&upstream, "a", true), call(&upstream, "a", true));
    assert_eq!(upstream.most_in_flight("a"), 3);
    upstream.forget_calls();
    assert_eq!((upstream.most_in_flight("a"), upstream.calls().len()), (0, 0));
}

#[tokio::test]
async fn a_request_in_chunks_is_read_and_nonsense_is_refused() {
    let upstream = ScriptedUpstream::start(Script::new()).await.unwrap();
    let send = async |text: &str| {
        let mut connection = TcpStream::connect(("127.0.0.1", upstream.port())).await.unwrap();
        connection.write_all(text.as_bytes()).await.unwrap();
        read_all(&mut connection).await.text()
    };
    let body = r#"{"messages":[{"role":"user","content":"x"}]}"#;
    let (one, two) = body.split_at(9);
    let request = format!(
        "POST /a/v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{one}\r\n{:x};ext=1\r\n{two}\r\n0\r\ntrailer: x\r\n\r\n",
        one.len(),
        two.len()
    );
    assert_eq!(status(&send(&request).await), "200");
    assert_eq!(&upstream.calls_of("a")[0].body[..], body.as_bytes());
    assert_eq!(status(&send("HELLO\r\n\r\n").await), "400");
    let huge = "POST /a HTTP/1.1\r\ncontent-length: 999999999999\r\n\r\n";
    assert_eq!(status(&send(huge).await), "400");
}

#[tokio::test]
async fn one_model_of_a_source_can_be_sick_alone() {
    let source = Source::default().for_model("sick", Reply::error(500, "oops"));
    let upstream = ScriptedUpstream::start(Script::new().source("a", source)).await.unwrap();
    let (mut connection, path) = connect(&upstream.base_url("a")).await;
    for (model, expected) in [("sick", "500"), ("well", "200"), ("sick", "500")] {
        let body = format!("{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}");
        let request = format!("POST {path} HTTP/1.1\r\nhost: u\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        connection.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(status(&read_one(&mut connection).await), expected, "{model}");
    }
}
