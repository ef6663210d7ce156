use proptest::prelude::*;

use super::*;

fn check(text: &str, expected: &str) {
    assert_eq!(mask(text), expected, "{text}");
}

#[test]
fn keys_and_tokens_are_masked() {
    check("Incorrect API key provided: sk-abc12345.", "Incorrect API key provided: [masked]");
    check("Incorrect API key provided: sk-ab***yz.", "Incorrect API key provided: [masked]");
    check("bad header Authorization: Bearer abc", "bad header Authorization: Bearer [masked]");
    check("authorization: abc", "authorization: [masked]");
    check("see ?key=abc&x=1", "see ?key=[masked]");
    check(r#"{"api_key":"abc","model":"m"}"#, r#"{"api_key":"[masked]","model":"m"}"#);
    check("api_key = abc", "api_key = [masked]");
    check("user AKIAIOSFODNN7EXAMPLE denied", "user [masked] denied");
    check("wb-0aZ9b8C7 revoked", "[masked] revoked");
    check("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_x expired", "token [masked] expired");
    check("request 0123456789abcdef0123456789abcdef failed", "request [masked] failed");
    check("id 1234567890-1234567890-12", "id [masked]");
    check("secret wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY/abcdef0", "secret [masked]");
}

#[test]
fn people_organisations_and_urls_are_masked() {
    check("ask Jane.Doe@example.com now", "ask [masked] now");
    check(
        "Rate limit reached in organization org-AbCdEfGhIj on requests",
        "Rate limit reached in organization [masked] on requests",
    );
    check("see https://u:p@example.com/a/b?token=x#f", "see https://[masked]@example.com/a/b?[masked]");
    check("see https://example.com/docs.", "see https://example.com/docs.");
}

#[test]
fn plain_words_stay() {
    for text in [
        "The model `gpt-4o-mini` does not exist",
        "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens.",
        "You didn't provide an API key. Put it in the Authorization header.",
        "Unsupported parameter: 'max_tokens'",
        "Carry the secret key in the 'Authorization' field of the header",
        "length of prompt_tokens (68957) must be less than max_seq_len (65536).",
        "當前分組上游負載已飽和，請稍後再試",
        "/v1/chat/completions not found",
    ] {
        check(text, text);
    }
}

#[test]
fn known_words_stay() {
    let model = "claude-sonnet-4-20250514";
    assert_eq!(mask(model), "[masked]");
    assert_eq!(mask_except(&format!("model: {model}, `{model}`."), &[model]), format!("model: {model}, `{model}`."));
}

#[test]
fn control_characters_go_and_length_is_bounded() {
    check("a\u{0}b\n\tc\u{1b}[31m", "ab  c[31m");
    let long = mask(&"é ".repeat(5000));
    assert_eq!(long.chars().count(), MAX_CHARS);
    assert!(long.ends_with('…'));
    assert_eq!(mask(&"x1".repeat(4000)), "");
}

/// Secrets as they are made in the field: a prefix or none, then random characters.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "sk-[A-Za-z0-9]{8,48}",
        "sk-proj-[A-Za-z0-9_-]{20,60}",
        "wb-[A-Za-z0-9]{20,43}",
        "AKIA[A-Z0-9]{16}",
        "eyJ[A-Za-z0-9]{20}\\.[A-Za-z0-9_-]{20}\\.[A-Za-z0-9_-]{20}",
        "[a-z]{10}[0-9]{10}[A-Z]{5}",
        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}",
    ]
}

const PLACES: [&str; 12] = [
    "{}",
    "Incorrect API key provided: {}. You can find yours online.",
    "key={}",
    "https://example.com/v1?key={}&alt=sse",
    "https://example.com/{}/x",
    "Authorization: Bearer {}",
    "{\"error\":{\"message\":\"bad key '{}'\"}}",
    "<b>{}</b>",
    "token:{};next",
    "(see {})",
    "漢字{}漢字",
    "line\n{}\nline",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_secret_survives_anywhere(secret in secret(), place in 0..PLACES.len(), filler in 0usize..4200) {
        let text = format!("{}{}", "word ".repeat(filler / 5), PLACES[place].replace("{}", &secret));
        for text in [text.clone(), PLACES[place].replace("{}", &secret)] {
            let masked = mask(&text);
            for part in secret.split('.').filter(|part| part.len() >= 8) {
                prop_assert!(!masked.contains(&part[..8]), "{masked}");
                prop_assert!(!masked.contains(&part[part.len() - 8..]), "{masked}");
            }
        }
    }

    #[test]
    fn any_text_is_taken(text in "\\PC*|[\\x00-\\x7f]{0,200}") {
        let masked = mask(&text);
        prop_assert!(masked.chars().count() <= MAX_CHARS);
        prop_assert!(!masked.chars().any(char::is_control));
    }
}
