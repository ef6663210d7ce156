//! Stored events, byte by byte: what is in the log today must be read, in its newest form, for ever.
//!
//! `golden/<type>.v<version>.json` is an event as it was stored. A file is added with each type and each version, and
//! never changed.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use waybill_event::config::Change;
use waybill_event::{Body, Event, Identity, decode_batch, decode_one};

/// Types that are not known here, kept to see that they stay whole.
const FOREIGN: [&str; 3] = ["quota_exceeded.v3", "attempt_finished.v999", "channel_edited.v2"];
const ENTITIES: [&str; 10] =
    ["channel", "account", "group", "key", "admin_token", "policy", "route", "intervention", "rules", "price"];

fn stored() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap().trim_end().to_owned())
        })
        .collect()
}

fn known() -> BTreeSet<String> {
    let traffic = Body::TYPES.iter().map(|(kind, version)| format!("{kind}.v{version}"));
    let config = ENTITIES
        .into_iter()
        .flat_map(|entity| Change::ALL.into_iter().map(move |change| format!("{entity}_{}.v1", change.as_str())));
    traffic.chain(config).collect()
}

#[test]
fn every_type_and_version_has_a_golden_file() {
    let there: BTreeSet<String> = stored().into_iter().map(|(name, _)| name).collect();
    let mut wanted = known();
    wanted.extend(FOREIGN.into_iter().map(str::to_owned));
    assert_eq!(there.difference(&wanted).collect::<Vec<_>>(), Vec::<&String>::new(), "files of no known type");
    assert_eq!(wanted.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new(), "types without a file");
}

#[test]
fn stored_bytes_read_as_the_newest_form() {
    for (name, bytes) in stored() {
        let event = decode_one(bytes.as_bytes()).unwrap();
        let (kind, version) = name.rsplit_once(".v").unwrap();
        assert_eq!(event.draft.body.kind(), kind);
        assert_eq!(matches!(event.draft.body, Body::Unknown(_)), FOREIGN.contains(&name.as_str()), "{name}");
        insta::assert_debug_snapshot!(format!("{kind}_v{version}"), event);
    }
}

#[test]
fn the_newest_form_is_written_as_it_was_stored() {
    for (name, bytes) in stored() {
        let event = decode_one(bytes.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(event.encode().unwrap()).unwrap(), bytes, "{name}");
    }
}

#[test]
fn an_id_with_a_models_name_in_it_reads_back() {
    let (_, bytes) = stored().into_iter().find(|(name, _)| name == "breaker_opened.v1").unwrap();
    let event = decode_one(bytes.as_bytes()).unwrap();
    let Identity::Derived { id, producer } = &event.identity else { panic!("{:?}", event.identity) };
    assert_eq!(id, "model:channel:42:Größe \"XL\"/模型@proxy-2:019fa5f2c0405f3a91bc:41");
    assert_eq!(producer.as_str(), "projector-1");
}

#[test]
fn one_malformed_event_does_not_hide_the_others() {
    let good = stored().into_iter().find(|(name, _)| name == "attempt_started.v1").unwrap().1;
    let bad = good.replace(r#""attempt":1"#, r#""attempt":"one""#);
    let read = decode_batch(format!("[{good},{bad},{good}]").as_bytes()).unwrap();
    let ids: Vec<Result<String, String>> = read
        .into_iter()
        .map(|event| event.map(|e: Event| e.identity.to_string()).map_err(|error| error.to_string()))
        .collect();
    let id = "proxy-2:019fa5f2c0405f3a91bc:418".to_owned();
    assert_eq!(ids, [Ok(id.clone()), Err(format!("event {id} can't be read")), Ok(id)]);

    let foreign = decode_batch(br#"[{"id":"x"}, 7]"#).unwrap();
    assert!(foreign.iter().all(Result::is_err));
    assert!(decode_batch(b"{}").is_err());
    assert!(decode_batch(b"[{]").is_err());
}
