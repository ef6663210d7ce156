//! Asks a program for its version.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Three numbers; what a program doesn't tell is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// The first word of `text` that begins with a digit, perhaps after a `v`: `nats-server: v2.15.1`,
    /// `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`, `postgres (PostgreSQL) 19beta1`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let word = text
            .split(|c: char| c.is_whitespace() || c == '(' || c == ')')
            .map(|word| word.strip_prefix('v').unwrap_or(word))
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        let mut numbers = word.split('.').map_while(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part.get(..digits)?.parse().ok()
        });
        Some(Self {
            major: numbers.next()?,
            minor: numbers.next().unwrap_or_default(),
            patch: numbers.next().unwrap_or_default(),
        })
    }
}

/// Runs `program --version`; says why that gives none.
pub(super) async fn of(program: &Path, deadline: Duration) -> Result<Version, String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(deadline, command.output())
        .await
        .map_err(|_| format!("it didn't tell its version within {} s", deadline.as_secs()))?
        .map_err(|fault| format!("it can't be run: {fault}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Version::parse(&text).ok_or_else(|| {
        let said = if text.trim().is_empty() { String::from_utf8_lossy(&output.stderr) } else { text };
        format!("it tells no version: {:?}", said.trim().chars().take(200).collect::<String>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(u32, u32, u32)>) {
        assert_eq!(Version::parse(text), expected.map(|(major, minor, patch)| Version { major, minor, patch }));
    }

    #[test]
    fn versions_are_read_from_what_programs_say() {
        check("nats-server: v2.15.1\n", Some((2, 15, 1)));
        check("nats-server: v2.9.10-beta.3", Some((2, 9, 10)));
        check("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", Some((15, 14, 0)));
        check("postgres (PostgreSQL) 19beta1", Some((19, 0, 0)));
        check("no such thing", None);
        check("", None);
    }
}
