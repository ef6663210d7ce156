//! A look at all streams and buckets: whether they are there, how full, and how often they are kept.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::{self};
use tokio::time::Instant;
use waybill_journal::{Bucket, Stream};

use crate::keyed::stream_of;

/// How the log is, as seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The server's version.
    pub server: String,
    /// Time of the fastest question asked for this; none when nothing was answered.
    pub round_trip: Option<Duration>,
    /// The streams and buckets.
    pub streams: Vec<Surveyed>,
}

/// How a stream or bucket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surveyed {
    /// Its name.
    pub name: &'static str,
    /// What was found, or why it can't be asked: roles may not ask for all of them.
    pub found: Result<Found, String>,
}

/// What a stream or bucket was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Copies of it.
    pub replicas: usize,
    /// Bytes held.
    pub bytes: u64,
    /// Bytes it may hold; 0 is unlimited.
    pub max_bytes: u64,
    /// Its last sequence.
    pub last: u64,
}

impl Survey {
    /// What is weaker than a promise of so many copies, in words for people; empty when nothing is.
    #[must_use]
    pub fn weaker_than(&self, replicas: usize) -> Vec<String> {
        let weak = |stream: &Surveyed| {
            let kept = stream.found.as_ref().ok().map(|found| found.replicas).filter(|kept| *kept < replicas)?;
            Some(format!("{} has {kept} of the {replicas} copies that are promised", stream.name))
        };
        self.streams.iter().filter_map(weak).collect()
    }
}

pub(crate) async fn survey(client: &Client, context: &jetstream::Context) -> Survey {
    let mut survey = Survey {
        server: client.try_server_info().map(|info| info.version).unwrap_or_default(),
        round_trip: None,
        streams: Vec::new(),
    };
    for name in Stream::ALL.map(Stream::name).into_iter().chain(Bucket::ALL.map(stream_of)) {
        let began = Instant::now();
        let found = ask(context, name).await;
        if found.is_ok() {
            let took = began.elapsed();
            survey.round_trip = Some(survey.round_trip.map_or(took, |fastest| fastest.min(took)));
        }
        survey.streams.push(Surveyed { name, found });
    }
    survey
}

async fn ask(context: &jetstream::Context, name: &str) -> Result<Found, String> {
    let stream = context.get_stream_no_info(name).await.map_err(|error| error.to_string())?;
    let info = stream.get_info().await.map_err(|error| error.to_string())?;
    Ok(Found {
        replicas: info.config.num_replicas,
        bytes: info.state.bytes,
        max_bytes: u64::try_from(info.config.max_bytes).unwrap_or(0),
        last: info.state.last_sequence,
    })
}
