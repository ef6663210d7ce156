//! Permits over a store in memory, in virtual time.

mod cost;
mod fairness;
mod ground;
mod outage;
mod rates;
mod recovery;
mod slots;
