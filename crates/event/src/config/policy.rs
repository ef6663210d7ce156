//! Policies: the numbers that folds and decisions go by. Event-sourced, never constants in code.
//!
//! A policy holds only what it changes. What is in force is the built-in numbers, overridden by each scope in turn, from
//! the widest to the narrowest.

mod layered;
mod request;
mod selector;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Entity;
use crate::{GroupId, KeyId, RouteId, Source};

pub use request::{
    FailOverKinds, MidStream, OnAllUnavailable, OnOutage, RequestOverrides, RequestPolicy, RetryBudgetOverrides,
    RetryBudgetPolicy, RetryUnknown, Strategy,
};
pub use selector::{
    BreakerOverrides, BreakerPolicy, FactorBands, FactorBandsOverrides, SelectorOverrides, SelectorPolicy,
};

/// What a policy applies to; the narrowest wins, number by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PolicyScope {
    /// Everything.
    Global,
    /// All sources of one provider's kind: numbers of the selector fold.
    Provider {
        /// The provider's kind.
        provider: String,
    },
    /// One source: numbers of the selector fold.
    Source {
        /// The source.
        source: Source,
    },
    /// One model at one source: numbers of the selector fold.
    Model {
        /// The source.
        source: Source,
        /// What is sent to it as model.
        upstream_model: String,
    },
    /// One group's requests.
    Group {
        /// The group.
        group: GroupId,
    },
    /// One route's requests.
    Route {
        /// The route.
        route: RouteId,
    },
    /// One key's requests.
    Key {
        /// The key.
        key: KeyId,
    },
}

impl PolicyScope {
    /// Whether numbers of the selector fold may stand here: one breaker serves all groups, routes and keys.
    #[must_use]
    pub const fn holds_selector(&self) -> bool {
        matches!(self, Self::Global | Self::Provider { .. } | Self::Source { .. } | Self::Model { .. })
    }

    /// Whether numbers of requests may stand here.
    #[must_use]
    pub const fn holds_request(&self) -> bool {
        matches!(self, Self::Global | Self::Group { .. } | Self::Route { .. } | Self::Key { .. })
    }

    /// The last word of its subject.
    #[must_use]
    pub fn subject_id(&self) -> String {
        match self {
            // Names of models and providers aren't words of subjects.
            Self::Provider { .. } => format!("provider-{}", hashed(self)),
            Self::Model { .. } => format!("model-{}", hashed(self)),
            scope => scope.to_string().replace(':', "-"),
        }
    }
}

impl std::fmt::Display for PolicyScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::Provider { provider } => write!(f, "provider:{provider}"),
            Self::Source { source } => write!(f, "{source}"),
            Self::Model { source, upstream_model } => write!(f, "{source}/{upstream_model}"),
            Self::Group { group } => write!(f, "group:{group}"),
            Self::Route { route } => write!(f, "route:{route}"),
            Self::Key { key } => write!(f, "key:{key}"),
        }
    }
}

/// A policy's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What it applies to.
    pub scope: PolicyScope,
    /// Numbers of the selector fold that are set here.
    #[serde(default, skip_serializing_if = "SelectorOverrides::is_empty")]
    pub selector: SelectorOverrides,
    /// Numbers of requests that are set here.
    #[serde(default, skip_serializing_if = "RequestOverrides::is_empty")]
    pub request: RequestOverrides,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Entity for Policy {
    const ENTITY: &'static str = "policy";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.scope.subject_id()
    }
    fn version(&self) -> u64 {
        self.version
    }
}

fn hashed(scope: &PolicyScope) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, scope.to_string().as_bytes()).simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_hold_no_foreign_words() {
        let check = |scope: PolicyScope, text: &str| {
            assert_eq!(scope.to_string(), text);
            let policy = Policy {
                scope,
                selector: SelectorOverrides::default(),
                request: RequestOverrides::default(),
                version: 1,
            };
            let subject = policy.subject_id();
            assert!(subject.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{subject}");
        };
        let source: Source = "channel:3".parse().unwrap();
        check(PolicyScope::Global, "global");
        check(PolicyScope::Source { source }, "channel:3");
        check(PolicyScope::Model { source, upstream_model: "gpt/4 x.y".to_owned() }, "channel:3/gpt/4 x.y");
        check(PolicyScope::Provider { provider: "open_ai".to_owned() }, "provider:open_ai");
        check(PolicyScope::Group { group: GroupId::new(2) }, "group:2");
    }

    #[test]
    fn the_narrower_number_wins_and_the_others_stay() {
        let global: SelectorOverrides =
            serde_json::from_str(r#"{"source_breaker":{"open_ms":5,"window_ms":7},"late_after_ms":9}"#).unwrap();
        let own: SelectorOverrides = serde_json::from_str(r#"{"source_breaker":{"open_ms":6}}"#).unwrap();
        let policy = SelectorPolicy::default().with(&global).with(&own);
        assert_eq!((policy.source_breaker.open_ms, policy.source_breaker.window_ms, policy.late_after_ms), (6, 7, 9));
        assert_eq!(policy.model_breaker, SelectorPolicy::default().model_breaker);
        let whole = SelectorOverrides::from(policy);
        assert_eq!(SelectorPolicy::default().with(&whole), policy);
        let request: RequestOverrides = serde_json::from_str(r#"{"strategy":"least_busy","deadline_ms":5}"#).unwrap();
        let policy = RequestPolicy::default().with(&request);
        assert_eq!((policy.strategy, policy.deadline_ms, policy.max_attempts), (Strategy::LeastBusy, 5, 3));
    }

    #[test]
    fn only_what_is_set_is_written() {
        let policy = Policy {
            scope: PolicyScope::Global,
            selector: SelectorOverrides::default(),
            request: RequestOverrides { max_walk: Some(4), ..RequestOverrides::default() },
            version: 1,
        };
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(text, r#"{"scope":{"kind":"global"},"request":{"max_walk":4},"version":1}"#);
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    }
}
