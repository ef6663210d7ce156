//! One sick model: a channel has six, and one of them answers "service do not have healthy model … now" for seven minutes,
//! while clients try again as SDKs do. Times are a sixtieth: a breaker stays open for half a second instead of thirty.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a suite fails by panicking")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill_testkit::upstream::{Reply, Source};
use waybill_testkit::{Answer, until, wait_until};
use waybill_tests::Bench;

/// Seven minutes.
const ILL_FOR: Duration = Duration::from_secs(7);
/// Thirty seconds.
const OPEN_MS: u64 = 500;
const OTHERS: usize = 5;

/// An incident: who is ill, and whether somebody else has the model too.
struct Incident<'a> {
    bench: &'a Bench,
    name: &'a str,
    source: String,
    streamed: bool,
    backed: bool,
}

impl<'a> Incident<'a> {
    async fn of(bench: &'a Bench, name: &'a str, streamed: bool, backed: bool) -> Self {
        let sick = format!("{name}-sick");
        let models: Vec<String> = (1..=OTHERS).map(|n| format!("{name}-{n}")).chain([sick.clone()]).collect();
        let models: Vec<&str> = models.iter().map(String::as_str).collect();
        let message = format!("service do not have healthy model {sick} now");
        let ill =
            Source::default().saying("from the first").for_model(sick, Reply::json(500, json!({"message": message})));
        let source = bench.channel(name, &models, 10, ill).await;
        if backed {
            bench.channel(&format!("{name}-backup"), &models, 0, Source::default().saying("from the second")).await;
        }
        Self { bench, name, source, streamed, backed }
    }

    /// A request, tried again twice at most as SDKs do, each time at another replica.
    async fn ask(&self, model: &str, turn: usize) -> Vec<Answer> {
        let mut answers = Vec::new();
        for retry in 0..3 {
            let chat =
                self.bench.chat((turn + retry) % 3 + 1, model).header("x-stainless-retry-count", &retry.to_string());
            let answer = if self.streamed { chat.streamed() } else { chat }.send().await;
            let served = answer.status == 200;
            answers.push(answer);
            if served {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20 << retry)).await;
        }
        answers
    }

    /// The clients of the model that is ill, as long as it is.
    async fn sick_clients(&self, begun: Instant) {
        let mut turn = 0;
        while begun.elapsed() < ILL_FOR {
            let answers = self.ask(&format!("{}-sick", self.name), turn).await;
            for answer in &answers {
                match (self.backed, answer.status) {
                    (true, 200) => assert_eq!(answer.said(), "from the second"),
                    (false, 503) => {}
                    (_, status) => panic!("{status}: {}", answer.text()),
                }
            }
            assert!(!self.backed || answers.len() == 1, "with a second channel nobody has to try again");
            turn += 1;
        }
    }

    /// Those of another model, from before the incident until after it.
    async fn other_clients(&self, number: usize, begun: Instant) -> usize {
        let (model, mut turn) = (format!("{}-{number}", self.name), number);
        while begun.elapsed() < ILL_FOR + Duration::from_secs(1) {
            let answers = self.ask(&model, turn).await;
            assert_eq!(
                (answers.len(), answers[0].said().as_str()),
                (1, "from the first"),
                "{model}: {}",
                answers[0].text()
            );
            turn += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        turn - number
    }

    async fn happens(&self) {
        let begun = Instant::now();
        let others = join_all((1..=OTHERS).map(|number| self.other_clients(number, begun)));
        let healed = async {
            self.sick_clients(begun).await;
            let while_ill = self.sick_calls();
            self.bench.upstream.set_source(self.name, Source::default().saying("from the first"));
            (Instant::now(), while_ill)
        };
        let (asked, (healed, while_ill)) = tokio::join!(others, healed);
        assert!(asked.iter().all(|count| *count > 20), "{asked:?}");
        let model = format!("{}-sick", self.name);
        wait_until(Duration::from_secs(15), "the model is asked again, and is well", async || {
            let answers = self.ask(&model, 1).await;
            let answer = answers.last().unwrap();
            until(answer.status == 200 && answer.said() == "from the first", || answer.text())
        })
        .await;
        if self.backed {
            self.story_of_the_block(while_ill).await;
        } else {
            self.story_of_the_breaker(healed - begun).await;
        }
    }

    /// With somebody else at hand the first failure is enough: the model is left alone for as long as its block lasts.
    async fn story_of_the_block(&self, while_ill: usize) {
        let id: u64 = self.source.trim_start_matches("channel:").parse().unwrap();
        let told = self.bench.fleet.events().await;
        let about = |event: &&Value| event["data"]["scope"]["source"]["id"] == id;
        let told: Vec<&Value> = told.iter().filter(about).collect();
        let model = format!("{}-sick", self.name);
        assert!(
            !told.is_empty() && told.iter().all(|event| event["data"]["scope"]["model"] == model.as_str()),
            "{told:#?}"
        );
        let of = |event_type: &str| told.iter().filter(|event| event["type"] == event_type).count();
        assert!(of("block_set") > 0, "{told:#?}");
        // Where all three ask at the same moment, the model's breaker opens as well.
        let most = 3 + of("probe_finished");
        assert!((1..=most).contains(&while_ill), "once by each replica at most, and its probes: {while_ill}");
    }

    fn sick_calls(&self) -> usize {
        let model = json!(format!("{}-sick", self.name));
        self.bench.upstream.calls_of(self.name).iter().filter(|call| call.json().get("model") == Some(&model)).count()
    }

    /// What the log tells of the breaker, and what the upstream saw.
    async fn story_of_the_breaker(&self, ill_for: Duration) {
        let (id, model) =
            (self.source.trim_start_matches("channel:").parse::<u64>().unwrap(), format!("{}-sick", self.name));
        let told = wait_until(Duration::from_secs(10), "the closing is in the log", async || {
            let told: Vec<Value> = self.bench.fleet.events().await;
            let about = |event: &&Value| event["data"]["scope"]["source"]["id"] == id;
            let types: Vec<&Value> = told.iter().filter(about).map(|event| &event["type"]).collect();
            until(types.iter().any(|found| *found == "breaker_closed"), || format!("{types:?}"))?;
            Ok::<_, String>(told)
        })
        .await;
        let of = |event_type: &'static str| {
            let about =
                move |event: &&Value| event["type"] == event_type && event["data"]["scope"]["source"]["id"] == id;
            told.iter().filter(about).collect::<Vec<_>>()
        };
        let (opened, probes, closed) = (of("breaker_opened"), of("probe_finished"), of("breaker_closed"));
        let of_model = |event: &&Value| event["data"]["scope"]["model"] == model.as_str();
        assert!(opened.iter().chain(&closed).all(of_model), "the channel's own breaker never opens: {opened:#?}");

        // At the third failure that the log holds, whichever replicas it came through.
        let outcomes = told.iter().filter(|e| e["type"] == "source_outcome" && e["source"]["id"] == id);
        let outcomes: Vec<&Value> = outcomes.filter(|e| e["data"]["upstream_model"] == model.as_str()).collect();
        let first = &opened[0]["data"];
        assert_eq!((&first["times"], &first["ok"], &first["cause"]), (&json!(1), &json!(0), &outcomes[2]["id"]));
        assert!(
            outcomes.iter().take(3).all(|e| e["data"]["model_health"] == "fail" && e["data"]["source_health"] == "ok")
        );

        // What clients do meanwhile prolongs nothing: each opening lasts its half second, and only a failed probe makes the next.
        let failed: Vec<&Value> = probes.iter().filter(|e| e["data"]["ok"] == false).map(|e| &e["id"]).collect();
        let causes: Vec<&Value> = opened.iter().skip(1).map(|e| &e["data"]["cause"]).collect();
        assert!(
            causes.iter().all(|cause| failed.contains(cause)),
            "each further opening is a failed probe's: {causes:?} {failed:?}"
        );
        // One for each window, and at most one more by each replica that hadn't heard yet that it had failed.
        assert!(failed.len() <= 3 * opened.len(), "{failed:?}");
        for opening in &opened {
            let lasts = millis(&opening["data"]["open_until"]) - millis(&opening["data"]["since"]);
            assert_eq!(lasts, i64::try_from(OPEN_MS).unwrap(), "{opening:#}");
        }
        let windows = ill_for.as_millis() / u128::from(OPEN_MS);
        assert!(
            (windows / 3..=windows + 1).contains(&(opened.len() as u128)),
            "{} openings in {ill_for:?}",
            opened.len()
        );

        // Closed by its probe.
        let good: Vec<&&Value> = probes.iter().filter(|e| e["data"]["ok"] == true).collect();
        assert_eq!((closed.len(), good.len()), (1, 1), "{closed:#?} {good:#?}");
        let last = &opened.last().unwrap()["data"]["opening"];
        assert_eq!((&closed[0]["data"]["opening"], &good[0]["data"]["probe"]["opening"]), (last, last));
        assert_eq!(closed[0]["data"]["cause"], good[0]["id"]);

        // Three failures, at most one more of each replica that hadn't heard yet, and the probes.
        let of_sick = self.sick_calls();
        let healthy = outcomes.iter().filter(|e| e["data"]["model_health"] == "ok").count();
        let most = 3 + 2 + probes.len() + healthy;
        assert!(
            of_sick <= most,
            "{of_sick} calls of the sick model, {} probes, {healthy} after it was well",
            probes.len()
        );
    }
}

fn millis(time: &Value) -> i64 {
    let time: waybill_event::LogTime = time.as_str().unwrap().parse().unwrap();
    time.as_millis()
}

async fn incident(streamed: bool) {
    let bench = Bench::of(3).await;
    let model_breaker = json!({"open_ms": OPEN_MS, "open_max_ms": OPEN_MS, "slow_start_ms": OPEN_MS});
    bench.admin().policy(json!({"model_breaker": model_breaker})).await;
    let alone = Incident::of(&bench, "alone", streamed, false).await;
    let backed = Incident::of(&bench, "backed", streamed, true).await;
    bench.configured().await;
    tokio::join!(alone.happens(), backed.happens());
    bench.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_sick_model_takes_no_other_with_it_and_comes_back_by_its_probe() {
    Box::pin(incident(false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_sick_model_of_streams_takes_no_other_with_it_and_comes_back_by_its_probe() {
    Box::pin(incident(true)).await;
}
