//! Logs: JSON lines on standard error, one span per request and per command.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// What is logged unless `WAYBILL_LOG` says otherwise. The libraries' own levels are held down: at debug they print
/// every frame, and sqlx prints statements.
const DEFAULT_FILTER: &str = "info,hyper_util=warn,reqwest=warn,async_nats=warn,sqlx=warn,h2=warn,rustls=warn";

/// The same for commands that a person runs: what they do is printed, only trouble is logged.
const PERSON_FILTER: &str = "warn";

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line, for machines.
    Json,
    /// One sentence a line, for people.
    Text,
}

/// Installs the process's logger. A second call changes nothing.
pub fn install(format: LogFormat) {
    let default = match format {
        LogFormat::Json => DEFAULT_FILTER,
        LogFormat::Text => PERSON_FILTER,
    };
    let filter = EnvFilter::try_from_env("WAYBILL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_target(true);
    let installed = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
        LogFormat::Text => builder.compact().try_init(),
    };
    drop(installed);
}
