use proptest::prelude::*;

use super::*;

const AAD: Aad<'static> = Aad { entity_kind: "channel", entity_id: "01J", field: "credential" };

fn ring(ids: &[(&str, u8)]) -> KeyRing {
    let text: Vec<String> =
        ids.iter().map(|(id, byte)| format!("{id}:{}", URL_SAFE_NO_PAD.encode([*byte; KEY_BYTES]))).collect();
    KeyRing::parse(&SecretString::from(text.join("\n"))).unwrap()
}

fn sealed() -> Sealed {
    ring(&[("a", 1)]).seal(&AAD, &SecretString::from("sk-very-secret")).unwrap()
}

#[track_caller]
fn check(ring: &KeyRing, aad: Aad<'_>, sealed: &Sealed, expected: Result<&str, OpenError>) {
    let got = ring.open(&aad, sealed).map(|text| text.expose_secret().to_owned());
    assert_eq!(got, expected.map(str::to_owned));
}

#[test]
fn the_same_ring_and_association_open_it() {
    check(&ring(&[("a", 1)]), AAD, &sealed(), Ok("sk-very-secret"));
}

#[test]
fn a_ring_with_a_newer_active_key_still_opens_it() {
    check(&ring(&[("b", 2), ("a", 1)]), AAD, &sealed(), Ok("sk-very-secret"));
}

#[test]
fn another_association_is_refused() {
    let ring = ring(&[("a", 1)]);
    check(&ring, Aad { entity_id: "01K", ..AAD }, &sealed(), Err(OpenError::Refused));
    check(&ring, Aad { entity_kind: "account", ..AAD }, &sealed(), Err(OpenError::Refused));
    check(&ring, Aad { field: "proxy", ..AAD }, &sealed(), Err(OpenError::Refused));
    // The same letters, cut elsewhere.
    check(&ring, Aad { entity_kind: "channel0", entity_id: "1J", ..AAD }, &sealed(), Err(OpenError::Refused));
}

#[test]
fn another_key_is_refused_and_a_missing_one_is_named() {
    let missing = OpenError::UnknownKey { kid: "a".parse().unwrap() };
    check(&ring(&[("a", 9)]), AAD, &sealed(), Err(OpenError::Refused));
    check(&ring(&[("b", 1)]), AAD, &sealed(), Err(missing));
    // The id is part of the association: the right key under a new name opens nothing.
    let renamed = Sealed { kid: "b".parse().unwrap(), ..sealed() };
    check(&ring(&[("b", 1)]), AAD, &renamed, Err(OpenError::Refused));
}

#[test]
fn a_short_nonce_is_malformed() {
    check(&ring(&[("a", 1)]), AAD, &Sealed { nonce: vec![0; 12], ..sealed() }, Err(OpenError::Malformed));
}

#[test]
fn two_seals_of_one_secret_differ() {
    assert_ne!(sealed().ct, sealed().ct);
}

#[test]
fn too_long_a_secret_is_refused() {
    let long = SecretString::from("x".repeat(MAX_PLAINTEXT_BYTES + 1));
    assert!(matches!(ring(&[("a", 1)]).seal(&AAD, &long), Err(SealError::TooLong { .. })));
}

#[test]
fn the_json_form_has_three_texts_and_comes_back() {
    let sealed = sealed();
    let json = serde_json::to_value(&sealed).unwrap();
    let mut names: Vec<&String> = json.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["ct", "kid", "nonce"]);
    assert_eq!(serde_json::from_value::<Sealed>(json).unwrap(), sealed);
    assert_eq!(Sealed::from_texts("a", &sealed.nonce_text(), &sealed.ct_text()).unwrap(), sealed);
    assert!(serde_json::from_str::<Sealed>(r#"{"kid":"a","nonce":"!","ct":""}"#).is_err());
}

#[test]
fn debug_shows_no_key_and_no_ciphertext() {
    let ring = ring(&[("a", 1)]);
    assert_eq!(format!("{ring:?}"), r#"KeyRing { ids: ["a"], .. }"#);
    assert_eq!(format!("{:?}", sealed()), "Sealed { kid: KeyId(a), bytes: 30, .. }");
    assert!(!format!("{:?}", ring.to_text()).contains("AQEB"));
}

#[test]
fn fingerprints_are_equal_for_equal_credentials_under_one_key_only() {
    let (a, b) = (ring(&[("a", 1)]), ring(&[("a", 2)]));
    let secret = SecretString::from("sk-very-secret");
    assert_eq!(a.fingerprint(&secret), a.fingerprint(&secret));
    assert_ne!(a.fingerprint(&secret), b.fingerprint(&secret));
    assert_ne!(a.fingerprint(&secret), a.fingerprint(&SecretString::from("sk-other")));
    assert_eq!(a.fingerprint(&secret).as_str().len(), 16);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_sealed_comes_back_and_any_changed_byte_is_refused(text in ".{0,200}", at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let ring = ring(&[("a", 1)]);
        let mut sealed = ring.seal(&AAD, &SecretString::from(text.clone())).unwrap();
        let opened = ring.open(&AAD, &sealed).unwrap();
        prop_assert_eq!(opened.expose_secret(), text.as_str());
        let at = at.index(sealed.ct.len() + NONCE_BYTES);
        match at.checked_sub(NONCE_BYTES) {
            Some(at) => sealed.ct[at] ^= 1 << bit,
            None => sealed.nonce[at] ^= 1 << bit,
        }
        prop_assert!(matches!(ring.open(&AAD, &sealed), Err(OpenError::Refused)));
    }
}
