use super::*;

fn entry(id: &str) -> ModelEntry {
    ModelEntry { id: id.to_owned(), created_s: 1_764_460_800, owned_by: "waybill".to_owned() }
}

fn check(body: &str, expected: Result<&[&str], ModelListFault>) {
    let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(parse_list(body.as_bytes()), expected, "{body}");
}

#[test]
fn lists_have_the_shape_that_clients_know() {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    insta::assert_snapshot!("list", text(render_list(&[entry("gpt-x"), entry("a/b \"c\"")])));
    insta::assert_snapshot!("empty_list", text(render_list(&[])));
    insta::assert_snapshot!("model", text(render_model(&entry("gpt-x"))));
}

#[test]
fn lists_of_several_upstreams_are_read() {
    check(r#"{"object":"list","data":[{"id":"b"},{"id":"a"},{"id":"b"},{"id":""},{"no":1}]}"#, Ok(&["b", "a"]));
    check("\u{feff}[\"x\",{\"id\":\"y\"}]", Ok(&["x", "y"]));
    check(r#"{"models":[{"name":"m:7b"}]}"#, Ok(&["m:7b"]));
    check(r#"{"data":[]}"#, Ok(&[]));
}

#[test]
fn what_is_no_list_is_refused() {
    check("<html>", Err(ModelListFault::NotJson));
    check("", Err(ModelListFault::NotJson));
    check(r#"{"error":{"message":"x"}}"#, Err(ModelListFault::WrongShape));
    check(r#"{"data":null}"#, Err(ModelListFault::WrongShape));
    check(r#"{"data":[1,2]}"#, Err(ModelListFault::WrongShape));
    check(&format!("[{}]", "1,".repeat(MAX_LISTED) + "1"), Err(ModelListFault::TooMany));
    check(&" ".repeat(MAX_LIST_BYTES + 1), Err(ModelListFault::TooLarge));
}
