//! Pools of accounts, and why a source serves or doesn't.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use waybill_domain::selector::blocks::Wanted;
use waybill_domain::selector::state::{Disabled, Revisions, SourceState, value_key};
use waybill_event::config::SelectorPolicy;
use waybill_event::failure::{Recovery, Strength};
use waybill_event::{AccountId, Boot, ConfigPosition, FailureKind, Source, UsageWindow};
use waybill_journal::presence::{Beat, Report};
use waybill_journal::{Bucket, Held};

use crate::desk::{Desk, now};

async fn account(desk: &Desk, name: &str, limits: Value, groups: &[&str]) {
    account_with(desk, name, json!(format!("token-{name}")), limits, groups).await;
}

async fn account_with(desk: &Desk, name: &str, credential: Value, limits: Value, groups: &[&str]) {
    let body = json!({
        "name": name, "base_url": "https://upstream.test", "credential": credential, "models": ["m"],
        "groups": groups, "limits": limits,
    });
    desk.post("/accounts", body).await.expect(201);
}

fn source(id: u64) -> Source {
    AccountId::new(id).into()
}

fn state(id: u64) -> SourceState {
    let revisions = Revisions { credential: 99, base_url: 99 };
    SourceState::new(source(id), revisions, SelectorPolicy::default(), ConfigPosition(3))
}

async fn put(desk: &Desk, bucket: Bucket, key: &str, value: impl Into<Bytes>) {
    let keyed = desk.memory.journal().keyed;
    keyed.write(bucket, key, value.into(), Held::Anything, None).await.unwrap();
}

async fn put_state(desk: &Desk, state: &SourceState) {
    put(desk, Bucket::Selector, &value_key(state.source), serde_json::to_vec(state).unwrap()).await;
}

async fn until(desk: &Desk, path: &str, what: impl Fn(&Value) -> bool) -> Value {
    let seen = async {
        loop {
            let answer = desk.get(path).await.expect(200);
            if what(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), seen).await.unwrap()
}

fn of<'a>(answer: &'a Value, name: &str) -> &'a Value {
    answer["accounts"].as_array().unwrap().iter().find(|account| account["name"] == name).unwrap()
}

#[tokio::test]
async fn a_pool_tells_of_each_account_what_is_in_use_and_what_keeps_it_out() {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "default"})).await.expect(201);
    account(&desk, "full", json!({"max_concurrent": 2, "requests_per_minute": 3}), &["default"]).await;
    account(&desk, "told", json!({"max_concurrent": 5}), &["default"]).await;
    account(&desk, "dead", json!({"max_concurrent": 5}), &["default"]).await;
    account(&desk, "well", json!({}), &["default"]).await;
    let window = json!({"expected_version": 1, "session_window": {"usd": 5, "seconds": 3_600}});
    desk.patch("/accounts/well", window).await.expect(200);

    let claim = |holder: &str| json!({"holder": holder, "boot": Boot::new(now(), 1), "n": 1, "units": 1}).to_string();
    // One of the slots is a dead replica's: nobody has it until it lapses. That of the second account is kept for a next
    // request, and nothing is in flight there.
    let permits = [
        ("slot.account.1.0", "proxy-1"),
        ("slot.account.1.1", "proxy-9"),
        ("rate.account.1.0", "proxy-1"),
        ("slot.account.2.0", "proxy-1"),
        ("demand.account.1.proxy-2", "proxy-2"),
    ];
    for (key, holder) in permits {
        put(&desk, Bucket::Permits, key, claim(holder)).await;
    }
    put(&desk, Bucket::Sticky, "1.aa", "account:4").await;
    put(&desk, Bucket::Sticky, "1.bb", "account:4").await;
    let ms = |seconds| (now() - Duration::from_secs(seconds)).as_millis().to_string();
    for (key, usd) in [("spend.1.aa.account.4.b1", 1), ("spend.1.aa.account.4.b2", 2), ("spend.1.bb.account.4.b1", 1)] {
        let amounts = json!({(ms(60)): usd * 1_000_000_000_i64, (ms(9_000)): 7_000_000_000_i64});
        put(&desk, Bucket::Sticky, key, amounts.to_string()).await;
    }
    let window = UsageWindow {
        name: "5h".to_owned(),
        used_permille: Some(425),
        resets_at: Some(now() + Duration::from_secs(3_600)),
        minutes: None,
        exhausted: false,
        seen_at: now(),
    };
    let beat = Beat {
        replica: "proxy-1".parse().unwrap(),
        boot: Boot::new(now(), 1),
        role: "proxy".to_owned(),
        n: 1,
        report: Report {
            busy: BTreeMap::from([(source(1), 1), (source(4), 7)]),
            headroom: BTreeMap::from([(source(4), vec![window])]),
            ..Report::default()
        },
    };
    put(&desk, Bucket::Presence, "proxy-1", serde_json::to_vec(&beat).unwrap()).await;
    let mut told = state(2);
    let wanted = Wanted {
        strength: Strength::Hint,
        kind: FailureKind::RateLimited,
        t: now(),
        duration: Duration::from_secs(600),
        admitted: now(),
        revisions: told.revisions,
    };
    told.whole.blocks.set(|| "source:account:2@p:b:1".into(), wanted, Duration::from_secs(3_600));
    put_state(&desk, &told).await;
    let mut dead = state(3);
    dead.disabled = Some(Disabled {
        id: "source:account:3@p:b:2".into(),
        kind: FailureKind::AuthInvalid,
        recovery: Recovery::Operator,
        since: now(),
        revisions: dead.revisions,
    });
    put_state(&desk, &dead).await;

    let answer = until(&desk, "/pools", |answer| {
        let standing = |name: &str| of(answer, name)["standing"].clone();
        standing("full") == "full"
            && standing("dead") == "out"
            && of(answer, "well")["sessions"] == 2
            && of(answer, "well")["in_flight"] == 7
            && standing("told") == "out"
            && of(answer, "well")["session_spend"]["total_usd"] == 4.0
    })
    .await;
    let full = of(&answer, "full");
    assert_eq!(
        (&full["in_flight"], &full["waiting"], &full["rpm_used"]),
        (&json!(2), &json!(1), &json!(1)),
        "{full:#}"
    );
    assert_eq!(full["reasons"][0]["why"], "concurrency");
    let told = of(&answer, "told");
    assert_eq!((&told["in_flight"], &told["slots"]), (&json!(0), &json!(1)), "{told:#}");
    let reason = &told["reasons"][0];
    assert_eq!(reason["why"], "hint_blocked", "{told:#}");
    assert!((590..=600).contains(&reason["left_s"].as_u64().unwrap()), "{told:#}");
    assert_eq!(told["returns_at"], told["reasons"][0]["until"]);
    let dead = of(&answer, "dead");
    assert_eq!(
        (&dead["reasons"][0]["why"], &dead["reasons"][0]["ends"]),
        (&json!("disabled_by_verdict"), &json!("login")),
        "{dead:#}"
    );
    let well = of(&answer, "well");
    assert_eq!((&well["standing"], &well["reasons"]), (&json!("serving"), &json!([])), "{well:#}");
    assert_eq!(well["headroom"][0]["used_percent"], 42.5);
    let spend =
        json!({"window_s": 3_600, "limit_usd": 5.0, "most_usd": 3.0, "total_usd": 4.0, "sessions": 2, "used_up": 0});
    assert_eq!(well["session_spend"], spend, "{well:#}");
    let pool = &answer["pools"][0];
    assert_eq!(pool["standing"], json!({"full": 1, "out": 2, "serving": 1}), "{pool:#}");
    assert_eq!((&pool["in_flight"], &pool["max_concurrent"]), (&json!(9), &json!(null)), "{pool:#}");

    // A slot that is gone is free.
    desk.memory.journal().keyed.delete(Bucket::Permits, "slot.account.1.1", Held::Anything).await.unwrap();
    until(&desk, "/pools", |answer| of(answer, "full")["standing"] == "serving").await;
}

#[tokio::test]
async fn why_tells_what_keeps_a_source_out_and_what_ends_it() {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "default"})).await.expect(201);
    account(&desk, "plan", json!({"max_concurrent": 2}), &["default"]).await;
    account(&desk, "idle", json!({}), &[]).await;
    let why = desk.get("/sources/plan/why").await.expect(200);
    let says = why["says"].as_array().unwrap();
    assert_eq!((&why["serving"], &says[..2]), (&json!(true), &[json!("plan serves."), json!("0 of 2 in flight.")][..]));
    assert!(says[2].as_str().unwrap().starts_with("No replica tells of itself"), "no fleet runs here: {why:#}");
    assert_eq!(why["read"]["in_use_known"], false);
    let idle = desk.get("/sources/idle/why").await.expect(200);
    assert_eq!((&idle["standing"], &idle["reasons"][0]["why"]), (&json!("out"), &json!("no_group")), "{idle:#}");

    let mut disable = desk.request(http::Method::POST, "/accounts/plan/disable", Some(&json!({})));
    disable.headers_mut().insert("x-waybill-reason", "vacation".parse().unwrap());
    desk.ask(disable).await.expect(200);
    let why = desk.get("/sources/account:1/why").await.expect(200);
    assert_eq!((&why["serving"], &why["reasons"][0]["ends"]), (&json!(false), &json!("operator")), "{why:#}");
    let evidence = &why["reasons"][0]["evidence"][0];
    assert_eq!(
        (&evidence["event"], &evidence["details"]),
        (&json!("account_disabled"), &json!(["because: vacation"])),
        "{why:#}"
    );
    assert!(
        why["says"]
            .to_string()
            .contains("an operator disabled it; it takes an operator: `waybill account enable plan`."),
        "{why:#}"
    );
    desk.post("/accounts/plan/enable", json!({})).await.expect(200);
    desk.post("/sources/plan/open", json!({"until": now() + Duration::from_secs(60)})).await.expect(200);
    let why = desk.get("/sources/plan/why").await.expect(200);
    assert_eq!(why["reasons"][0]["why"], "held_open", "{why:#}");
    assert!((50..=60).contains(&why["reasons"][0]["left_s"].as_u64().unwrap()), "{why:#}");

    // What is known without the read model is told without it.
    desk.postgres_away(true);
    let why = desk.get("/sources/plan/why").await.expect(200);
    assert_eq!(
        (&why["standing"], &why["read"]["read_model"], &why["moved"]),
        (&json!("out"), &json!(false), &json!(null))
    );
    let pools = desk.get("/pools").await.expect(200);
    assert_eq!((&pools["read"]["read_model"], &of(&pools, "plan")["last"]), (&json!(false), &json!(null)));
    desk.get("/sources/nobody/why").await.refused(404, "not_found");
    desk.get("/sources/channel:9/why").await.refused(404, "not_found");
    desk.get("/pools?since_s=0").await.refused(422, "invalid_field");
}

#[tokio::test]
async fn why_tells_of_tokens_that_have_expired_and_of_breakers_that_are_open() {
    let desk = Desk::new().await;
    desk.post("/groups", json!({"name": "default"})).await.expect(201);
    let expired = now().as_millis() / 1_000 - 60;
    let tokens = json!({"access_token": "a", "expires_at": expired});
    account_with(&desk, "lapsed", tokens, json!({}), &["default"]).await;
    let endpoint = "https://login.test/token";
    let tokens = json!({"access_token": "b", "refresh_token": "c", "expires_at": expired, "token_endpoint": endpoint});
    account_with(&desk, "waiting", tokens, json!({}), &["default"]).await;
    account(&desk, "failing", json!({}), &["default"]).await;
    for (name, ends) in [("lapsed", "login"), ("waiting", "refresh")] {
        let path = format!("/sources/{name}/why");
        let why = until(&desk, &path, |why| why["reasons"][0]["why"] == "credential_expired").await;
        assert_eq!((&why["standing"], &why["reasons"][0]["ends"]), (&json!("out"), &json!(ends)), "{why:#}");
    }

    let mut failing = state(3);
    let (revisions, policy) = (failing.revisions, failing.policy.source_breaker);
    let opened = failing.whole.breaker.open("source:account:3@p:b:1".into(), now(), revisions, &policy);
    put_state(&desk, &failing).await;
    let why = until(&desk, "/sources/failing/why", |why| why["standing"] == "out").await;
    let reason = &why["reasons"][0];
    assert_eq!((&reason["why"], &reason["ends"]), (&json!("source_breaker_open"), &json!("requests")), "{why:#}");
    assert_eq!(
        (&reason["until"], &why["returns_at"]),
        (&json!(opened.open_until), &json!(opened.open_until)),
        "{why:#}"
    );
    // One whose time has come is tried.
    let mut failing = state(3);
    let before = now() - Duration::from_secs(3_600);
    failing.whole.breaker.open("source:account:3@p:b:2".into(), before, revisions, &policy);
    put_state(&desk, &failing).await;
    let why = until(&desk, "/sources/failing/why", |why| why["standing"] == "probing").await;
    assert_eq!(why["reasons"][0]["why"], "probing", "{why:#}");
}
