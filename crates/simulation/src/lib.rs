//! The whole fleet in one process and on one thread: replicas, projectors and upkeep are the product's own, over the journal
//! in memory, with a time that stands still but for its timers and everything that goes wrong drawn from one seed. No
//! fold, no verdict and no limit of the product is repeated here, and no network, database or wall clock is used.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a harness ends the run that it is part of, with all that helps to see why"
)]

mod admin;
mod bug;
mod chance;
mod check;
mod client;
mod fleet;
mod freeze;
mod ground;
mod link;
mod process;
mod projector;
mod proxy;
mod secrets;
mod setting;
mod tap;
mod trace;
mod upkeep;
mod upstream;

use std::panic::catch_unwind;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

pub use bug::Bug;
pub use check::Figures;
pub use setting::Setting;

use check::Rested;
use fleet::Fleet;
use ground::Ground;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Names the course: two runs with one number went the same way.
    pub number: u64,
    /// What must not be and was.
    pub violations: Vec<String>,
    /// What the run amounted to.
    pub figures: Figures,
}

/// The longest time a run may take, on its own clock. None comes near it that doesn't stand still for ever.
const ENDS_WITHIN: Duration = Duration::from_secs(3_600);

/// Runs one seed; with `lines` its course goes to the standard output. What dies within counts as a violation.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, lines: bool) -> Outcome {
    let ended = catch_unwind(|| {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let outcome = runtime.block_on(async { timeout(ENDS_WITHIN, Box::pin(course(seed, bug, lines))).await });
        runtime.shutdown_background();
        outcome
    });
    let violation = match ended {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(_)) => "the run doesn't end".to_owned(),
        Err(died) => {
            let text = died.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| died.downcast_ref::<&str>().copied()).unwrap_or("without a word");
            format!("the run died: {text}")
        }
    };
    Outcome { seed, number: 0, violations: vec![violation], figures: Figures::default() }
}

async fn course(seed: u64, bug: Option<Bug>, lines: bool) -> Outcome {
    let ground = Ground::new(seed, Setting::of(seed), bug, lines);
    ground.trace.note(format_args!("{:?}", ground.setting));
    let mut fleet = Fleet::new(&ground);
    fleet.live().await;
    fleet.rest().await;
    let rested = Rested::of(&fleet);
    fleet.stop().await;
    let figures = check::check(&fleet, &rested);
    let (number, violations) = (ground.trace.number(), ground.violations());
    Outcome { seed, number, violations, figures }
}
