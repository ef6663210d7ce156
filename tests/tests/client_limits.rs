//! Client keys and their users, limited by name over real fleets.

use std::time::Duration;

use serde_json::json;
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{Answer, Chat};
use waybill_tests::Bench;

const MODEL: &str = "m";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_their_users_are_limited_over_the_fleet_and_told_when_to_come_back() {
    let bench = Bench::of(3).await;
    bench.channel("main", &[MODEL], 0, Source::default().then(Reply::default().delay_head(500))).await;
    let few =
        bench.admin().key_with(json!({"name": "few", "group": "default", "limits": {"requests_per_minute": 6}})).await;
    let users = bench
        .admin()
        .key_with(json!({"name": "users", "group": "default", "user_limits": {"max_concurrent": 1}}))
        .await;
    bench.configured().await;
    let with = |proxy: usize, key: &str| Chat::new(bench.fleet.http(), bench.fleet.proxy(proxy), key, MODEL);
    let answers: Vec<Answer> =
        futures_util::future::join_all((0..18).map(async |n| with(1 + n % 3, &few).send().await)).await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(served, 6, "six a minute, whichever replicas are asked");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!((answer.status, answer.code().as_deref()), (429, Some("rate_limited")));
        let after: u64 = answer.header("retry-after").and_then(|text| text.parse().ok()).unwrap_or(0);
        assert!((1..=63).contains(&after), "{after}");
        assert!(answer.text().contains("6 requests a minute"), "{}", answer.text());
    }

    let of = async |proxy: usize, user: &str| with(proxy, &users).with("user", user).send().await.status;
    let (one, two, three, other) = tokio::join!(of(1, "ann"), of(2, "ann"), of(3, "ann"), of(2, "bob"));
    let mut of_ann = [one, two, three];
    of_ann.sort_unstable();
    assert_eq!((of_ann, other), ([200, 429, 429], 200));
    assert_eq!(of(3, "ann").await, 200, "her first request has ended");

    let both = json!({"name": "both", "group": "default", "limits": {"requests_per_minute": 4}, "user_limits": {"requests_per_minute": 1}});
    let both = bench.admin().key_with(both).await;
    bench.configured().await;
    let mut answers = Vec::new();
    for user in ["ann", "ann", "ann", "ann", "bob", "cid", "dan", "eve"] {
        answers.push(with(1, &both).with("user", user).send().await.status);
    }
    assert_eq!(answers, [200, 429, 429, 429, 200, 200, 200, 429], "what a user may not ask isn't taken off the key's");
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_at_the_limit_takes_nothing_of_the_keys_from_the_others() {
    let bench = Bench::of(3).await;
    bench.channel("main", &[MODEL], 0, Source::default().then(Reply::default().delay_head(2_000))).await;
    let both = json!({
        "name": "both", "group": "default",
        "limits": {"max_concurrent": 2, "requests_per_minute": 4}, "user_limits": {"max_concurrent": 1},
    });
    let both = bench.admin().key_with(both).await;
    bench.admin().policy_of("key:both", json!({"request": {"queue_timeout_ms": 1000}})).await;
    bench.configured().await;
    let of = async |proxy: usize, user: &str| {
        let chat = Chat::new(bench.fleet.http(), bench.fleet.proxy(proxy), &both, MODEL);
        chat.with("user", user).send().await.status
    };
    // One of hers runs, the others wait for it in vain; meanwhile the key has a slot for him.
    let hers = futures_util::future::join_all((0..6).map(|n| of(1 + n % 3, "ann")));
    let his = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        of(2, "bob").await
    };
    let (mut hers, his) = tokio::join!(hers, his);
    hers.sort_unstable();
    assert_eq!((hers, his), (vec![200, 429, 429, 429, 429, 429], 200));
    // What was refused for her own limit is none of the key's four a minute.
    assert_eq!((of(3, "bob").await, of(1, "eve").await, of(2, "eve").await), (200, 200, 429));
    bench.fleet.stop().await;
}
