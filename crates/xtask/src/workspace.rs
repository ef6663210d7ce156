//! The workspace's folder and files, and how other programs are run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Folders that hold no source of ours.
const SKIPPED: [&str; 5] = ["target", "node_modules", "dist", "snapshots", "golden"];

/// The workspace's folder: the nearest above the current one whose `Cargo.toml` has a `[workspace]`.
pub(crate) fn root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current folder can't be found out")?;
    let is_root = |folder: &&Path| manifest(&folder.join("Cargo.toml")).is_ok_and(|m| m.contains_key("workspace"));
    match here.ancestors().find(is_root) {
        Some(root) => Ok(root.to_owned()),
        None => bail!("no workspace above {}", here.display()),
    }
}

/// Reads a `Cargo.toml`.
pub(crate) fn manifest(path: &Path) -> Result<toml::Table> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("cannot understand {}", path.display()))
}

/// Folders of crates: those below `crates`, and `tests`. The name is the folder's.
pub(crate) fn crate_folders(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let crates = root.join("crates");
    let mut folders = Vec::new();
    for entry in fs::read_dir(&crates).with_context(|| format!("cannot read {}", crates.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') {
            folders.push((name, path));
        }
    }
    let tests = root.join("tests");
    if tests.join("Cargo.toml").is_file() {
        folders.push(("tests".to_owned(), tests));
    }
    folders.sort();
    Ok(folders)
}

/// All files below `folder` with one of these extensions, sorted; generated and fetched ones are left out.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                found.extend(files(&path, extensions)?);
            }
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A cargo command in the workspace.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root);
    command
}

/// Runs a command with our own output; an error when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words = words.join(" ");
    let status = command.status().with_context(|| format!("cannot run {words}"))?;
    if !status.success() {
        bail!("{words}: {status}");
    }
    Ok(())
}
