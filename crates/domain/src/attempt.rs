//! The attempt loop as one pure state machine.
