//! The pure crates: they build alone, and their product code names no clock, no input or output, no randomness. The
//! compiler can't tell the last part, since one feature of a shared dependency is on for all; a look at the text can.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, cargo};

const PURE: [&str; 3] = ["event", "wire", "domain"];

/// What pure code doesn't name.
const BANNED: [&str; 17] = [
    "SystemTime::now",
    "Instant::now",
    "Utc::now",
    "Local::now",
    "now_v1",
    "now_v6",
    "now_v7",
    "new_v4",
    "RandomState",
    "thread_rng",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "tokio::",
    "rand::",
];

/// Checks all pure crates.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut faults = Vec::new();
    for name in PURE {
        let folder = root.join("crates").join(name).join("src");
        for path in workspace::files(&folder, &["rs"])? {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let shown = path.strip_prefix(root).unwrap_or(&path).display();
            faults
                .extend(banned_in(&text, is_test(&path)).into_iter().map(|(at, word)| format!("{shown}:{at}: {word}")));
        }
    }
    for fault in &faults {
        println!("purity: {fault}");
    }
    if !faults.is_empty() {
        bail!("pure crates are handed time, input and lots; they don't fetch them");
    }
    for name in PURE {
        // One at a time: together they would share features.
        workspace::run(cargo(root, &["check", "--quiet", "--lib", "--package"]).arg(format!("waybill-{name}")))?;
    }
    println!("purity: {} crates are pure", PURE.len());
    Ok(())
}

fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "tests") || path.components().any(|part| part.as_os_str() == "tests")
}

/// Line numbers and words; tests at the end of a file and comments are passed over.
fn banned_in(text: &str, test: bool) -> Vec<(usize, &'static str)> {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = product.lines().enumerate().filter(|(_, line)| !test && !line.trim_start().starts_with("//"));
    lines
        .flat_map(|(at, line)| BANNED.iter().filter(|word| line.contains(**word)).map(move |word| (at + 1, *word)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(usize, &str)]) {
        assert_eq!(banned_in(text, false), expected);
    }

    #[test]
    fn product_code_is_looked_at_and_nothing_else() {
        check("use std::collections::BTreeMap;\n", &[]);
        check("fn f() {\n    let t = Utc::now();\n}\n", &[(2, "Utc::now")]);
        check("// Utc::now is not used\n", &[]);
        check("fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n", &[]);
        assert_eq!(banned_in("use std::fs;", true), []);
    }
}
