//! Verdicts: what an observation means.
