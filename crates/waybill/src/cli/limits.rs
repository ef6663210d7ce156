//! Limits on the command line: 0 is unlimited, what isn't given stays.

use clap::Args;
use serde_json::{Value, json};

/// What may be asked at once, and how often.
#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// Requests in flight, over the whole fleet; 0 is unlimited.
    #[arg(long)]
    max_concurrent: Option<u32>,
    /// Attempts in any 60 seconds, over the whole fleet; 0 is unlimited.
    #[arg(long)]
    requests_per_minute: Option<u32>,
}

/// Reads an amount of dollars.
pub(super) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd >= 0.0);
    amount.ok_or_else(|| "an amount of dollars is expected, such as 1.50".to_owned())
}

fn limit(given: Option<u32>, held: Option<&Value>) -> Value {
    match given {
        Some(0) => Value::Null,
        Some(limit) => limit.into(),
        None => held.cloned().unwrap_or(Value::Null),
    }
}

/// Both limits as a member of a body, if either is given. `held` is the member as it is.
pub(super) fn both(concurrent: Option<u32>, per_minute: Option<u32>, held: Option<&Value>) -> Option<Value> {
    let of = |name: &str| held.and_then(|held| held.get(name));
    (concurrent.is_some() || per_minute.is_some()).then(|| {
        json!({
            "max_concurrent": limit(concurrent, of("max_concurrent")),
            "requests_per_minute": limit(per_minute, of("requests_per_minute")),
        })
    })
}

impl Limits {
    /// The member `limits` of a body, if something is given.
    pub(super) fn member(&self, held: &Value) -> Option<Value> {
        both(self.max_concurrent, self.requests_per_minute, held.get("limits"))
    }
}
