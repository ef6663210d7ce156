//! The selector as a whole: the moments of the worked example, the fold's properties, plans.

mod fixture;
mod fold;
mod plans;
mod worked_example;
