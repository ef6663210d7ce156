//! Every misbehaviour, seen by a client that reads raw bytes.

#[cfg(test)]
mod upstream {
    mod client;
    mod faults;
    mod replies;
    mod sources;
}
