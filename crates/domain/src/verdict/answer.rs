//! What the client of a failed request is told: the most informative of its failures.

use std::time::Duration;

use waybill_event::{FailureKind, SourceRef};

use super::{ClientAnswer, PublicCode};

/// One failed attempt, as far as the client's answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureRecord {
    /// Number of the attempt within the request, from 1.
    pub attempt: u32,
    /// The source.
    pub source: SourceRef,
    /// What failed.
    pub kind: FailureKind,
    /// What the client is told if this failure speaks for all.
    pub client: ClientAnswer,
    /// The upstream's own status, where it answered with an error.
    pub status: Option<u16>,
    /// After what time another try makes sense.
    pub wait: Option<Duration>,
}

/// What the client of a failed request is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The public error code.
    pub code: PublicCode,
    /// For `Retry-After`: the soonest time at which another try makes sense.
    pub retry_after: Option<Duration>,
    /// For `x-should-retry: false`: we have tried enough, a client's own retries would only repeat it.
    pub no_retry: bool,
    /// The attempt whose (masked) message, code and parameter may stand in the answer.
    pub from_attempt: Option<u32>,
}

/// How much a failure tells the client; lower tells more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The caller can do something about it, or must accept it.
    Caller,
    /// It passes by itself.
    Limit,
    /// Somebody else must do something about it.
    Fault,
}

const fn rank(kind: FailureKind) -> Rank {
    match kind {
        FailureKind::InvalidRequest
        | FailureKind::PayloadTooLarge
        | FailureKind::ContextOverflow
        | FailureKind::CapabilityMismatch
        | FailureKind::PolicyRefusal
        | FailureKind::RelayFilter
        | FailureKind::ClientCancelled => Rank::Caller,
        FailureKind::RateLimited
        | FailureKind::WindowExhausted
        | FailureKind::Overloaded
        | FailureKind::LocalLimit
        | FailureKind::TransientConflict => Rank::Limit,
        FailureKind::AuthInvalid
        | FailureKind::AuthRefreshable
        | FailureKind::AccountBanned
        | FailureKind::BillingExhausted
        | FailureKind::EgressBlocked
        | FailureKind::ChannelMisconfigured
        | FailureKind::ModelUnavailable
        | FailureKind::ServerError
        | FailureKind::EdgeError
        | FailureKind::Timeout
        | FailureKind::Network
        | FailureKind::MalformedResponse
        | FailureKind::EmptyOutput
        | FailureKind::LocalFailure
        | FailureKind::Success => Rank::Fault,
    }
}

/// The answer after these failures, in the order in which they happened. Without any it is `no_source_available`.
#[must_use]
pub fn answer(failures: &[FailureRecord]) -> Answer {
    // `min_by_key` takes the first of equals: the first failure of the best rank.
    let Some(best) = failures.iter().min_by_key(|failure| rank(failure.kind)) else {
        return told(PublicCode::NoSourceAvailable.status(), PublicCode::NoSourceAvailable, None, None);
    };
    let soonest = failures.iter().filter_map(|failure| failure.wait).min();
    let (ClientAnswer { status, code }, retry_after) = match rank(best.kind) {
        Rank::Caller => (best.client, None),
        Rank::Limit => (best.client, soonest),
        Rank::Fault => {
            let client = faults(failures, best);
            (client, soonest.filter(|_| client.status == 503))
        }
    };
    told(status, code, retry_after, Some(best.attempt))
}

/// Failures that agree are told as what they are; a mixture is told as such. Where everybody says that there is no such
/// model, that is no outage.
fn faults(failures: &[FailureRecord], first: &FailureRecord) -> ClientAnswer {
    let gone = |failure: &FailureRecord| failure.kind == FailureKind::ModelUnavailable && failure.status == Some(404);
    if failures.iter().all(gone) {
        return ClientAnswer { status: PublicCode::ModelNotFound.status(), code: PublicCode::ModelNotFound };
    }
    let several = failures.iter().any(|failure| failure.source.source != first.source.source);
    let agree = failures.iter().all(|failure| failure.client == first.client);
    if several && !(agree && first.client.code != PublicCode::UpstreamError) {
        ClientAnswer { status: PublicCode::AllSourcesFailed.status(), code: PublicCode::AllSourcesFailed }
    } else {
        first.client
    }
}

/// The answer when no source may be asked because all are merely busy until then.
#[must_use]
pub fn all_busy(soonest: Option<Duration>) -> Answer {
    told(PublicCode::RateLimited.status(), PublicCode::RateLimited, soonest, None)
}

fn told(status: u16, code: PublicCode, retry_after: Option<Duration>, from_attempt: Option<u32>) -> Answer {
    Answer { status, code, retry_after, no_retry: status == 502, from_attempt }
}

#[cfg(test)]
mod tests {
    use waybill_event::{Source, SourceKind};

    use super::*;

    fn failed(source: u64, kind: FailureKind, code: PublicCode, wait_s: Option<u64>) -> FailureRecord {
        FailureRecord {
            attempt: u32::try_from(source).unwrap(),
            source: SourceRef { source: Source { kind: SourceKind::Channel, id: source }, rev: 1 },
            kind,
            client: ClientAnswer { status: code.status(), code },
            status: None,
            wait: wait_s.map(Duration::from_secs),
        }
    }

    fn check(failures: &[FailureRecord], code: PublicCode, retry_after_s: Option<u64>, from: Option<u32>) {
        let got = answer(failures);
        assert_eq!((got.code, got.status), (code, code.status()));
        assert_eq!(got.retry_after, retry_after_s.map(Duration::from_secs));
        assert_eq!(got.from_attempt, from);
        assert_eq!(got.no_retry, got.status == 502);
    }

    #[test]
    fn the_most_informative_failure_speaks() {
        use FailureKind as K;
        use PublicCode as C;
        let server = |n| failed(n, K::ServerError, C::UpstreamError, None);
        let limited = |n, s| failed(n, K::RateLimited, C::RateLimited, Some(s));
        check(&[], C::NoSourceAvailable, None, None);
        check(&[server(1)], C::UpstreamError, None, Some(1));
        check(&[server(1), server(2)], C::AllSourcesFailed, None, Some(1));
        check(&[server(1), limited(2, 9), limited(3, 4)], C::RateLimited, Some(4), Some(2));
        let refused = failed(3, K::PolicyRefusal, C::ContentPolicyViolation, None);
        check(&[server(1), limited(2, 9), refused], C::ContentPolicyViolation, None, Some(3));
        let slow = |n| failed(n, K::Timeout, C::UpstreamTimeout, None);
        check(&[slow(1), slow(2)], C::UpstreamTimeout, None, Some(1));
        check(&[slow(1), server(2)], C::AllSourcesFailed, None, Some(1));
        let gone = |n| failed(n, K::ModelUnavailable, C::ModelUnavailable, Some(10));
        check(&[gone(1), gone(2)], C::ModelUnavailable, Some(10), Some(1));
        let missing = |n| FailureRecord { status: Some(404), ..gone(n) };
        check(&[missing(1)], C::ModelNotFound, None, Some(1));
        check(&[missing(1), missing(2)], C::ModelNotFound, None, Some(1));
        check(&[missing(1), gone(2)], C::ModelUnavailable, Some(10), Some(1));
        check(&[missing(1), server(2)], C::AllSourcesFailed, None, Some(1));
        assert!(!all_busy(Some(Duration::from_secs(3))).no_retry);
    }
}
