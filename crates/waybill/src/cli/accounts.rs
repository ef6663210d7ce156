//! `waybill accounts`.

use clap::Args;
use serde_json::Value;

use super::api::Api;
use super::output::{Table, inner, list, member};

/// Show the accounts with how much of each is in use and what keeps it out, and the pools they make.
#[derive(Debug, Args)]
pub(crate) struct Accounts {
    /// How far back requests are counted that went elsewhere, in seconds; 900 without it.
    #[arg(long, value_name = "SECONDS")]
    since: Option<u64>,
}

impl Accounts {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let answer = api.get(&["pools"], &[("since_s", self.since.map(|since| since.to_string()))]).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let mut out = api.out();
        out.table(&accounts(&answer), "no accounts yet; see `waybill account import --help`")?;
        for account in list(&answer, "accounts") {
            for note in notes(account) {
                out.line(&note)?;
            }
        }
        let pools = list(&answer, "pools");
        if !pools.is_empty() {
            out.line("")?;
        }
        for pool in pools {
            for line in told(pool) {
                out.line(&line)?;
            }
        }
        out.line(&format!(
            "\nas of {}, moves since {}",
            inner(&answer, "/read/at"),
            inner(&answer, "/read/moves_since")
        ))?;
        if answer.pointer("/read/in_use_known") == Some(&Value::Bool(false)) {
            out.line(
                "no replica tells of itself: none runs, or the log is out of reach (`waybill status`); what is in use isn't known now",
            )?;
        }
        if answer.pointer("/read/read_model") == Some(&Value::Bool(false)) {
            out.line("the read model is away: causes, moves and last attempts can't be told now")?;
        }
        Ok(())
    }
}

fn accounts(answer: &Value) -> Table {
    let head = [
        "account",
        "name",
        "standing",
        "returns at",
        "in flight",
        "rpm",
        "token until",
        "sessions",
        "most spent",
        "headroom",
        "ok/fail/busy",
        "last",
        "moved",
    ];
    let mut table = Table::new(&head);
    for account in list(answer, "accounts") {
        let counts = ["ok", "fail", "busy"].map(|name| inner(account, &format!("/counts/{name}"))).join("/");
        table.row([
            member(account, "source"),
            member(account, "name"),
            member(account, "standing"),
            seconds(&member(account, "returns_at")),
            of(account, "in_flight", "max_concurrent"),
            limited(account, "rpm_used", "requests_per_minute"),
            token(account),
            member(account, "sessions"),
            spent(account),
            headroom(account),
            if account.get("counts").is_some_and(Value::is_object) { counts } else { "-".to_owned() },
            last(account),
            moved(account),
        ]);
    }
    table
}

/// `3/5`; just the number where there is no limit.
fn of(value: &Value, used: &str, limit: &str) -> String {
    match value.get(limit).and_then(Value::as_u64) {
        Some(limit) if limit > 0 => format!("{}/{limit}", member(value, used)),
        Some(_) | None => member(value, used),
    }
}

/// `41/60`; nothing where there is no limit, since it isn't counted then.
fn limited(value: &Value, used: &str, limit: &str) -> String {
    match value.get(limit).and_then(Value::as_u64) {
        Some(limit) if limit > 0 => format!("{}/{limit}", member(value, used)),
        Some(_) | None => "-".to_owned(),
    }
}

fn token(account: &Value) -> String {
    let until = seconds(&inner(account, "/token/expires_at"));
    let expired = account.pointer("/token/expired") == Some(&Value::Bool(true));
    if expired { format!("{until} (expired)") } else { until }
}

/// `1.25/5 USD`: what the session has spent that has spent the most, of what it may.
fn spent(account: &Value) -> String {
    let usd = |name: &str| account.pointer(&format!("/session_spend/{name}")).and_then(Value::as_f64);
    match (usd("most_usd"), usd("limit_usd")) {
        (Some(most), Some(limit)) => format!("{most:.2}/{limit} USD"),
        _ => "-".to_owned(),
    }
}

/// `5h 42%, 7d 100%`.
pub(super) fn headroom(account: &Value) -> String {
    let one = |window: &Value| {
        let used = window.get("used_percent").and_then(Value::as_f64);
        let used = used.map_or_else(|| "used up".to_owned(), |used| format!("{used:.0}%"));
        format!("{} {used}", member(window, "name"))
    };
    let all: Vec<String> = list(account, "headroom").iter().map(one).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

/// What the last attempts came to: `48 of 50`, those that went well.
fn last(account: &Value) -> String {
    let last = list(account, "last");
    let well = last.iter().filter(|ended| member(ended, "kind") == "success").count();
    if last.is_empty() { "-".to_owned() } else { format!("{well} of {}", last.len()) }
}

/// `3 concurrency, 1 429`.
fn moved(value: &Value) -> String {
    let one = |moved: &Value| format!("{} {}", member(moved, "requests"), member(moved, "why"));
    let all: Vec<String> = list(value, "moved").iter().map(one).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

/// What keeps an account out, with what caused it.
fn notes(account: &Value) -> Vec<String> {
    let name = format!("{} ({})", member(account, "source"), member(account, "name"));
    let mut notes = Vec::new();
    for reason in list(account, "reasons") {
        notes.push(format!("{name}: {}", member(reason, "text")));
        notes.extend(evidence(reason));
    }
    notes
}

/// What caused a reason, indented.
pub(super) fn evidence(reason: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for line in list(reason, "evidence") {
        lines.push(format!("    {} {}", seconds(&member(line, "at")), member(line, "text")));
        lines.extend(list(line, "details").iter().map(|detail| format!("        {}", super::output::plain(detail))));
    }
    lines
}

fn told(pool: &Value) -> Vec<String> {
    let standing = pool.get("standing").and_then(Value::as_object);
    let words: Vec<String> = standing
        .into_iter()
        .flatten()
        .map(|(word, accounts)| format!("{accounts} {}", word.replace('_', " ")))
        .collect();
    let mut lines = vec![format!(
        "pool {}: {} {} ({}); {} in flight, {}{} sessions",
        member(pool, "group"),
        member(pool, "accounts"),
        if member(pool, "accounts") == "1" { "account" } else { "accounts" },
        words.join(", "),
        of(pool, "in_flight", "max_concurrent"),
        match limited(pool, "rpm_used", "requests_per_minute") {
            none if none == "-" => String::new(),
            rpm => format!("{rpm} attempts of this minute, "),
        },
        member(pool, "sessions"),
    )];
    if !list(pool, "moved").is_empty() {
        lines.push(format!("    moved: {}", moved(pool)));
    }
    if let Some(advice) = pool.get("advice").and_then(Value::as_str) {
        lines.push(format!("    {advice}"));
    }
    lines
}

/// A time to the second.
fn seconds(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({
            "accounts": [
                {
                    "source": "account:1", "name": "max", "standing": "full", "returns_at": null, "in_flight": 5,
                    "max_concurrent": 5, "rpm_used": 12, "requests_per_minute": 0, "sessions": 4,
                    "session_spend": {"window_s": 18_000, "limit_usd": 5.0, "most_usd": 1.25, "total_usd": 2.0, "sessions": 2},
                    "token": {"expires_at": "2026-11-30T18:00:00.000000Z", "expired": false},
                    "headroom": [{"name": "5h", "used_percent": 42.4}, {"name": "7d", "used_percent": null}],
                    "counts": {"ok": 40, "fail": 0, "busy": 1},
                    "last": [{"kind": "success"}, {"kind": "rate_limited"}],
                    "moved": [{"why": "concurrency", "requests": 3, "last": []}],
                    "reasons": [{"text": "it is full: 5 of 5 in flight; it serves again when a request ends", "evidence": []}],
                },
                {
                    "source": "account:2", "name": "spare", "standing": "out", "returns_at": null, "in_flight": 0,
                    "max_concurrent": null, "rpm_used": 0, "requests_per_minute": 20, "sessions": 0,
                    "token": {"expires_at": "2026-11-30T10:00:00.000000Z", "expired": true}, "headroom": [],
                    "counts": null, "last": [], "moved": [],
                    "reasons": [{"text": "a verdict disabled it because of auth_invalid; it takes another login", "evidence": [
                        {"at": "2026-11-30T10:00:01.5Z", "text": "credential can't be refreshed: it takes another login",
                         "details": ["said: invalid_grant"]},
                    ]}],
                },
            ],
            "pools": [{
                "group": "default", "accounts": 2, "standing": {"full": 1, "out": 1}, "in_flight": 5,
                "max_concurrent": null, "rpm_used": 12, "requests_per_minute": null, "sessions": 4,
                "moved": [{"why": "concurrency", "requests": 3}, {"why": "disabled", "requests": 1}],
                "advice": "most were moved because accounts were full: add accounts, or raise max_concurrent",
            }],
        })
    }

    #[test]
    fn accounts_and_pools_are_told() {
        let answer = answer();
        let mut text = vec![accounts(&answer).render()];
        text.extend(list(&answer, "accounts").iter().flat_map(notes));
        text.extend(list(&answer, "pools").iter().flat_map(told));
        insta::assert_snapshot!(text.join("\n"));
    }
}
