//! `waybill source`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use waybill_event::LogTime;

use super::Usage;
use super::api::Api;
use super::output::{inner, list, member, plain};
use super::reason::{Reason, put};

/// Steer a source by hand.
#[derive(Debug, Subcommand)]
pub(crate) enum Source {
    /// Hold a breaker open: nothing is sent there until it is closed.
    Open(Open),
    /// Close a breaker, whether it tripped or was held open.
    Close(Part),
    /// Lift all blocks, and put back into use what a verdict had disabled.
    Lift(Part),
    /// Close the breaker, forget its window, lift all blocks.
    Reset(Part),
    /// Probe a source now that a verdict disabled, instead of waiting for its next probe.
    Probe(Whole),
    /// Tell what happened to a source and what was done to it, newest first.
    Story(Story),
}

/// Which part of a source.
#[derive(Debug, Args)]
pub(crate) struct Part {
    /// The source, as channel:ID or by its name.
    source: String,
    /// Only this model, by its upstream name.
    #[arg(long)]
    model: Option<String>,
    #[command(flatten)]
    reason: Reason,
}

/// A whole source.
#[derive(Debug, Args)]
pub(crate) struct Whole {
    /// The source, as channel:ID or by its name.
    source: String,
    #[command(flatten)]
    reason: Reason,
}

/// A source's story.
#[derive(Debug, Args)]
pub(crate) struct Story {
    /// The source, as channel:ID or by its name.
    source: String,
    /// What was before this time, as 2026-11-30T12:00:00Z.
    #[arg(long)]
    before: Option<String>,
    /// At most this many lines.
    #[arg(long, default_value_t = 50)]
    limit: u32,
}

/// Holding a breaker open.
#[derive(Debug, Args)]
pub(crate) struct Open {
    #[command(flatten)]
    part: Part,
    /// For how many seconds; without it until it is closed.
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
}

impl Source {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let (act, part, until) = match self {
            Self::Open(Open { part, seconds }) => ("open", part, seconds.map(ends).transpose()?),
            Self::Close(part) => ("close", part, None),
            Self::Lift(part) => ("lift", part, None),
            Self::Reset(part) => ("reset", part, None),
            Self::Probe(Whole { source, reason }) => ("probe", Part { source, model: None, reason }, None),
            Self::Story(story) => return story.run(api).await,
        };
        let mut body = Map::new();
        put(&mut body, "model", part.model);
        put(&mut body, "until", until);
        part.reason.put(&mut body);
        let answer = api.post(&["sources", &part.source, act], &[], &Value::Object(body)).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let (what, position) = (part.source, member(&answer, "position"));
        let line = match inner(&answer, "/intervention/held").as_str() {
            "-" => format!("{what}: {act} done, at position {position}"),
            _ => format!(
                "{what} is held open until {}, at position {position}",
                inner(&answer, "/intervention/held/until")
            ),
        };
        Ok(api.out().line(&line)?)
    }
}

impl Story {
    async fn run(self, api: &Api) -> anyhow::Result<()> {
        let parameters = [("before", self.before), ("limit", Some(self.limit.to_string()))];
        let story = api.get(&["sources", &self.source, "story"], &parameters).await?;
        if api.wants_json() {
            return Ok(api.out().json(&story)?);
        }
        let mut out = api.out();
        let lines = list(&story, "lines");
        if lines.is_empty() {
            return Ok(out.line("nothing is known of it")?);
        }
        for line in lines {
            let model = line.get("model").map_or_else(String::new, |model| format!(" {}:", plain(model)));
            out.line(&format!("{} {model} {}", member(line, "at"), member(line, "text")).replace("  ", " "))?;
            for detail in list(line, "details") {
                out.line(&format!("    {}", plain(detail)))?;
            }
        }
        Ok(())
    }
}

fn ends(seconds: u64) -> Result<String, Usage> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ends = now.checked_add(Duration::from_secs(seconds)).and_then(|end| i64::try_from(end.as_micros()).ok());
    let ends = ends.ok_or_else(|| Usage(format!("{seconds} s is too long")))?;
    Ok(LogTime::from_micros(ends).to_string())
}
