//! The length of source files: over 800 lines is an error, over 500 is listed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;

const TALK: usize = 500;
const SPLIT: usize = 800;
const EXTENSIONS: [&str; 6] = ["rs", "ts", "tsx", "css", "py", "mjs"];

/// Checks all source files.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut long = Vec::new();
    let mut counted = 0;
    for (_, folder) in workspace::crate_folders(root)? {
        for path in workspace::files(&folder, &EXTENSIONS)? {
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            counted += 1;
            if lines > TALK {
                long.push((lines, path));
            }
        }
    }
    long.sort_by(|a, b| b.cmp(a));
    for (lines, path) in &long {
        println!("sizes: {lines} lines: {}", path.strip_prefix(root).unwrap_or(path).display());
    }
    let too_long = long.iter().filter(|(lines, _)| *lines > SPLIT).count();
    if too_long > 0 {
        bail!("{too_long} of {counted} files are over {SPLIT} lines: split them");
    }
    println!("sizes: {counted} files, {} over {TALK} lines", long.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: usize, fine: bool) {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("crates/x/src");
        fs::create_dir_all(&src).unwrap();
        fs::write(src.join("lib.rs"), "\n".repeat(lines)).unwrap();
        assert_eq!(run(dir.path()).is_ok(), fine, "{lines} lines");
    }

    #[test]
    fn a_file_may_have_800_lines() {
        check(10, true);
        check(501, true);
        check(800, true);
        check(801, false);
    }
}
