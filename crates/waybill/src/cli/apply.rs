//! `waybill apply`.

use std::path::{Path, PathBuf};

use clap::Args;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::Usage;
use super::api::Api;
use super::credential::{from_env, from_file, login};
use super::document;
use super::output::{list, member, plain};

/// Make configuration what a file says, in one step.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// The manifest, TOML or JSON; `-` is standard input.
    file: PathBuf,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let mut manifest = document::read(&self.file, "a manifest")?;
        supply_credentials(&mut manifest, self.file.parent())?;
        let dry_run = self.dry_run.then(|| "true".to_owned());
        let answer = api.post(&["apply"], &[("dry_run", dry_run)], &manifest).await?;
        if api.wants_json() {
            return Ok(api.out().json(&answer)?);
        }
        let mut out = api.out();
        let steps = list(&answer, "steps");
        for step in steps {
            out.line(&told(step))?;
        }
        let position = member(&answer, "position");
        let changes = if steps.len() == 1 { "change" } else { "changes" };
        match (steps.len(), self.dry_run) {
            (0, _) => out.line(&format!("nothing to change, as of position {position}"))?,
            (n, true) => out.line(&format!("{n} {changes}, not made: this was a dry run at position {position}"))?,
            (n, false) => out.line(&format!("{n} {changes} made, up to position {position}"))?,
        }
        let tokens = answer.get("tokens").and_then(Value::as_object);
        for (name, token) in tokens.into_iter().flatten() {
            out.line(&format!("key {name}, shown this once and never again: {}", plain(token)))?;
        }
        Ok(())
    }
}

/// Reads the credentials that the manifest names by variable or file; the API takes only the credentials themselves.
fn supply_credentials(manifest: &mut Value, folder: Option<&Path>) -> anyhow::Result<()> {
    for list in ["channels", "accounts"] {
        let entries = manifest.get_mut(list).and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
            let variable = entry.remove("credential_env");
            let file = entry.remove("credential_file");
            let credential = match (variable, file) {
                (Some(Value::String(name)), None) => from_env(&name)?,
                (None, Some(Value::String(path))) => from_file(&folder.unwrap_or(Path::new(".")).join(path))?,
                (None, None) => continue,
                (Some(_), _) | (None, Some(_)) => {
                    let message = format!("in {list}, credential_env or credential_file must be one text");
                    return Err(Usage(message).into());
                }
            };
            let plain = match list {
                "accounts" => login(&credential)?,
                _ => credential.expose_secret().into(),
            };
            entry.insert("credential".to_owned(), plain);
        }
    }
    Ok(())
}

/// A step in lines: what is done to which entity, and field by field.
fn told(step: &Value) -> String {
    let sign = match member(step, "change").as_str() {
        "created" => "+",
        "deleted" => "-",
        _ => "~",
    };
    let mut text = format!("{sign} {} {} {}", member(step, "entity"), member(step, "name"), member(step, "change"));
    for field in list(step, "fields") {
        let name = member(field, "field");
        match (field.get("old"), field.get("new")) {
            (None, Some(new)) => text.push_str(&format!("\n    {name}: {new}")),
            (Some(old), None) => text.push_str(&format!("\n    {name}: {old} → nothing")),
            (old, new) => {
                let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
                text.push_str(&format!("\n    {name}: {} → {}", shown(old), shown(new)));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::document::parse;
    use super::*;

    #[test]
    fn a_manifest_may_be_toml_or_json() {
        let toml = "[[channels]]\nname = \"a\"\nmodels = [\"m\", { name = \"x\", upstream = \"y\" }]\n";
        let json = r#" {"channels": [{"name": "a", "models": ["m", {"name": "x", "upstream": "y"}]}]}"#;
        assert_eq!(parse(toml).unwrap(), parse(json).unwrap());
        assert!(parse("[[channels").is_err());
    }

    #[test]
    fn credentials_come_from_files_beside_the_manifest() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "sk-1\n").unwrap();
        let mut manifest = json!({"channels": [{"name": "a", "credential_file": "key"}, {"name": "b"}]});
        supply_credentials(&mut manifest, Some(folder.path())).unwrap();
        assert_eq!(manifest, json!({"channels": [{"name": "a", "credential": "sk-1"}, {"name": "b"}]}));
        std::fs::write(folder.path().join("login.json"), r#"{"access_token": "at"}"#).unwrap();
        let accounts = [("login.json", json!({"access_token": "at"})), ("key", json!("sk-1"))];
        for (file, login) in accounts {
            let mut manifest = json!({"accounts": [{"name": "a", "credential_file": file}]});
            supply_credentials(&mut manifest, Some(folder.path())).unwrap();
            assert_eq!(manifest, json!({"accounts": [{"name": "a", "credential": login}]}));
        }
        let mut manifest = json!({"channels": [{"name": "a", "credential_env": "WAYBILL_TEST_NO_SUCH_VARIABLE"}]});
        let error = supply_credentials(&mut manifest, None).unwrap_err();
        assert!(error.to_string().contains("WAYBILL_TEST_NO_SUCH_VARIABLE"));
    }

    #[test]
    fn a_step_is_told_field_by_field() {
        let step = json!({"entity": "channel", "id": "1", "name": "a", "change": "edited",
            "fields": [{"field": "weight", "old": 1, "new": 5}, {"field": "credential", "new": "fp"}]});
        assert_eq!(told(&step), "~ channel a edited\n    weight: 1 → 5\n    credential: \"fp\"");
    }
}
