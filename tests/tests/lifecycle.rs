//! Starts, stops and absences: what stays, what is left behind, who goes on without whom, and how it is told.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a suite fails by panicking")]

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use waybill_testkit::upstream::Source;
use waybill_testkit::{Chat, Fleet, FleetOptions, until, wait_until};
use waybill_tests::Bench;

/// One request served, with its history readable.
async fn served(fleet: &Fleet, key: &str) -> String {
    let answer = Chat::new(fleet.http(), fleet.proxy(1), key, "m").served().await;
    let request = answer.request().to_owned();
    assert_eq!(fleet.admin().history(&request).await.state(), "succeeded");
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_nothing_behind_and_a_start_finds_everything_again() {
    let bench = Bench::of(2).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    let Bench { fleet, upstream: _kept, key } = bench;
    let first = served(&fleet, &key).await;
    let (proxies, token) = (fleet.proxies().to_vec(), fleet.admin().token().to_owned());

    // `start_again` fails where a process is left.
    let fleet = fleet.start_again().await;
    assert_eq!((fleet.proxies(), fleet.admin().token()), (&proxies[..], token.as_str()), "addresses stay");
    assert_eq!(fleet.admin().history(&first).await.state(), "succeeded");
    let second = served(&fleet, &key).await;

    // The hard way: the parent can do nothing any more, and still nothing is left and nothing is lost.
    let fleet = fleet.kill_parent().await;
    for request in [&first, &second] {
        assert_eq!(fleet.admin().history(request).await.state(), "succeeded");
    }
    served(&fleet, &key).await;
    assert_eq!(fleet.admin().requests("limit=10").await.len(), 3);

    // A second fleet in the same folder is refused, and the first one goes on.
    let refused = tokio::process::Command::new(Fleet::binary())
        .args(["dev", "--no-demo", "--dir"])
        .arg(fleet.dir())
        .output()
        .await
        .expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("another fleet runs"), "{said}");
    served(&fleet, &key).await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_role_is_started_again() {
    let bench = Bench::of(2).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    let names: Vec<String> =
        bench.fleet.processes().into_iter().filter(|p| p.ops_url.is_some()).map(|p| p.name).collect();
    assert_eq!(names, ["projector-1", "admin-1", "upkeep-1", "proxy-1", "proxy-2"]);
    for name in &names {
        let before = bench.fleet.kill9(name);
        bench.fleet.restarted(name, before).await;
        assert!(bench.fleet.lives(name).await, "{name}");
    }
    served(&bench.fleet, &bench.key).await;
    bench.chat(2, "m").served().await;
    bench.fleet.stop().await;
}

/// What a role's readiness says of one of the things that it depends on.
async fn dependency(fleet: &Fleet, role: &str, name: &str) -> (u16, Value) {
    let Some((status, readiness)) = fleet.readiness(role).await else { return (0, Value::Null) };
    let all = readiness["dependencies"].as_array().cloned().unwrap_or_default();
    (status, all.into_iter().find(|dependency| dependency["name"] == name).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_postgres_clients_are_served_and_edits_hold() {
    let bench = of_two_channels().await;
    bench.fleet.take_away("postgres");
    check_without_postgres(&bench).await;
    bench.fleet.give_back();
    check_caught_up(&bench).await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_postgres_is_one_that_is_away_and_what_it_missed_comes_later() {
    let bench = of_two_channels().await;
    bench.fleet.sigstop("postgres");
    check_without_postgres(&bench).await;
    bench.fleet.sigcont("postgres");
    check_caught_up(&bench).await;
    bench.fleet.stop().await;
}

/// Postgres is back: what happened meanwhile is in the tables, and so is what happens now.
async fn check_caught_up(bench: &Bench) {
    wait_until(Duration::from_secs(60), "the tables can be asked again", async || {
        let reply = bench.admin().ask(Method::GET, "/requests?limit=1", None).await;
        until(reply.status == 200, || format!("{} {}", reply.status, reply.text))
    })
    .await;
    let request = bench.chat(1, "m").served().await.request().to_owned();
    assert_eq!(bench.admin().history(&request).await.state(), "succeeded");
    assert_eq!(bench.admin().requests("limit=20").await.len(), 3 + 3 + 1);
}

async fn of_two_channels() -> Bench {
    let bench = Bench::of(3).await;
    bench.channel("a", &["m"], 10, Source::default().saying("from a")).await;
    bench.channel("b", &["m"], 0, Source::default().saying("from b")).await;
    bench.configured().await;
    bench
}

/// Postgres is away: three requests are served before an edit, and three after it.
async fn check_without_postgres(bench: &Bench) {
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "from a", "proxy-{proxy}");
        assert_eq!(bench.fleet.readiness(&format!("proxy-{proxy}")).await.map(|(status, _)| status), Some(200));
    }
    // The edit is taken, is told not to be readable yet, and holds everywhere.
    let begun = Instant::now();
    let reply = bench.admin().ask(Method::POST, "/channels/a/disable", Some(&json!({}))).await;
    assert_eq!((reply.status, &reply.json()["readable"]), (202, &json!(false)), "{}", reply.text);
    assert!(begun.elapsed() < Duration::from_secs(5), "after {:?}", begun.elapsed());
    bench.configured().await;
    for proxy in 1..=3 {
        assert_eq!(bench.chat(proxy, "m").served().await.said(), "from b", "proxy-{proxy}");
    }
    // What needs the tables says so, within its deadline, and who depends on them names them.
    let reply = bench.admin().ask(Method::GET, "/requests", None).await;
    assert_eq!(reply.status, 503, "{}", reply.text);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{:?}", reply.headers);
    wait_until(Duration::from_secs(30), "the projector names Postgres", async || {
        let readiness = bench.fleet.readiness("projector-1").await.map(|(_, r)| r).unwrap_or_default();
        let all = readiness["dependencies"].as_array().cloned().unwrap_or_default();
        let down = all.into_iter().find(|d| d["state"].as_str().unwrap().contains("Postgres"));
        down.ok_or_else(|| readiness.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_log_clients_are_served_and_nothing_is_lost() {
    let bench = Bench::of(2).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    bench.chat(1, "m").served().await;
    bench.fleet.sigstop("nats-server");

    let mut served = Vec::new();
    for n in 0..10 {
        let begun = Instant::now();
        let answer = bench.chat(n % 2 + 1, "m").with("stream", n % 3 == 0).served().await;
        assert!(begun.elapsed() < Duration::from_secs(2), "request {n} took {:?}", begun.elapsed());
        served.push(answer.request().to_owned());
    }
    // Edits can't be made, and that is told in time.
    let begun = Instant::now();
    let reply = bench.admin().ask(Method::POST, "/groups", Some(&json!({"name": "meanwhile"}))).await;
    assert_eq!(reply.status, 503, "{}", reply.text);
    assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
    // Whoever depends on it names it; a replica that knows enough stays ready.
    wait_until(Duration::from_secs(30), "the replicas say that the log is away", async || {
        let (status, log) = dependency(&bench.fleet, "proxy-1", "log").await;
        until(status == 200 && log["state"] != "connected" && log["state"].is_string(), || format!("{status} {log}"))
    })
    .await;
    let (_, outbox) = dependency(&bench.fleet, "proxy-1", "outbox").await;
    assert!(outbox["behind"].as_u64() > Some(0), "{outbox}");

    bench.fleet.sigcont("nats-server");
    for request in &served {
        let story = bench.admin().history(request).await;
        assert_eq!(story.state(), "succeeded", "{:#}", *story);
    }
    // The edit that was answered with 503 may or may not have been taken; it can be asked for.
    wait_until(Duration::from_secs(20), "edits can be made again", async || {
        let reply = bench.admin().ask(Method::POST, "/groups", Some(&json!({"name": "afterwards"}))).await;
        until(matches!(reply.status, 201 | 409), || format!("{} {}", reply.status, reply.text))
    })
    .await;
    let groups = bench.admin().get("/groups").await.to_string();
    assert!(groups.contains("afterwards"), "{groups}");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_replica_had_under_way_is_told_as_lost() {
    let bench = Bench::of(2).await;
    let never = waybill_testkit::upstream::Reply::default().delay_head(60_000);
    bench.channel("slow", &["m"], 0, Source::default().then(never)).await;
    bench.configured().await;
    let chat = bench.chat(2, "m").header("x-client-request-id", "orphan");
    let (answer, ()) = tokio::join!(chat.try_send(), async {
        wait_until(Duration::from_secs(5), "the request is under way", async || {
            until(bench.upstream.in_flight("slow") == 1, || "not yet")
        })
        .await;
        let before = bench.fleet.kill9("proxy-2");
        bench.fleet.restarted("proxy-2", before).await;
    });
    assert!(answer.is_err(), "its connection broke: {answer:?}");
    wait_until(Duration::from_secs(30), "the request is told as lost", async || {
        let found = bench.admin().requests("client_request_id=orphan").await;
        until(found.len() == 1 && found[0]["state"] == "owner_lost", || format!("{found:?}"))
    })
    .await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_die_are_started_again_and_nothing_is_lost() {
    let bench = Bench::of(2).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    let mut served = vec![bench.chat(1, "m").served().await.request().to_owned()];
    for store in ["nats-server", "postgres"] {
        let before = bench.fleet.kill9(store);
        for n in 0..6 {
            served.push(bench.chat(n % 2 + 1, "m").served().await.request().to_owned());
        }
        wait_until(Duration::from_secs(30), format_args!("{store} is started again"), async || {
            let now = bench.fleet.process(store);
            until(now.pid != before, || format!("{now:?}"))
        })
        .await;
        wait_until(Duration::from_secs(60), format_args!("all is well again after the end of {store}"), async || {
            let name = format!("after-{store}");
            let reply = bench.admin().ask(Method::POST, "/groups", Some(&json!({"name": name}))).await;
            until(matches!(reply.status, 201 | 409), || format!("{} {}", reply.status, reply.text))
        })
        .await;
    }
    for request in &served {
        assert_eq!(bench.admin().history(request).await.state(), "succeeded", "{request}");
    }
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_knows_nothing_is_not_ready() {
    let bench = Bench::of(2).await;
    bench.channel("a", &["m"], 0, Source::default()).await;
    bench.configured().await;
    bench.fleet.sigstop("nats-server");
    let before = bench.fleet.kill9("proxy-2");
    wait_until(Duration::from_secs(20), "proxy-2 is started again", async || {
        let now = bench.fleet.process("proxy-2");
        until(now.pid != before, || format!("{now:?}"))
    })
    .await;
    // For as long as it can't have learnt anything, it takes no request and isn't ready.
    for _ in 0..20 {
        let readiness = bench.fleet.readiness("proxy-2").await;
        assert!(readiness.as_ref().is_none_or(|(status, _)| *status == 503), "{readiness:?}");
        let short = bench.chat(2, "m");
        if let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_millis(300), short.try_send()).await {
            assert_eq!(
                (answer.status, answer.code().as_deref()),
                (503, Some("gateway_not_ready")),
                "{}",
                answer.text()
            );
        }
    }
    assert_eq!(bench.chat(1, "m").served().await.status, 200, "the other one serves");
    bench.fleet.sigcont("nats-server");
    bench.fleet.ready("proxy-2").await;
    bench.chat(2, "m").served().await;
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_open_streams_finish_within_the_grace_period() {
    let grace = Duration::from_secs(8);
    let bench = Bench::start(FleetOptions { proxies: 1, grace, ..FleetOptions::default() }).await;
    let slow = waybill_testkit::upstream::Reply::chat(waybill_testkit::upstream::Chat::words(10)).delay_per_chunk(150);
    bench.channel("slow", &["m"], 0, Source::default().then(slow)).await;
    bench.configured().await;
    let chat = bench.chat(1, "m").streamed();
    let (answer, fleet) = tokio::join!(chat.send(), async {
        wait_until(Duration::from_secs(5), "the stream is under way", async || {
            until(bench.upstream.in_flight("slow") == 1, || "not yet")
        })
        .await;
        bench.fleet.start_again().await
    });
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    let story = fleet.admin().history(answer.request()).await;
    assert_eq!(story.state(), "succeeded", "{:#}", *story);
    fleet.stop().await;
}
