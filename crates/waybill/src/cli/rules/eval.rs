//! `waybill rules eval`: what rules say of recorded failures. Nothing is asked of a server.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value};
use waybill_domain::verdict::rule::RecordedCase;
use waybill_domain::verdict::{Report, RuleSet, classify};
use waybill_upstream::observe::recorded;

/// Longest line that is read, in bytes.
const MAX_LINE: usize = 4 << 20;

/// Print the verdict on each recorded failure of a file.
#[derive(Debug, Args)]
pub struct Eval {
    /// A failure a line, as JSON: `provider_hint`, `protocol`, `where`, `status`, `headers`, `body`, `facts`,
    /// `observed_at`, `committed`. Other fields aren't looked at, but for `id`, which is repeated.
    file: PathBuf,
    /// The rule set as JSON; without it the shipped one.
    #[arg(long)]
    rules: Option<PathBuf>,
}

impl Eval {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let own = self.rules.as_deref().map(read_rules).transpose()?;
        let rules = own.as_ref().unwrap_or_else(|| RuleSet::builtin());
        let file = File::open(&self.file).with_context(|| format!("can't open {}", self.file.display()))?;
        let mut out = std::io::stdout().lock();
        let mut wrong = 0_u64;
        for (number, line) in (1_u64..).zip(BufReader::new(file).split(b'\n')) {
            let line = line.with_context(|| format!("can't read {}", self.file.display()))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            match judged(rules, &line) {
                Ok(verdict) => writeln!(out, "{verdict}")?,
                Err(error) => {
                    wrong += 1;
                    writeln!(std::io::stderr(), "{}:{number}: {error:#}", self.file.display())?;
                }
            }
        }
        if wrong > 0 {
            bail!("{wrong} lines of {} are no recorded failures", self.file.display());
        }
        Ok(())
    }
}

fn read_rules(path: &Path) -> anyhow::Result<RuleSet> {
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    RuleSet::from_json(&text).with_context(|| path.display().to_string())
}

/// The verdict on one line, as one line.
fn judged(rules: &RuleSet, line: &[u8]) -> anyhow::Result<String> {
    if line.len() > MAX_LINE {
        bail!("longer than {MAX_LINE} bytes");
    }
    let object: Map<String, Value> = serde_json::from_slice(line).context("not a JSON object")?;
    let case = RecordedCase::of_object(&object)?;
    let seen = recorded(&case);
    let report = Report::of(&classify(rules, &seen), &seen);
    let mut told = Map::new();
    if let Some(id) = object.get("id") {
        told.insert("id".to_owned(), id.clone());
    }
    if let Value::Object(fields) = serde_json::to_value(&report)? {
        told.extend(fields);
    }
    Ok(Value::Object(told).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_a_verdict_in_the_catalogues_fields() {
        let line = br#"{"id":"x","kind":"success","provider_hint":"openai","where":"status","status":401,
            "body":{"error":{"code":"invalid_api_key","message":"m"}}}"#;
        let told: Value = serde_json::from_str(&judged(RuleSet::builtin(), line).unwrap()).unwrap();
        assert_eq!(
            (&told["id"], &told["kind"], &told["block_scope"]),
            (&"x".into(), &"auth_invalid".into(), &"key".into())
        );
        assert_eq!((&told["client_status"], &told["block_seconds"]), (&502.into(), &Value::Null));
    }

    #[test]
    fn what_is_no_recorded_failure_is_told() {
        let fault = |line: &[u8]| format!("{:#}", judged(RuleSet::builtin(), line).unwrap_err());
        assert!(fault(b"[]").starts_with("not a JSON object"));
        assert!(fault(br#"{"status":"many"}"#).contains("many"));
        assert!(fault(br#"{"where":"nowhere"}"#).contains("nowhere"));
    }
}
