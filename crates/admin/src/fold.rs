//! The admin role's own fold of configuration: commands are decided on it, so that edits need neither Postgres nor a
//! projector. It follows the log in a task of its own and publishes a new view after each burst of edits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::catalog::{Catalog, UnknownEdit, apply};
use waybill_event::{ConfigPosition, decode_one};
use waybill_journal::{Log, Message, ReadError, Start, Stream};

/// Edits folded before a view is published: bounds the delay of a view while catching up.
const BURST: usize = 256;
/// Pause before the log is asked for its bounds again while it is out of reach.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// What the fold holds at a moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The catalogue.
    pub catalog: Arc<Catalog>,
    /// Whether everything that was in the log when the fold began is folded.
    pub loaded: bool,
    /// Why nothing comes from the log, where that is so.
    pub fault: Option<String>,
}

/// A handle on the fold. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fold {
    views: watch::Receiver<View>,
}

/// The fold didn't reach a position in time.
#[derive(Debug, Clone, thiserror::Error)]
#[error("configuration is folded up to {reached}, not yet to {wanted}")]
pub struct Behind {
    /// The position that was waited for.
    pub wanted: ConfigPosition,
    /// The position reached.
    pub reached: ConfigPosition,
}

impl Fold {
    /// Starts the fold in a task of `tasks`; it ends with `stop`.
    #[must_use]
    pub fn start(log: Arc<dyn Log>, tasks: &TaskTracker, stop: CancellationToken) -> Self {
        let (sender, views) = watch::channel(View::default());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = follow(log, sender) => {}
            }
        });
        Self { views }
    }

    /// What it holds now.
    #[must_use]
    pub fn view(&self) -> View {
        self.views.borrow().clone()
    }

    /// Waits until `position` is folded, or progress stopped for good, and gives the catalogue.
    ///
    /// # Errors
    /// [`Behind`] when `deadline` passes first.
    pub async fn at(&self, position: ConfigPosition, deadline: Duration) -> Result<Arc<Catalog>, Behind> {
        let mut views = self.views.clone();
        let there = |view: &View| view.catalog.position >= position || view.catalog.blocked_by.is_some();
        match tokio::time::timeout(deadline, views.wait_for(there)).await {
            Ok(Ok(view)) => Ok(Arc::clone(&view.catalog)),
            Ok(Err(_)) | Err(_) => Err(Behind { wanted: position, reached: self.view().catalog.position }),
        }
    }

    /// Waits until the fold is loaded.
    ///
    /// # Errors
    /// [`Behind`] when `deadline` passes first.
    pub async fn loaded(&self, deadline: Duration) -> Result<Arc<Catalog>, Behind> {
        let mut views = self.views.clone();
        match tokio::time::timeout(deadline, views.wait_for(|view| view.loaded)).await {
            Ok(Ok(view)) => Ok(Arc::clone(&view.catalog)),
            Ok(Err(_)) | Err(_) => {
                let reached = self.view().catalog.position;
                Err(Behind { wanted: ConfigPosition(reached.0 + 1), reached })
            }
        }
    }
}

async fn follow(log: Arc<dyn Log>, views: watch::Sender<View>) {
    let there_at_start = loop {
        match log.bounds(Stream::Config).await {
            Ok(bounds) => break ConfigPosition(bounds.last),
            Err(error) => {
                tracing::warn!(%error, "configuration can't be read");
                views.send_modify(|view| view.fault = Some(error.to_string()));
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    };
    let mut catalog = Catalog::default();
    views.send_modify(|view| {
        view.fault = None;
        view.loaded = there_at_start == ConfigPosition(0);
    });
    let mut bursts = log.follow(Stream::Config, Start::At(1)).ready_chunks(BURST);
    while let Some(burst) = bursts.next().await {
        let mut fault = None;
        for item in burst {
            fault = fold(&mut catalog, item).err().map(|error| error.to_string());
        }
        let loaded = catalog.position >= there_at_start || catalog.blocked_by.is_some();
        views.send_modify(|view| {
            view.catalog = Arc::new(catalog.clone());
            view.loaded |= loaded;
            view.fault = fault;
        });
    }
}

fn fold(catalog: &mut Catalog, item: Result<Message, ReadError>) -> Result<(), ReadError> {
    let message = item.inspect_err(|error| tracing::warn!(%error, "configuration can't be followed"))?;
    let at = ConfigPosition(message.sequence);
    match decode_one(&message.payload) {
        Ok(event) => {
            apply(catalog, &event, at);
        }
        Err(error) => {
            tracing::error!(%error, position = at.0, "an edit can't be read");
            catalog.block(UnknownEdit { position: at, kind: "unreadable".to_owned(), version: 0 });
        }
    }
    Ok(())
}
