//! What the handlers of the API share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::{LogTime, ProducerId};
use waybill_journal::{Journal, Log};
use waybill_secret::{Peppers, Vault};
use waybill_upstream::Dispatcher;

use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::edit::Editor;
use crate::feed::Feed;
use crate::fold::Fold;
use crate::live::Live;
use crate::reads::SharedReads;

/// What the admin role is made of.
pub struct Parts {
    /// The log and the keyed state.
    pub journal: Journal,
    /// Seals and opens credentials.
    pub vault: Arc<Vault>,
    /// Hash tokens.
    pub peppers: Arc<Peppers>,
    /// The read model.
    pub reads: SharedReads,
    /// Sends what an administrator tries at a channel.
    pub dispatcher: Dispatcher,
    /// The role's name in the log.
    pub producer: ProducerId,
    /// The time of the log.
    pub clock: Clock,
}

struct Inner {
    log: Arc<dyn Log>,
    fold: Fold,
    editor: Editor,
    credentials: Credentials,
    peppers: Arc<Peppers>,
    reads: SharedReads,
    live: Live,
    feed: Feed,
    dispatcher: Dispatcher,
    clock: Clock,
    stop: CancellationToken,
}

/// The running role. Cheap to clone.
#[derive(Clone)]
pub struct State {
    inner: Arc<Inner>,
}

impl State {
    /// Starts following the log, the sealed credentials and the live state of sources, in tasks of `tasks` that end
    /// with `stop`.
    #[must_use]
    pub fn start(parts: Parts, tasks: &TaskTracker, stop: CancellationToken) -> Self {
        let Parts { journal, vault, peppers, reads, dispatcher, producer, clock } = parts;
        let Journal { log, keyed } = journal;
        let fold = Fold::start(Arc::clone(&log), tasks, stop.clone());
        let credentials = Credentials::new(Arc::clone(&log), vault);
        credentials.follow(tasks, stop.clone());
        let live = Live::start(keyed, Arc::clone(&clock), tasks, stop.clone());
        let editor = Editor::new(Arc::clone(&log), fold.clone(), producer, Arc::clone(&clock));
        let feed = Feed::new(Arc::clone(&log), tasks.clone(), stop.clone());
        let inner = Inner { log, fold, editor, credentials, peppers, reads, live, feed, dispatcher, clock, stop };
        Self { inner: Arc::new(inner) }
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.inner.log
    }

    /// The own fold of configuration.
    #[must_use]
    pub fn fold(&self) -> &Fold {
        &self.inner.fold
    }

    /// Makes edits.
    #[must_use]
    pub fn editor(&self) -> &Editor {
        &self.inner.editor
    }

    /// Seals and opens credentials.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.inner.credentials
    }

    /// Hash tokens.
    #[must_use]
    pub fn peppers(&self) -> &Arc<Peppers> {
        &self.inner.peppers
    }

    /// The read model.
    #[must_use]
    pub fn reads(&self) -> &SharedReads {
        &self.inner.reads
    }

    /// The live state of sources.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.inner.live
    }

    /// The live feed.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.inner.feed
    }

    /// Sends what an administrator tries at a channel.
    #[must_use]
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.inner.dispatcher
    }

    /// The time of the log.
    #[must_use]
    pub fn now(&self) -> LogTime {
        (self.inner.clock)()
    }

    /// Cancelled when the role stops; what streams without end ends with it.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.inner.stop.clone()
    }
}
