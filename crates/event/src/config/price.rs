//! A price: what tokens of a model cost.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Entity;
use crate::money::Usage;
use crate::{NanoUsd, TokenCount};

/// What a million tokens of a model cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// The model as upstreams call it.
    pub model: String,
    /// A million tokens of prompts, in nano-dollars.
    pub input: NanoUsd,
    /// A million tokens of answers, in nano-dollars.
    pub output: NanoUsd,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Price {
    /// What a usage costs, rounded up to whole nano-dollars; what wasn't reported costs nothing.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> NanoUsd {
        let part = |tokens: Option<TokenCount>, million: NanoUsd| {
            i128::from(tokens.unwrap_or_default().0) * i128::from(million.0)
        };
        let sum = part(usage.prompt_tokens, self.input) + part(usage.completion_tokens, self.output);
        NanoUsd(i64::try_from((sum + 999_999) / 1_000_000).unwrap_or(i64::MAX))
    }
}

impl Entity for Price {
    const ENTITY: &'static str = "price";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        // Names of models aren't words of subjects.
        format!("model-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, self.model.as_bytes()).simple())
    }
    fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_costs_its_tokens() {
        let price =
            Price { model: "m".into(), input: NanoUsd(3_000_000_000), output: NanoUsd(15_000_000_000), version: 1 };
        let of = |prompt: Option<u64>, completion: Option<u64>| {
            let count = |n: Option<u64>| n.map(TokenCount);
            price
                .of(&Usage { prompt_tokens: count(prompt), completion_tokens: count(completion), ..Usage::default() })
                .0
        };
        assert_eq!(of(Some(1_000_000), Some(1_000_000)), 18_000_000_000);
        assert_eq!(of(Some(10), Some(5)), 30_000 + 75_000);
        assert_eq!((of(None, None), of(None, Some(1))), (0, 15_000));
        assert_eq!(of(Some(u64::MAX), Some(u64::MAX)), i64::MAX, "no overflow");
        let cheap = Price { input: NanoUsd(1), ..price.clone() };
        let one = Usage { prompt_tokens: Some(TokenCount(1)), ..Usage::default() };
        assert_eq!(cheap.of(&one), NanoUsd(1), "rounded up");
    }
}
