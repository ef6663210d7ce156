//! The arrows between crates, checked against the table.

mod table;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;
use table::{GUARDED, Rule, TEST_CRATES, rule};

/// Checks every crate; names each fault.
pub(crate) fn run(root: &Path) -> Result<()> {
    let faults = faults(root)?;
    if faults.is_empty() {
        println!("layers: {} crates, no forbidden arrow", workspace::crate_folders(root)?.len());
        return Ok(());
    }
    for fault in &faults {
        println!("layers: {fault}");
    }
    bail!(
        "{} forbidden; the table is docs/ARCHITECTURE.md's and stands in crates/xtask/src/layers/table.rs",
        faults.len()
    );
}

/// What a dependency is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// The crate itself or its build script.
    Product,
    /// Its tests.
    Tests,
}

/// One dependency of a crate.
#[derive(Debug, PartialEq, Eq)]
struct Arrow {
    to: String,
    purpose: For,
}

fn faults(root: &Path) -> Result<Vec<String>> {
    let shared = workspace::manifest(&root.join("Cargo.toml"))?;
    let shared = shared.get("workspace").and_then(|w| w.get("dependencies")).and_then(toml::Value::as_table);
    let empty = toml::Table::new();
    let shared = shared.unwrap_or(&empty);
    let mut faults = Vec::new();
    for (name, folder) in workspace::crate_folders(root)? {
        let manifest = workspace::manifest(&folder.join("Cargo.toml"))?;
        let Some(rule) = rule(&name) else {
            faults.push(format!("crate `{name}` is not in the table: an ADR first"));
            continue;
        };
        let package = manifest.get("package").and_then(|p| p.get("name")).and_then(toml::Value::as_str);
        let expected = table::package_of(&name);
        if package != Some(expected.as_str()) {
            faults.push(format!("crate `{name}` must be the package `{expected}`"));
        }
        if manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool) != Some(true) {
            faults.push(format!("crate `{name}` doesn't take the workspace's lints"));
        }
        for arrow in arrows(&manifest, shared).with_context(|| format!("in {}", folder.display()))? {
            faults.extend(forbidden(&name, rule, &arrow));
        }
    }
    Ok(faults)
}

/// All dependencies, those for single targets included; packages by their real names.
fn arrows(manifest: &toml::Table, shared: &toml::Table) -> Result<Vec<Arrow>> {
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    let kinds =
        [("dependencies", For::Product), ("build-dependencies", For::Product), ("dev-dependencies", For::Tests)];
    let mut arrows = Vec::new();
    for table in tables {
        for (kind, purpose) in kinds {
            let Some(dependencies) = table.get(kind) else { continue };
            let dependencies = dependencies.as_table().with_context(|| format!("`{kind}` is no table"))?;
            for (key, value) in dependencies {
                arrows.push(Arrow { to: real_name(key, value, shared), purpose });
            }
        }
    }
    Ok(arrows)
}

/// A dependency may be renamed where it is used, or in the workspace's table.
fn real_name(key: &str, value: &toml::Value, shared: &toml::Table) -> String {
    let renamed = |value: &toml::Value| value.get("package").and_then(toml::Value::as_str).map(str::to_owned);
    let inherited = || shared.get(key).and_then(renamed);
    renamed(value).or_else(inherited).unwrap_or_else(|| key.to_owned())
}

fn forbidden(from: &str, rule: &Rule, arrow: &Arrow) -> Option<String> {
    let to = arrow.to.as_str();
    if let Some(ours) = table::crate_of(to) {
        let for_tests = arrow.purpose == For::Tests && TEST_CRATES.contains(&ours);
        let allowed = rule.any || for_tests || rule.may_use.contains(&ours);
        return (!allowed || ours == from).then(|| format!("forbidden arrow: {from} -> {ours}"));
    }
    let guard = GUARDED.iter().find(|guard| guard.package == to)?;
    if guard.only_in.contains(&from) {
        return None;
    }
    let only: BTreeSet<&str> = guard.only_in.iter().copied().collect();
    Some(format!("forbidden arrow: {from} -> {to} (only {} may use it)", Vec::from_iter(only).join(", ")))
}

#[cfg(test)]
mod tests;
