//! The catalogue: the fold of configuration, and the commands that may change it.
