use proptest::prelude::*;
use serde_json::json;

use super::*;

fn say(text: &str) -> Vec<u8> {
    chunk(json!({"content": text}), None)
}

fn chunk(delta: Value, finish: Option<&str>) -> Vec<u8> {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    json!({"id": "x", "model": "m", "choices": [choice]}).to_string().into_bytes()
}

fn told(pieces: &[Vec<u8>]) -> Repetition {
    let mut transcript = Transcript::default();
    pieces.iter().for_each(|piece| transcript.take(piece));
    assert!(transcript.is_exact());
    transcript.repeated()
}

fn content(repeated: &Repeated) -> Option<&str> {
    match repeated {
        Repeated::New(chunk) => chunk.pointer("/choices/0/delta/content")?.as_str(),
        Repeated::Known | Repeated::Differs => None,
    }
}

#[test]
fn the_same_answer_goes_on_where_it_broke_off() {
    let mut repetition = told(&[chunk(json!({"role": "assistant", "content": ""}), None), say("one tw")]);
    assert_eq!(repetition.take(&chunk(json!({"role": "assistant", "content": ""}), None)), Repeated::Known);
    assert_eq!(repetition.take(&say("one")), Repeated::Known);
    let new = repetition.take(&say(" two three"));
    assert_eq!(content(&new), Some("o three"));
    assert!(repetition.caught_up());
    assert_eq!(content(&repetition.take(&say(" four"))), Some(" four"));
    let transcript = repetition.into_transcript();
    assert_eq!(transcript.texts.values().collect::<Vec<_>>(), ["one two three four"]);
}

#[test]
fn another_answer_is_never_spliced() {
    let check = |pieces: &[Vec<u8>]| {
        let mut repetition = told(&[chunk(json!({"reasoning_content": "hm"}), None), say("one two")]);
        let last = pieces.iter().map(|piece| repetition.take(piece)).last();
        assert_eq!(last, Some(Repeated::Differs));
    };
    check(&[say("one too")]);
    check(&[chunk(json!({"reasoning_content": "ha"}), None)]);
    // The text is the same, but the reasoning before it never came.
    check(&[say("one two three")]);
    check(&[chunk(json!({"reasoning_content": "hm"}), None), say("one"), chunk(json!({}), Some("stop"))]);
    check(&[b"{broken".to_vec()]);
}

#[test]
fn tool_calls_are_compared_by_name_and_arguments() {
    let call = |name: Option<&str>, arguments: &str| {
        let mut function = json!({"arguments": arguments});
        if let Some(name) = name {
            function["name"] = name.into();
        }
        chunk(json!({"tool_calls": [{"index": 0, "id": "call_1", "function": function}]}), None)
    };
    let given = [call(Some("look"), ""), call(None, "{\"at\":")];
    let mut same = told(&given);
    assert_eq!(same.take(&call(Some("look"), "{\"a")), Repeated::Known);
    let Repeated::New(new) = same.take(&call(None, "t\":7}")) else { panic!("it goes on") };
    assert_eq!(new.pointer("/choices/0/delta/tool_calls/0/function/arguments"), Some(&json!("7}")));
    assert_eq!(told(&given).take(&call(Some("find"), "")), Repeated::Differs);
}

#[test]
fn an_answer_that_is_too_long_or_unreadable_is_not_resumed() {
    let mut transcript = Transcript::default();
    transcript.take(&say(&"x".repeat(MAX_BYTES + 1)));
    assert!(!transcript.is_exact());
    let mut transcript = Transcript::default();
    transcript.take(b"[DONE");
    assert!(!transcript.is_exact());
}

fn cut(text: &str, places: &[prop::sample::Index]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at: Vec<usize> = places.iter().map(|place| place.index(chars.len() + 1)).collect();
    at.extend([0, chars.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| chars[pair[0]..pair[1]].iter().collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn however_the_answers_are_cut_the_client_has_the_text_once(
        text in "[a-cé世 ]{0,40}",
        first: Vec<prop::sample::Index>,
        second: Vec<prop::sample::Index>,
        given: prop::sample::Index,
    ) {
        let pieces = cut(&text, &first);
        let given: Vec<&String> = pieces.iter().take(given.index(pieces.len() + 1)).collect();
        let mut repetition = told(&given.iter().map(|piece| say(piece)).collect::<Vec<_>>());
        let mut has: String = given.iter().map(|piece| piece.as_str()).collect();
        for piece in cut(&text, &second) {
            let repeated = repetition.take(&say(&piece));
            prop_assert!(repeated != Repeated::Differs);
            has.push_str(content(&repeated).unwrap_or_default());
        }
        prop_assert_eq!(has, text);
    }
}
