//! The selector's state: breakers, windows, blocks, factors, plans.
