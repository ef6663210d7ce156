//! Fetching an upstream's model list.

use std::time::Duration;

use waybill_domain::observation::{Fault, Phase, TransportFault};
use waybill_event::failure::Sent;
use waybill_wire::error::ErrorFacts;
use waybill_wire::models::{MAX_LIST_BYTES, ModelListFault, parse_list};

use crate::dispatch::{Dispatcher, Limits};
use crate::observe;
use crate::target::Target;

/// How much of an error's body is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// For the list's body after its head.
const BODY_LIMIT: Duration = Duration::from_secs(15);

/// Why no list was had.
#[derive(Debug, thiserror::Error)]
pub enum FetchModelsError {
    /// No answer came, or it broke off.
    #[error("the upstream couldn't be asked for its models")]
    Transport(#[from] TransportFault),
    /// The upstream refused.
    #[error("the upstream answered {} when asked for its models{}", facts.status, observe::words(facts))]
    Status {
        /// What it said.
        facts: Box<ErrorFacts>,
    },
    /// The answer is no list.
    #[error(transparent)]
    List(#[from] ModelListFault),
}

impl Dispatcher {
    /// The names of the models that the target lists, in its order.
    ///
    /// # Errors
    /// [`FetchModelsError`] if it can't be asked, refuses, or answers something else.
    pub async fn fetch_models(&self, target: &Target, limits: Limits) -> Result<Vec<String>, FetchModelsError> {
        let mut reply = self.get(target, "models", limits).await?;
        let status = reply.status();
        let reading = async {
            if status.is_success() {
                let body = reply.read_to_end(MAX_LIST_BYTES).await?;
                return Ok(parse_list(&body)?);
            }
            let (body, _) = reply.read_up_to(MAX_ERROR_BYTES).await?;
            let facts = Box::new(ErrorFacts::read(status.as_u16(), observe::content_type(reply.headers()), &body));
            Err(FetchModelsError::Status { facts })
        };
        match tokio::time::timeout(BODY_LIMIT, reading).await {
            Ok(outcome) => outcome,
            Err(_) => Err(FetchModelsError::Transport(TransportFault {
                phase: Phase::Body,
                fault: Fault::TimedOut,
                sent: Sent::Response,
                received: reply.received(),
                detail: "the model list didn't arrive in time".to_owned(),
            })),
        }
    }
}
