use super::*;

fn check(base: &str, expected: &str) {
    let base = BaseUrl::parse(base).unwrap();
    assert_eq!(base.join("chat/completions").as_str(), expected);
    assert_eq!(BaseUrl::parse(&base.to_string()).unwrap(), base);
}

fn check_refused(base: &str, expected: BaseUrlFault) {
    assert_eq!(BaseUrl::parse(base), Err(expected), "{base}");
}

#[test]
fn slashes_and_versions_make_no_difference() {
    for base in [
        "https://api.example.com",
        "https://api.example.com/",
        " https://api.example.com/v1 ",
        "https://api.example.com/v1/",
        "https://API.example.com:443//v1//",
        "https://api.example.com/v1/chat/completions",
        "https://api.example.com/v1/models",
    ] {
        check(base, "https://api.example.com/v1/chat/completions");
    }
}

#[test]
fn prefixes_and_other_versions_stay() {
    check("https://host/prefix", "https://host/prefix/v1/chat/completions");
    check("https://host/prefix/v1", "https://host/prefix/v1/chat/completions");
    check("http://127.0.0.1:8080/api/paas/v4/", "http://127.0.0.1:8080/api/paas/v4/chat/completions");
    check("https://host/v1beta/openai/", "https://host/v1beta/openai/chat/completions");
    check("https://[::1]:9/a%20b", "https://[::1]:9/a%20b/v1/chat/completions");
}

#[test]
fn a_query_goes_along_with_every_endpoint() {
    check("https://host/openai?api-version=1", "https://host/openai/v1/chat/completions?api-version=1");
    check("https://host/v1/?a=1&b=%20", "https://host/v1/chat/completions?a=1&b=%20");
    check("https://host/v1/chat/completions?a=1", "https://host/v1/chat/completions?a=1");
    check("https://host/v1?", "https://host/v1/chat/completions");
}

#[test]
fn addresses_in_odd_spellings_are_made_plain() {
    check("http://0x7f.1/", "http://127.0.0.1/v1/chat/completions");
    check("http://2130706433/", "http://127.0.0.1/v1/chat/completions");
}

#[test]
fn what_could_carry_secrets_or_lead_elsewhere_is_refused() {
    check_refused("ftp://host/", BaseUrlFault::Scheme);
    check_refused("https://user@host/", BaseUrlFault::UserInfo);
    check_refused("https://:pw@host/", BaseUrlFault::UserInfo);
    check_refused("https://host/#x", BaseUrlFault::Fragment);
    assert!(matches!(BaseUrl::parse("host/v1"), Err(BaseUrlFault::NotAUrl(_))));
    assert!(matches!(BaseUrl::parse("https://"), Err(BaseUrlFault::NotAUrl(_))));
}
