//! What happened in a run, in its order, as a number and, where asked for, as lines on the standard output.

use std::fmt::{Arguments, Write as _};
use std::io::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Folds bytes into a number (FNV-1a).
#[must_use]
pub fn fold(number: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(number, |number, byte| (number ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The course of a run. Two runs with one number went the same way.
#[derive(Debug)]
pub struct Trace {
    origin: Instant,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    text: String,
    lines: bool,
}

impl Trace {
    /// A trace that begins now, with lines if they are wanted.
    #[must_use]
    pub fn new(lines: bool) -> Self {
        let held = Held { number: 0xcbf2_9ce4_8422_2325, text: String::new(), lines };
        Self { origin: Instant::now(), held: Mutex::new(held) }
    }

    /// Something happened now.
    pub fn note(&self, what: Arguments<'_>) {
        self.note_with(what, &[]);
    }

    /// Something happened now; the bytes count for the number and aren't shown.
    pub fn note_with(&self, what: Arguments<'_>, bytes: &[u8]) {
        let at = self.at();
        let mut held = self.held.lock();
        let held = &mut *held;
        held.text.clear();
        // Writing into a String doesn't fail.
        let written = write!(held.text, "{}.{:06} {what}", at.as_secs(), at.subsec_micros());
        debug_assert!(written.is_ok(), "a String takes everything");
        held.number = fold(fold(held.number, held.text.as_bytes()), bytes);
        if held.lines {
            let _unheard = writeln!(std::io::stdout(), "{}", held.text);
        }
    }

    /// Time since the run began.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The number so far.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.held.lock().number
    }
}
