//! JetStream behind the log's port. (The lead is writing this crate right now, from 02:10: don't write it again; run the
//! conformance suite over it once `connect` is there.)
