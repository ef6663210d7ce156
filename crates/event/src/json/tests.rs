use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;

use super::*;

/// Every shape that serde knows and events may take.
#[derive(Debug, Clone, Serialize)]
enum Shape {
    Unit,
    New(String),
    Pair(i64, Option<u64>),
    Named {
        flag: bool,
        letter: char,
        list: Vec<Shape>,
    },
    Map(BTreeMap<String, u8>),
    #[serde(untagged)]
    Bare(i16),
}

#[derive(Debug, Clone, Serialize)]
struct Flat {
    #[serde(flatten)]
    inner: Inner,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u8>,
    unit: (),
    tuple: (u32, &'static str),
    wrapped: Wrapped,
    shape: Shape,
}

#[derive(Debug, Clone, Serialize)]
struct Inner {
    first: i32,
    words: String,
}

#[derive(Debug, Clone, Serialize)]
struct Wrapped(u16);

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Unit),
        any::<String>().prop_map(Shape::New),
        any::<(i64, Option<u64>)>().prop_map(|(a, b)| Shape::Pair(a, b)),
        prop::collection::btree_map(any::<String>(), any::<u8>(), 0..4).prop_map(Shape::Map),
        any::<i16>().prop_map(Shape::Bare),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        (any::<bool>(), any::<char>(), prop::collection::vec(inner, 0..4))
            .prop_map(|(flag, letter, list)| Shape::Named { flag, letter, list })
    })
}

#[track_caller]
fn check(value: &impl Serialize) {
    let mut ours = b"before".to_vec();
    write(value, &mut ours).unwrap();
    assert_eq!(String::from_utf8(ours).unwrap(), format!("before{}", serde_json::to_string(value).unwrap()));
}

proptest! {
    #[test]
    fn every_shape_is_written_as_serde_json_does(
        shape in shape(), first in any::<i32>(), words in any::<String>(), left_out in any::<Option<u8>>()
    ) {
        let inner = Inner { first, words };
        check(&Flat { inner, left_out, unit: (), tuple: (7, "\u{1f}\"\\\n"), wrapped: Wrapped(9), shape });
    }
}

#[test]
fn numbers_at_their_ends() {
    check(&(0u8, u64::MAX, i64::MIN, i64::MAX, i8::MIN));
}

#[test]
fn every_byte_that_needs_escaping() {
    let text: String = (0..0x80).map(char::from).collect();
    check(&text);
    let mut out = Vec::new();
    Json { out: &mut out }.collect_str(&text).unwrap();
    assert_eq!(out, serde_json::to_vec(&text).unwrap());
}

#[test]
fn what_no_event_holds_is_refused() {
    let mut out = Vec::new();
    assert!(write(&1.5f64, &mut out).is_err());
    assert!(write(&BTreeMap::from([(1, 2)]), &mut out).is_err());
}

#[test]
fn hexadecimal_digits() {
    assert_eq!(&escape::hexadecimal::<6>(0x1_2ab), b"0012ab");
    assert_eq!(&escape::hexadecimal::<3>(0xf_9d0), b"9d0");
}
