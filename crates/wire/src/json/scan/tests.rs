use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;

/// What the scanner takes is JSON, and it gives up on no JSON.
#[track_caller]
fn check(text: &str) {
    let mut scanner = Scanner::new(text);
    let ours = scanner.raw().filter(|_| scanner.end().is_some());
    let theirs = serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get);
    assert_eq!(ours, theirs, "{text}");
}

#[test]
fn takes_json_and_nothing_else() {
    for text in [
        "{}",
        "[]",
        " [ ] ",
        "null",
        "true",
        "false",
        "nul",
        "tru",
        "0",
        "-0",
        "01",
        "1.",
        ".5",
        "-",
        "1e",
        "1e+",
        "1E-7",
        "-1.25e+10",
        "+1",
        "\"\"",
        "\"",
        "\"\\\"",
        "\"\\u00e9\"",
        "\"\\u00g9\"",
        "\"\\u00\"",
        "\"\\x\"",
        "\"a\nb\"",
        "\"a\u{7f}b\"",
        "{\"a\":1}",
        "{\"a\" : [1 , {\"b\":null}]}",
        "{\"a\":1,}",
        "{,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1}}",
        "[[[]]",
        "[}",
        "{]",
        "",
        " ",
        "\u{feff}{}",
        "[1]x",
        "{\"\\u0061\":2}",
        "{\n\t\"a\":\r\n\"b\"}",
        "\"\\ud800\"",
    ] {
        check(text);
    }
}

#[test]
fn depth_is_no_danger() {
    check(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    check(&"[".repeat(100_000));
}

#[test]
fn members_and_elements_come_in_their_order() {
    let mut seen = Vec::new();
    let mut scanner = Scanner::new(r#" { "a" : [1, "x" ,null] , "b":{}, "c":"t" } "#);
    let read = scanner.object(|name, value| {
        match name {
            "a" => value.array(|element| {
                seen.push(element.raw()?);
                Some(())
            })?,
            "c" => seen.push(value.text()??),
            _ => seen.push(value.raw()?),
        }
        seen.push(name);
        Some(())
    });
    assert!(read.is_some() && scanner.end().is_some());
    assert_eq!(seen, ["1", "\"x\"", "null", "a", "{}", "b", "t", "c"]);
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_with_serde_json(value in json(), pretty in any::<bool>()) {
        check(&if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() });
    }

    #[test]
    fn agrees_with_serde_json_on_damaged_texts(value in json(), at in any::<prop::sample::Index>(), by in "[\\[\\]{},:\"\\\\0-9eu \n\u{1}]") {
        let text = value.to_string();
        let mut at = at.index(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let rest = text.chars().next().filter(|_| at < text.len()).map_or("", |_| &text[at..]);
        let mut rest = rest.chars();
        rest.next();
        check(&format!("{}{by}{}", &text[..at], rest.as_str()));
        check(&format!("{}{}", &text[..at], rest.as_str()));
        check(&text[..at]);
    }
}
