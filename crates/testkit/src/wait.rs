//! The one way of waiting: for the thing itself, and not for ever.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Waits until `look` gives something. `Err` tells what is there instead; the last one stands in the panic.
///
/// # Panics
/// When nothing came within `deadline`.
pub async fn wait_until<T, E: Display>(
    deadline: Duration,
    what: impl Display,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let end = Instant::now() + deadline;
    loop {
        let last = match look().await {
            Ok(found) => return found,
            Err(last) => last,
        };
        if Instant::now() >= end {
            panic!("not within {deadline:?}: {what}\nlast seen: {last}");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// `Ok` where the condition holds; what is there instead otherwise. For [`wait_until`].
///
/// # Errors
/// What `seen` says, where the condition doesn't hold.
pub fn until<T: Display>(holds: bool, seen: impl FnOnce() -> T) -> Result<(), T> {
    if holds { Ok(()) } else { Err(seen()) }
}
