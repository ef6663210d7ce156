//! The figures as a table, for people: on the screen, and in the docs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use waybill_event::LogTime;

use crate::measure::{HELD, Latency, RATE, Rounds, median};
use crate::process;
use crate::request::Kind;
use crate::run::Figures;
use crate::{fresh, upstream};

/// How many times its target a ratio may be before [`check`] fails.
const FAR_ABOVE: f64 = 1.4;

/// One row: what was measured, and how it stands to its target.
struct Row {
    what: String,
    unit: &'static str,
    /// In the order of the subjects; fewer where only the proxy has the figure.
    values: Vec<Option<f64>>,
    /// What the target speaks of: a ratio, or the proxy's own value.
    measured: String,
    target: String,
    met: Option<bool>,
}

/// Prints the figures, and writes them where they are kept.
///
/// # Errors
/// The file can't be written.
pub(crate) fn tell(figures: &Figures, write: Option<&Path>) -> Result<()> {
    let rows = rows(figures);
    let table = table(&figures.names, &rows);
    println!("\n{table}\n{}", machine(figures));
    if let Some(path) = write {
        fs::write(path, document(figures, &table)).with_context(|| format!("can't write {}", path.display()))?;
        println!("written to {}", path.display());
    }
    Ok(())
}

fn position(names: &[&str], name: &str) -> usize {
    names.iter().position(|found| *found == name).unwrap_or(usize::MAX)
}

/// Ratios of the proxy to the pass-through, round by round.
fn ratios(figures: &Figures, rounds: &Rounds) -> Vec<f64> {
    let of = |name| rounds.get(position(&figures.names, name)).cloned().unwrap_or_default();
    of("waybill").into_iter().zip(of("pass-through")).map(|(ours, bare)| ours / bare).collect()
}

fn by_ratio(figures: &Figures, what: String, rounds: &Rounds, target: Option<f64>) -> Row {
    let ratios = ratios(figures, rounds);
    let (low, high) = (ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max));
    let ratio = median(&ratios);
    Row {
        what,
        unit: "µs",
        values: rounds.iter().take(figures.names.len()).map(|values| Some(median(values))).collect(),
        measured: format!("{ratio:.2} × ({low:.2}–{high:.2})"),
        target: target.map_or_else(|| "–".to_owned(), |most| format!("≤ {most:.1} ×")),
        met: target.map(|most| ratio <= most),
    }
}

fn of_proxy(figures: &Figures, what: String, unit: &'static str, value: f64, most: f64) -> Row {
    let ours = position(&figures.names, "waybill");
    Row {
        what,
        unit,
        values: (0..figures.names.len()).map(|at| (at == ours).then_some(value)).collect(),
        measured: format!("{value:.1} {unit}"),
        target: format!("≤ {most:.0} {unit}"),
        met: Some(value <= most),
    }
}

/// Fails if a ratio of CPU time is far above its target in every round: what disturbs a machine disturbs some rounds, what
/// makes the proxy dearer is in all of them.
///
/// # Errors
/// Which one.
pub(crate) fn check(figures: &Figures) -> Result<()> {
    for (kind, rounds) in &figures.cpu {
        let Some((what, most)) = promised(*kind) else { continue };
        let lowest = ratios(figures, rounds).into_iter().fold(f64::MAX, f64::min);
        ensure!(
            lowest <= most * FAR_ABOVE,
            "{what}: {lowest:.2} × that of the pass-through at least; {most:.1} × is promised"
        );
    }
    Ok(())
}

/// What a kind of load is called, and how many times the pass-through's CPU time it may take.
const fn promised(kind: Kind) -> Option<(&'static str, f64)> {
    match kind {
        Kind::Small => Some(("CPU per request of 1 KB", 1.4)),
        Kind::Large => Some(("CPU per request of 100 KB", 2.0)),
        Kind::Stream => Some(("CPU per streamed chunk", 1.1)),
        Kind::Held => None,
    }
}

fn rows(figures: &Figures) -> Vec<Row> {
    let mut rows = Vec::new();
    for (kind, rounds) in &figures.cpu {
        let Some((what, most)) = promised(*kind) else { continue };
        rows.push(by_ratio(figures, what.to_owned(), rounds, Some(most)));
    }
    if let Some(latency) = &figures.latency {
        rows.extend(latency_rows(figures, latency));
    }
    if let Some(ours) = figures.held_kb.get(position(&figures.names, "waybill")) {
        let what = format!("memory of each of {HELD} open streams");
        let values = figures.held_kb.iter().copied().map(Some).collect();
        rows.push(Row { values, ..of_proxy(figures, what, "KB", *ours, 64.0) });
    }
    rows.push(of_proxy(figures, "idle proxy, resident".to_owned(), "MB", figures.idle_mb, 40.0));
    if !figures.events.is_empty() {
        let what = "events on against off, CPU per request".to_owned();
        rows.push(of_proxy(figures, what, "µs", median(&figures.events), 15.0));
    }
    if !figures.fresh.is_empty() {
        let of = |value: fn(&fresh::Fresh) -> f64| median(&figures.fresh.iter().map(value).collect::<Vec<_>>());
        let what = format!("fresh replica ready, {} sources", fresh::SOURCES);
        rows.push(of_proxy(figures, what, "ms", of(|fresh| fresh.ready_ms), 500.0));
        let informal = |what: &str, unit, value| Row {
            target: "–".to_owned(),
            met: None,
            ..of_proxy(figures, what.to_owned(), unit, value, 0.0)
        };
        rows.push(informal("its CPU time until then", "ms", of(|fresh| fresh.cpu_ms)));
        rows.push(informal("its resident memory then", "MB", of(|fresh| fresh.resident_mb)));
    }
    rows
}

/// What stands between client and upstream adds the difference to the upstream alone.
fn latency_rows(figures: &Figures, latency: &Latency) -> Vec<Row> {
    let added = |rounds: &Rounds| -> Rounds {
        let direct = rounds.last().cloned().unwrap_or_default();
        let subjects = rounds.iter().take(figures.names.len());
        subjects.map(|values| values.iter().zip(&direct).map(|(with, without)| with - without).collect()).collect()
    };
    let at = |quantile: &str| format!("added latency at {RATE}/s, {quantile}");
    vec![
        by_ratio(figures, at("p50"), &added(&latency.p50), Some(1.3)),
        by_ratio(figures, at("p99"), &added(&latency.p99), Some(2.0)),
        by_ratio(figures, format!("CPU per request of 1 KB at {RATE}/s"), &latency.cpu, None),
    ]
}

fn table(names: &[&str], rows: &[Row]) -> String {
    let mut text = String::from("| figure | unit |");
    for name in names {
        let _written = write!(text, " {name} |");
    }
    text.push_str(" measured | target | |\n|---|---|");
    text.push_str(&"---:|".repeat(names.len()));
    text.push_str("---|---|---|\n");
    for row in rows {
        let _written = write!(text, "| {} | {} |", row.what, row.unit);
        for value in &row.values {
            let value = value.map_or_else(String::new, |value| format!("{value:.1}"));
            let _written = write!(text, " {value} |");
        }
        let verdict = match row.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        let _written = writeln!(text, " {} | {} | {verdict} |", row.measured, row.target);
    }
    text
}

fn machine(figures: &Figures) -> String {
    let first_of = |path: &str, start: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default().to_owned();
        found.trim_start_matches([' ', '\t', ':']).trim().to_owned()
    };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = LogTime::from_micros(i64::try_from(since.as_micros()).unwrap_or(0)).to_string();
    format!(
        "{} ({} cores, {} of memory), Linux {}, load at the end {}; {}; {} s.",
        first_of("/proc/cpuinfo", "model name"),
        process::cores(),
        first_of("/proc/meminfo", "MemTotal"),
        kernel.trim(),
        load.split_whitespace().next().unwrap_or_default(),
        now.get(..10).unwrap_or_default(),
        figures.took.as_secs(),
    )
}

fn document(figures: &Figures, table: &str) -> String {
    format!(
        "# Benchmarks\n\n\
         What the proxy costs, beside the same work done by a bare axum and reqwest pass-through (`crates/bench`, which \
         knows no keys, plans nothing and remembers nothing) and by nginx where it is installed. One run, one machine, \
         loopback, release builds.\n\n\
         ```sh\ncargo xtask bench --write      # or without --write, to look only\n```\n\n\
         {}\n\n{table}\n\
         ## How it is measured\n\n\
         - The proxy serves with authentication, plan and events on, in a fleet of its own (`waybill dev`): a real \
         nats-server, a real Postgres, every role.\n\
         - Each measured program has one worker thread and one core for itself; everything else runs on the other core, \
         the fleet's other processes only while nobody else wants it. All programs are measured in turns within each \
         round; figures are medians over the rounds, ratios are taken within a round and shown with their lowest and \
         highest.\n\
         - CPU time is that of all threads of the program, from the kernel's own accounts, once it has nothing left to do \
         after the last answer, so that the publishing of events is in it. Upstream and clients are one thread that never \
         sleeps while requests follow one upon the other: waking one that does costs an interrupt of the other core, several µs on a virtual machine, and \
         how often that happens depends on how soon it runs out of work, so that the slower program would pay it for each \
         request and the faster one hardly ever.\n\
         - Requests look like those of an OpenAI SDK. Streams have {} chunks of about 300 bytes, 4 ms apart, so that \
         each arrives alone; 32 streams at the same time.\n\
         - Added latency is the difference of a quantile to that of the upstream alone, in the same round of 8 s. Upstream \
         and clients sleep when they have nothing to do, as they do while streams are measured, and go before all else on \
         their core when they have.\n\
         - The cost of events is that of writing a served request's five events as the proxy does (build, encode, two \
         appends to the outbox, fold into the own view, publish to the log, acknowledge), against the same process \
         without them, at 1,000 requests/s.\n\
         - A fresh replica is a process with an empty folder, from its start until `/readyz` says yes.\n",
        machine(figures),
        upstream::CHUNKS,
    )
}
