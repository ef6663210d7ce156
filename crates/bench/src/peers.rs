//! What the measured programs talk to: the upstream and the clients, on one thread that never sleeps while something is
//! measured.
//!
//! Who writes to a peer that sleeps wakes it, with an interrupt of the peer's core, and pays for that: in a virtual machine
//! as much as for a good part of a request. How often it happens depends on how soon the peers run out of work, so that it
//! would be the slower program that is charged with it, for each request, and the faster one hardly at all. What stands
//! behind a network is woken by nobody.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::runtime::Handle;

use crate::{process, upstream};

/// The upstream's address, and the thread for clients.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    /// Where the upstream is.
    pub(crate) upstream: SocketAddr,
    thread: Handle,
    /// The thread as the kernel knows it.
    id: i32,
}

impl Peers {
    /// Starts the thread and the upstream on it, at this port or any (0). They live as long as this process.
    ///
    /// # Errors
    /// No port, no thread.
    pub(crate) fn start(port: u16) -> Result<Self> {
        let (listener, upstream) = upstream::bind(port)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = runtime.handle().clone();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let serve = move || {
            let _heard = tell.send(rustix::thread::gettid().as_raw_nonzero().get());
            if let Err(error) = runtime.block_on(upstream::serve(listener)) {
                println!("bench: the upstream ended: {error:#}");
            }
        };
        std::thread::Builder::new().name("peers".to_owned()).spawn(serve)?;
        Ok(Self { upstream, thread, id: told.recv().context("the peers' thread")? })
    }

    /// From here on the thread goes before whatever else wants its core, where this user may ask for that: what stands
    /// behind a network doesn't wait for the log, the projector or the database of this machine. Low priorities of theirs
    /// don't do it, since the kernel shares a core out among sessions first.
    pub(crate) fn go_first(&self) {
        process::run_before_all(self.id);
    }

    /// Does what clients do on the peers' thread, which stays awake for it.
    ///
    /// # Errors
    /// What was to be done failed.
    pub(crate) async fn awake<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let awake = async move {
            tokio::select! {
                done = work => done,
                never = stay_awake() => match never {},
            }
        };
        self.at_ease(awake).await
    }

    /// Does what clients do on the peers' thread, which sleeps when there is nothing to do.
    ///
    /// # Errors
    /// What was to be done failed.
    pub(crate) async fn at_ease<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.thread.spawn(work).await.context("the peers")?
    }
}

/// Looks for work again and again.
async fn stay_awake() -> Infallible {
    loop {
        tokio::task::yield_now().await;
    }
}
