//! The limits of the key that asks, and of its user: a no is the client's to hear, with the time to come back.

use std::time::Duration;

use waybill_domain::catalog::Snapshot;
use waybill_domain::verdict::PublicCode;
use waybill_event::config::{Limits, OnOutage};
use waybill_event::selection::SkipReason;
use waybill_journal::permits::Subject;

use super::Wanted;
use crate::answer::Refusal;
use crate::gates::{Given, No, Patience};
use crate::replica::Replica;

/// Whose limit it is.
#[derive(Debug, Clone, Copy)]
enum Whose {
    Key,
    User,
}

/// Takes what the limits of the user and of the key ask for. The user comes first: while one of them waits for its own
/// limit it keeps nothing of the key's from the others.
///
/// # Errors
/// The refusal for the client.
pub(super) async fn enter(replica: &Replica, snapshot: &Snapshot, wanted: &mut Wanted) -> Result<(), Refusal> {
    let key = &wanted.key;
    let policy = snapshot.catalog().request_policy(key.group, None, Some(key.id));
    let (patience, on_outage) = (Duration::from_millis(policy.queue_timeout_ms), policy.on_outage);
    let of_user = match &wanted.user {
        Some(user) => {
            let subject = Subject::user(key.id, user);
            take(replica, &subject, key.user_limits, (Whose::User, on_outage, patience)).await?
        }
        None => Given::default(),
    };
    let of_key = take(replica, &Subject::key(key.id), key.limits, (Whose::Key, on_outage, patience)).await?;
    wanted._held = [of_user.kept(), of_key.kept()];
    Ok(())
}

/// A slot is waited for a moment in any case: who waits has it passed on by replicas that hold more than their share.
const MOMENT: Duration = Duration::from_millis(50);

async fn take(
    replica: &Replica,
    subject: &Subject,
    limits: Limits,
    (whose, on_outage, patience): (Whose, OnOutage, Duration),
) -> Result<Given, Refusal> {
    let patience = Patience::Within(patience.max(MOMENT));
    let taken = replica.gates.take(subject, limits, on_outage, patience).await;
    taken.map_err(|no| {
        replica.metrics.client_limited(no.why);
        refusal(whose, limits, no)
    })
}

fn refusal(whose: Whose, limits: Limits, No { why, retry_after }: No) -> Refusal {
    let who = match whose {
        Whose::Key => "This API key",
        Whose::User => "This user of the API key",
    };
    let message = match why {
        SkipReason::Concurrency => {
            format!("{who} may have {} requests at once.", limits.max_concurrent.unwrap_or(0))
        }
        _ => format!("{who} may make {} requests a minute.", limits.requests_per_minute.unwrap_or(0)),
    };
    Refusal { retry_after: Some(retry_after), ..Refusal::saying(PublicCode::RateLimited, message) }
}
