//! The selector as a whole: the moments of the worked example, the fold's properties, plans.

mod fixture;
mod fold;
mod limits;
mod picks;
mod plans;
mod shares;
mod tokens;
mod worked_example;
