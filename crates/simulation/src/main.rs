//! `simulate A..B [--bug NAME] [--jobs N]` runs seeds and tells which fail; `simulate --seed N` tells one seed's course.

use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use waybill_simulation::{Bug, Figures, Outcome, run};

const USAGE: &str = "usage: simulate (A..B | --seed N) [--bug NAME] [--jobs N]";

struct Asked {
    seeds: Range<u64>,
    verbose: bool,
    bug: Option<Bug>,
    jobs: usize,
}

fn asked() -> Result<Asked, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut asked = Asked { seeds: 0..0, verbose: false, bug: None, jobs };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| USAGE.to_owned());
        match word.as_str() {
            "--seed" => {
                let seed: u64 = value()?.parse().map_err(|_| USAGE.to_owned())?;
                asked.seeds = seed..seed + 1;
                asked.verbose = true;
            }
            "--bug" => asked.bug = Some(value()?.parse()?),
            "--jobs" => asked.jobs = value()?.parse().map_err(|_| USAGE.to_owned())?,
            range => {
                let ends = range.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
                asked.seeds = ends.ok_or_else(|| USAGE.to_owned())?;
            }
        }
    }
    if asked.seeds.is_empty() || asked.jobs == 0 { Err(USAGE.to_owned()) } else { Ok(asked) }
}

fn main() -> ExitCode {
    match asked() {
        Ok(asked) => simulate(&asked),
        Err(fault) => {
            let _unheard = writeln!(std::io::stderr(), "{fault}");
            ExitCode::FAILURE
        }
    }
}

/// Each run has a thread of its own; several go on side by side.
fn simulate(asked: &Asked) -> ExitCode {
    let began = Instant::now();
    let next = AtomicU64::new(asked.seeds.start);
    let told = Mutex::new((Vec::new(), Figures::default()));
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !asked.seeds.contains(&seed) {
                        return;
                    }
                    let outcome = run(seed, asked.bug, asked.verbose);
                    let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    told.1 = told.1.plus(outcome.figures);
                    if tell(&outcome, asked.verbose) {
                        told.0.push(seed);
                    }
                }
            });
        }
    });
    let (mut failed, figures) = told.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failed.sort_unstable();
    let count = asked.seeds.end - asked.seeds.start;
    let seconds = began.elapsed().as_secs_f64();
    let _unheard = writeln!(std::io::stdout(), "{count} seeds in {seconds:.1} s: {figures:?}");
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    let _unheard = writeln!(std::io::stdout(), "{} failed: {failed:?}", failed.len());
    ExitCode::FAILURE
}

/// Tells how a run went; says whether it failed.
fn tell(outcome: &Outcome, verbose: bool) -> bool {
    let failed = !outcome.violations.is_empty();
    let mut out = std::io::stdout();
    if failed {
        let _unheard = writeln!(out, "seed {} failed:\n  {}", outcome.seed, outcome.violations.join("\n  "));
    }
    if verbose {
        let _unheard = writeln!(out, "seed {}: {:016x} {:?}", outcome.seed, outcome.number, outcome.figures);
    }
    failed
}
