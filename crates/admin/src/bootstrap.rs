//! The first admin token, made by whoever has access to the machine.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::catalog::{Catalog, Command, admin_token};
use waybill_event::identity::ParseIdentityError;
use waybill_event::{Actor, ProducerId};
use waybill_journal::Journal;
use waybill_secret::{Peppers, SecretString, TokenKind};

use crate::edit::{Author, EditError, Editor};
use crate::fold::Fold;
use crate::{clock, tokens};

/// What the bootstrap's event is written as.
const PRODUCER: &str = "bootstrap";

/// Time the log gets to tell what there is.
const LOAD: Duration = Duration::from_secs(15);

/// Why no token was made.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// There is one already.
    #[error("there is an admin token already ({name}); use it, or force another one")]
    Exists {
        /// Its name.
        name: String,
    },
    /// It can't be stored.
    #[error("the admin token can't be stored")]
    Edit(#[from] EditError),
    /// The producer's name isn't one.
    #[error("the bootstrap's own name")]
    Name(#[source] ParseIdentityError),
}

/// Makes an admin token called `name`, stores its hash and gives the token: the only time anybody sees it. With `force`
/// also where a living one exists.
///
/// # Errors
/// [`BootstrapError`].
pub async fn bootstrap(
    journal: &Journal,
    peppers: &Peppers,
    name: &str,
    force: bool,
) -> Result<SecretString, BootstrapError> {
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let fold = Fold::start(Arc::clone(&journal.log), &tasks, stop.clone());
    let made = make(journal, &fold, peppers, name, force).await;
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    made
}

async fn make(
    journal: &Journal,
    fold: &Fold,
    peppers: &Peppers,
    name: &str,
    force: bool,
) -> Result<SecretString, BootstrapError> {
    let catalog = fold.loaded(LOAD).await.map_err(EditError::from)?;
    if let Some(living) = catalog.admin_tokens.values().next()
        && !force
    {
        return Err(BootstrapError::Exists { name: living.name.clone() });
    }
    let (token, issued) = tokens::mint(peppers, TokenKind::AdminToken).map_err(EditError::from)?;
    let producer: ProducerId = PRODUCER.parse().map_err(BootstrapError::Name)?;
    let editor = Editor::new(Arc::clone(&journal.log), fold.clone(), producer, clock::system());
    let author = Author { actor: Actor::Operator, reason: Some("bootstrap".to_owned()) };
    let issue = |name| admin_token::Command::Issue { name, prefix: issued.prefix, hash: issued.hash };
    editor.edit(&author, &mut Command::AdminToken(issue(free_name(&catalog, name)))).await?;
    Ok(token.into_secret())
}

/// The name, or where a living token has it, the name with the first number that makes it free.
fn free_name(catalog: &Catalog, name: &str) -> String {
    let free = |name: &String| !catalog.admin_tokens.values().any(|token| &token.name == name);
    let numbered = (2_u32..).map(|n| format!("{name}-{n}"));
    std::iter::once(name.to_owned()).chain(numbered).find(free).unwrap_or_default()
}
