//! `docs/events.md`, the catalogue of stored events, is made from the types and their golden files.
//!
//! `WAYBILL_UPDATE_DOCS=1` rewrites the page; without it a page that differs fails the test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use waybill_event::Body;
use waybill_event::config::Change;

const ENTITIES: [&str; 10] =
    ["channel", "account", "group", "key", "admin_token", "policy", "route", "intervention", "rules", "price"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(kind: &str, version: u16) -> String {
    let path = root().join(format!("crates/event/tests/golden/{kind}.v{version}.json"));
    let bytes = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&bytes).unwrap()).unwrap()
}

/// Who writes a traffic event, and what it says in a sentence. A new type fails here until it has both.
fn about(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "request_admitted" => {
            ("proxy", "A request passed authentication and planning; written before anything is dispatched.")
        }
        "attempt_started" => ("proxy", "One dispatch to one source begins; written before the dispatch."),
        "attempt_finished" => ("proxy", "One dispatch ended, with the verdict on it."),
        "source_outcome" => (
            "proxy",
            "What one request says about one model at one source: exactly one per request, source and upstream model, the only evidence for breakers, windows and blocks.",
        ),
        "request_finished" => ("proxy", "How a request ended; written before the last byte goes to the client."),
        "selection_table" => {
            ("proxy", "What plans of one group and model are made from; written at the table's first use.")
        }
        "breaker_opened" => {
            ("projector", "A breaker opened. Announces what the fold did at the outcome named as cause.")
        }
        "breaker_half_opened" => ("proxy, upkeep", "A probe of a half-open breaker was claimed."),
        "breaker_closed" => ("projector", "A breaker closed. Announces what the fold did."),
        "probe_finished" => (
            "proxy, upkeep",
            "A probe has decided: it closes the breaker or opens it again, or brings a disabled source back.",
        ),
        "source_checked" => (
            "upkeep",
            "A source that serves was checked: written when the check counts as evidence, and when it says something else than the one before.",
        ),
        "credential_refreshed" => (
            "upkeep",
            "An account's tokens were refreshed: the new ones are stored, and blocks that say that older ones were refused are over.",
        ),
        "credential_refresh_failed" => (
            "upkeep",
            "An account's tokens couldn't be refreshed: written when that begins, and when it is final, which disables the account.",
        ),
        "block_set" => ("projector", "A block was set or made longer. Announces what the fold did."),
        "block_lifted" => ("projector", "An operator lifted a block before its end. Announces what the fold did."),
        "source_disabled" => ("projector", "A verdict disabled a source. Announces what the fold did."),
        "source_enabled" => {
            ("projector", "A source that a verdict had disabled serves again. Announces what the fold did.")
        }
        "config_applied" => ("projector", "The selector fold adopts configuration up to this position, here."),
        "outbox_drained" => {
            ("proxy, upkeep", "Everything that a boot of a replica wrote is in the log; retires that boot.")
        }
        "owner_lost" => (
            "projector",
            "A request was admitted and will not be ended by whoever owned it, as far as is known; a real end that comes later overrides it.",
        ),
        other => panic!("say in this test who writes {other}, and what it says"),
    }
}

fn subject(writer: &str) -> &'static str {
    match writer {
        "proxy" => "`wb.traffic.0.proxy`",
        "projector" => "`wb.traffic.0.control`",
        "upkeep" => "`wb.traffic.0.upkeep`",
        "proxy, upkeep" => "`wb.traffic.0.proxy`, `wb.traffic.0.upkeep`",
        other => panic!("no subject for {other}"),
    }
}

fn render() -> String {
    let mut page = String::from(
        "# Events\n\n\
         Made from the types in `crates/event` by `cargo test -p waybill-event --test catalogue`\n\
         (`WAYBILL_UPDATE_DOCS=1` rewrites it); don't edit it by hand.\n\n\
         A message of `WB_TRAFFIC_0` is a JSON list of events, a message of `WB_CONFIG` is one event. Every event has\n\
         the same envelope:\n\n\
         | field | says |\n|---|---|\n\
         | `id` | what tells it apart: `producer:boot:n`, or an id derived from its cause |\n\
         | `producer`, `boot`, `n` | its writer, the writer's start, and its ordinal there; derived ids have only the first |\n\
         | `type`, `v` | its type and the version of its data |\n\
         | `at` | when it happened, by its writer's clock of the log |\n\
         | `request`, `rn` | the request it belongs to, and its ordinal among that request's events |\n\
         | `source` | the source it speaks of, with the version of its entity |\n\
         | `config` | the position in `WB_CONFIG` that was in force |\n\
         | `actor`, `reason` | who made an edit, and why in their words |\n\
         | `data` | what it says |\n\n\
         Types and numbers of versions are never reused. A reader that doesn't know a type or version keeps it whole:\n\
         telemetry is skipped, counted and folded again after the upgrade; configuration stops that reader, visibly.\n\n\
         ## Traffic: `WB_TRAFFIC_0`\n\n\
         | type | version | subject | writer |\n|---|---|---|---|\n",
    );
    for (kind, version) in Body::TYPES {
        let (writer, _) = about(kind);
        writeln!(page, "| [`{kind}`](#{kind}) | {version} | {} | {writer} |", subject(writer)).unwrap();
    }
    page.push_str("\n## Configuration: `WB_CONFIG`\n\n| types | version | subject | writer |\n|---|---|---|---|\n");
    for entity in ENTITIES {
        let types: Vec<String> =
            Change::ALL.into_iter().map(|change| format!("`{entity}_{}`", change.as_str())).collect();
        writeln!(page, "| {} | 1 | `wb.config.{entity}.<id>` | admin |", types.join(", ")).unwrap();
    }
    page.push_str(
        "\nEach holds the whole new state of its entity, after a deletion the last one, and the names of the fields that\n\
         changed. Secrets stand in none of them: a credential is a revision and a fingerprint, a token is a hash.\n\n\
         ## Examples\n",
    );
    for (kind, version) in Body::TYPES {
        write!(page, "\n### {kind}\n\n{}\n\n```json\n{}\n```\n", about(kind).1, example(kind, *version)).unwrap();
    }
    for entity in ENTITIES {
        write!(page, "\n### {entity}_edited\n\n```json\n{}\n```\n", example(&format!("{entity}_edited"), 1)).unwrap();
    }
    page
}

#[test]
fn the_catalogue_of_events_is_up_to_date() {
    let path = root().join("docs/events.md");
    let page = render();
    if std::env::var_os("WAYBILL_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stands == page, "docs/events.md differs from the types; WAYBILL_UPDATE_DOCS=1 rewrites it");
}
