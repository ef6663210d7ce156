//! Real servers: started, stopped, killed, found again, and never left behind.

#[cfg(test)]
mod services {
    mod fetch;
    mod left_behind;
    mod nats;
    mod postgres;
    mod setting;
}
