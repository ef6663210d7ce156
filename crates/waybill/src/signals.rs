//! The signals that ask a process to stop.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Installs handlers for SIGTERM and SIGINT and gives the task that cancels `stop` at the first of them.
///
/// # Errors
/// A handler can't be installed.
pub fn cancel_when_asked(stop: CancellationToken) -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = stop.cancelled() => {}
        }
        stop.cancel();
    })
}
