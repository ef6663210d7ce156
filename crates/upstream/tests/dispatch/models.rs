//! Fetching model lists.

use waybill_upstream::models::FetchModelsError;

use crate::raw::{Raw, dispatcher, limits, target};

async fn fetch(answer: &'static str) -> Result<Vec<String>, FetchModelsError> {
    let server = Raw::answer(answer).await;
    dispatcher().fetch_models(&target(&server.url(), true), limits()).await
}

#[tokio::test]
async fn lists_are_read() {
    let names = fetch("HTTP/1.0 200 OK\r\n\r\n{\"object\":\"list\",\"data\":[{\"id\":\"b\"},{\"id\":\"a\"}]}").await;
    assert_eq!(names.unwrap(), ["b", "a"]);
}

#[tokio::test]
async fn refusals_say_what_was_said() {
    let fault =
        fetch("HTTP/1.0 401 No\r\n\r\n{\"error\":{\"message\":\"bad key sk-canary-0123456789\"}}").await.unwrap_err();
    assert_eq!(fault.to_string(), "the upstream answered 401 when asked for its models: bad key [masked]");
}

#[tokio::test]
async fn other_answers_are_told_apart() {
    assert!(matches!(fetch("HTTP/1.0 200 OK\r\n\r\n<html>").await, Err(FetchModelsError::List(_))));
    let fault = fetch("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").await;
    assert!(matches!(fault, Err(FetchModelsError::Transport(_))));
}
