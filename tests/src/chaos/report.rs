//! The scorecard of a run, as text and as a page.

use std::fs;
use std::time::SystemTime;

use waybill_event::LogTime;

use super::{Case, Scale};

const HEAD: &str = "| case | s | requests | whole | meant to fail | tried elsewhere | broken | `owner_lost` | wrong |
|---|---|---|---|---|---|---|---|---|
";

/// Everything that a run came to.
#[derive(Debug, Default)]
pub struct Scorecard {
    parts: Vec<(String, Vec<Case>)>,
}

impl Scorecard {
    /// Adds the cases of one fleet.
    pub fn add(&mut self, fleet: &str, cases: Vec<Case>) {
        self.parts.push((fleet.to_owned(), cases));
    }

    /// Whether nothing was wrong.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.parts.iter().flat_map(|(_, cases)| cases).all(|case| case.violations.is_empty())
    }

    /// The page.
    #[must_use]
    pub fn page(&self, scale: Scale) -> String {
        let mut page = INTRODUCTION.to_owned();
        let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
        page.push_str(&format!(
            "\n## Figures\n\n{}, {}; {build}, {} requests/s, load generator and upstream on the same machine.\n",
            now(),
            machine(),
            scale.rate
        ));
        for (fleet, cases) in &self.parts {
            page.push_str(&format!("\n### {fleet}\n\n{HEAD}"));
            for case in cases {
                page.push_str(&case.row());
            }
            page.push_str("\nWhat was seen besides:\n\n");
            for case in cases {
                page.push_str(&case.besides());
            }
        }
        page
    }
}

impl Case {
    /// A line of the table.
    #[must_use]
    pub fn row(&self) -> String {
        let broken = self.requests - self.whole - self.meant;
        format!(
            "| {} | {:.0} | {} | {} | {} | {} | {broken} | {} | {} |\n",
            self.name,
            self.took.as_secs_f64(),
            self.requests,
            self.whole,
            self.meant,
            self.redispatched,
            self.lost,
            self.violations.len()
        )
    }

    fn besides(&self) -> String {
        let mut text = format!("- **{}**: {}.", self.name, self.notes.join("; "));
        if !self.errors.is_empty() {
            text.push_str(&format!(" Errors: {}.", self.errors.join("; ")));
        }
        for violation in &self.violations {
            let shown: String = violation.chars().take(600).collect();
            text.push_str(&format!("\n  **Wrong:** {shown}"));
        }
        text.push('\n');
        text
    }
}

fn now() -> LogTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    LogTime::from_micros(i64::try_from(since.as_secs()).unwrap_or_default() * 1_000_000)
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!("{cores} × {}, load {load} at the end", model.map_or("unknown", |(_, model)| model.trim()))
}

const INTRODUCTION: &str = "# What holds when things die

Made by `cargo xtask chaos --release --write`; don't edit it by hand. The suite `tests/tests/chaos.rs` runs the same small, in CI.

A fleet of real processes (three proxies, two projectors, upkeep, admin, Postgres, and a log of three nodes with three copies, or of one node) is under
load: whole answers and streams, sources that fail in turns, streams that are cut after their first content, a model that nobody serves, clients that leave. In each
case something is killed (`kill -9`), frozen (SIGSTOP) or stopped (SIGTERM), and comes back. Afterwards, of every case:

- each request that the upstream saw has exactly one history; its end is what the client got and what the upstream served, or `owner_lost` where a killed
  proxy held it; its attempts are the calls that the upstream saw, in their order;
- clients saw errors only where a killed proxy held their open request (also one that was sent up to 500 ms after its death, on a connection that the client
  didn't know to be dead), or where the script meant them;
- the ordinals of every boot stand in the log without a gap, in order; an event that stands there twice is applied once;
- folding the log from nothing gives the same rows, the same published value of every source, and the same view of it at every proxy.

Clients talk to the fleet through a front that does what `deploy/haproxy/haproxy.cfg` says: it asks every proxy for its readiness twice a second and goes by the first
word, and sends a request to another proxy only if the connection was refused, which means that it was never sent. One rolling restart runs behind HAProxy
itself, with that file, where it is installed.

The columns: requests that clients sent; answers that they got whole; errors, cut streams and departures that the script meant; refused connections that
were tried at another proxy; answers that broke because their proxy was killed; histories that say so; what was wrong.
";
