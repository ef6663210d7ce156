//! Commands on prices.

use waybill_event::NanoUsd;
use waybill_event::config::{Change, Changed, ConfigChange, Price};

use super::command::Rejection;
use super::{Catalog, check, diff};

/// Prices there may be.
const PRICES: usize = 10_000;
/// The greatest price of a million tokens: a million dollars.
const MOST: NanoUsd = NanoUsd(1_000_000 * 1_000_000_000);

/// A wish about a price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// What a million tokens of a model cost from now on.
    Set {
        /// The model as upstreams call it.
        model: String,
        /// A million tokens of prompts.
        input: NanoUsd,
        /// A million tokens of answers.
        output: NanoUsd,
    },
    /// The model has no price any more.
    Clear {
        /// The model.
        model: String,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    match command {
        Command::Set { model, input, output } => {
            check::model("model", model)?;
            for (field, price) in [("input_usd", *input), ("output_usd", *output)] {
                if !(NanoUsd(0)..=MOST).contains(&price) {
                    return Err(Rejection::invalid(field, "must be between $0 and $1,000,000 for a million tokens"));
                }
            }
            let old = catalog.prices.get(model);
            if old.is_none() && catalog.prices.len() >= PRICES {
                return Err(Rejection::LimitReached { what: "prices", limit: PRICES });
            }
            let nothing = Price { model: model.clone(), input: NanoUsd(-1), output: NanoUsd(-1), version: 0 };
            let before = old.map_or(&nothing, AsRef::as_ref);
            let new = Price { model: model.clone(), input: *input, output: *output, version: before.version };
            let changed = diff::changed_fields(before, &new);
            if changed.is_empty() {
                return Ok(Vec::new());
            }
            let state = Price { version: before.version + 1, ..new };
            let (change, changed) =
                if old.is_some() { (Change::Edited, changed) } else { (Change::Created, Vec::new()) };
            Ok(vec![ConfigChange::Price(Changed { change, state, changed })])
        }
        Command::Clear { model } => {
            let Some(old) = catalog.prices.get(model) else {
                return Err(Rejection::NotFound { entity: "price", id: model.clone() });
            };
            let state = Price { version: old.version + 1, ..Price::clone(old) };
            Ok(vec![ConfigChange::Price(Changed { change: Change::Deleted, state, changed: Vec::new() })])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waybill_event::ConfigPosition;

    #[test]
    fn a_price_is_set_changed_and_cleared() {
        let mut catalog = Catalog::default();
        let set = |input, output| Command::Set { model: "m".into(), input: NanoUsd(input), output: NanoUsd(output) };
        for (at, (command, change)) in [
            (set(1, 2), Change::Created),
            (set(1, 3), Change::Edited),
            (Command::Clear { model: "m".into() }, Change::Deleted),
            (set(0, 0), Change::Created),
        ]
        .into_iter()
        .enumerate()
        {
            let done = decide(&catalog, &command).unwrap().remove(0);
            assert_eq!(done.change(), change, "{command:?}");
            catalog.adopt(&done, ConfigPosition(u64::try_from(at).unwrap() + 1));
        }
        assert_eq!(decide(&catalog, &set(0, 0)), Ok(Vec::new()), "nothing changes");
        assert!(decide(&catalog, &set(-1, 0)).is_err());
        assert!(decide(&catalog, &Command::Clear { model: "other".into() }).is_err());
    }
}
