use serde_json::json;

use super::*;

fn schema(schema: &Value) -> Option<Schema> {
    Schema::read(schema.to_string().as_bytes())
}

fn judged(of: &Value, answer: &str) -> Judged {
    schema(of).expect("it can be checked against").judge(answer)
}

#[test]
fn an_answer_fits_or_differs() {
    let person = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let check = |answer: &str, expected| assert_eq!(judged(&person, answer), expected, "{answer}");
    check(r#"{"name": "Ada", "age": 36}"#, Judged::Fits);
    check(r#"{"name": "ada", "age": 36}"#, Judged::Differs);
    check(r#"{"name": "Ada"}"#, Judged::Differs);
    check(r#"{"name": "Ada", "age": 36, "more": 1}"#, Judged::Differs);
    check(r#"{"name": "Ada", "age": -1}"#, Judged::Differs);
    check("Ada is 36.", Judged::Differs);
    check("```json\n{\"name\": \"Ada\", \"age\": 36}\n```", Judged::Differs);
    check("", Judged::Differs);
}

#[test]
fn definitions_and_lists_of_themselves_are_followed() {
    let tree = json!({
        "$defs": {"node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["value", "children"],
        }},
        "anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}],
    });
    let check = |answer: &Value, expected| assert_eq!(judged(&tree, &answer.to_string()), expected, "{answer}");
    let leaf = json!({"value": 1, "children": []});
    check(&json!({"value": 1, "children": [leaf, {"value": 2, "children": [leaf]}]}), Judged::Fits);
    check(&json!({"value": 1, "children": [{"value": "2", "children": []}]}), Judged::Differs);
    check(&Value::Null, Judged::Fits);
}

#[test]
fn what_never_ends_or_stands_elsewhere_is_not_checked() {
    let check = |of: Value| assert!(schema(&of).is_none(), "{of}");
    check(json!({"$ref": "#"}));
    check(
        json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
    );
    check(json!({"$ref": "https://example.com/schema.json"}));
    check(json!({"$ref": "file:///etc/passwd"}));
    check(json!({"$ref": "#/$defs/nowhere"}));
    check(json!({"type": 7}));
    check(json!({"$dynamicRef": "#a"}));
    assert!(Schema::read(b"{\"type\":").is_none());
    assert!(Schema::read(format!("{{\"title\":\"{}\"}}", "x".repeat(MAX_BYTES)).as_bytes()).is_none());
}

#[test]
fn a_schema_that_multiplies_is_not_checked() {
    // Each definition applies the next one twice: two to the power of thirty at the last.
    let definitions: serde_json::Map<String, Value> = (0..30)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"allOf": [next, next]}))
        })
        .chain([("d30".to_owned(), json!({"type": "object"}))])
        .collect();
    assert!(schema(&json!({"$defs": definitions, "$ref": "#/$defs/d0"})).is_none());
    // Each level of the answer is looked at twice as often as the one above it.
    let twice = json!({
        "$defs": {"n": {"allOf": [
            {"properties": {"x": {"$ref": "#/$defs/n"}}},
            {"properties": {"x": {"$ref": "#/$defs/n"}}},
        ]}},
        "$ref": "#/$defs/n",
    });
    let nested = |depth: usize| format!("{}1{}", r#"{"x":"#.repeat(depth), "}".repeat(depth));
    assert_eq!(judged(&twice, &nested(5)), Judged::Fits);
    assert_eq!(judged(&twice, &nested(100)), Judged::Unjudged);
}

#[test]
fn a_pattern_costs_time_in_proportion_to_the_text() {
    let evil = json!({"type": "string", "pattern": "^(a+)+$"});
    let text = format!("\"{}!\"", "a".repeat(20_000));
    assert_eq!(judged(&evil, &text), Judged::Differs);
    // What only a backtracking engine could match is the upstream's to judge.
    assert!(schema(&json!({"type": "string", "pattern": "^(a)\\1$"})).is_none());
}
