//! Writing the log as its writers do, and reading it back.

use bytes::Bytes;
use waybill_event::config::{Change, Changed, Channel, ChannelModel, ConfigChange, CredentialRef, Limits};
use waybill_event::failure::{FailureKind, Health};
use waybill_event::traffic::SourceOutcome;
use waybill_event::{
    Boot, ChannelId, Draft, Event, GroupId, Identity, LogTime, Mark, ProducerId, SourceRef, decode_batch,
};
use waybill_journal::{Expect, Journal, Record, Stream};

/// A replica that writes outcomes.
pub struct Writer {
    producer: ProducerId,
    n: u64,
}

impl Writer {
    pub fn new(name: &str) -> Self {
        Self { producer: name.parse().unwrap(), n: 0 }
    }

    pub fn outcome(&mut self, id: u64, at: LogTime, health: Health) -> Event {
        self.n += 1;
        let kind = if health == Health::Ok { FailureKind::Success } else { FailureKind::ServerError };
        let body = SourceOutcome {
            upstream_model: "m".to_owned(),
            kind,
            source_health: health,
            model_health: health,
            latency_ms: Some(100),
            block: None,
            attempts: 1,
            credential_revision: 1,
            base_url_revision: 1,
            probe: false,
            usage: None,
        };
        let mark = Mark { producer: self.producer.clone(), boot: Boot::new(LogTime::from_micros(7_000), 1), n: self.n };
        let mut draft = Draft::new(at, body);
        draft.source = Some(SourceRef { source: ChannelId::new(id).into(), rev: 1 });
        Event { identity: Identity::Sequenced(mark), draft }
    }

    pub async fn append(&self, journal: &Journal, events: &[Event]) {
        let written: Vec<String> = events.iter().map(|e| String::from_utf8(e.encode().unwrap()).unwrap()).collect();
        let payload = format!("[{}]", written.join(","));
        journal.log.append(Stream::Traffic, record(payload.as_bytes(), None), Expect::Anything).await.unwrap();
    }
}

pub fn record(payload: &[u8], message_id: Option<String>) -> Record {
    Record { subject: "wb.traffic.0.proxy".to_owned(), message_id, payload: Bytes::copy_from_slice(payload) }
}

fn channel(id: u64, credential: u64) -> Channel {
    Channel {
        id: ChannelId::new(id),
        name: format!("c{id}"),
        provider: "openai".to_owned(),
        base_url: "http://upstream".to_owned(),
        base_url_revision: 1,
        credential: Some(CredentialRef { revision: credential, fingerprint: "f".to_owned() }),
        models: vec![ChannelModel::named("m")],
        groups: vec![GroupId::new(1)],
        priority: 0,
        weight: 1,
        limits: Limits::default(),
        multiplier_milli: 1_000,
        allow_private: true,
        probe: Default::default(),
        enabled: true,
        version: credential,
    }
}

async fn change(journal: &Journal, state: Channel, change: Change) {
    let subject = format!("wb.config.channel.{}", state.id);
    let body = ConfigChange::Channel(Changed { change, state, changed: Vec::new() });
    let identity = Identity::Derived { id: "edit".to_owned(), producer: "admin-1".parse().unwrap() };
    let event = Event { identity, draft: Draft::new(LogTime::from_micros(1), body) };
    let record = Record { subject, message_id: None, payload: event.encode().unwrap().into() };
    journal.log.append(Stream::Config, record, Expect::Anything).await.unwrap();
}

/// Creates a channel (credential 1), or gives it another credential.
pub async fn edit(journal: &Journal, id: u64, credential: u64) {
    let what = if credential == 1 { Change::Created } else { Change::Edited };
    change(journal, channel(id, credential), what).await;
}

pub async fn delete(journal: &Journal, id: u64) {
    change(journal, channel(id, 1), Change::Deleted).await;
}

/// An edit of a kind that nobody knows yet.
pub async fn strange_edit(journal: &Journal) {
    let text =
        r#"{"id":"x","type":"wormhole_created","v":1,"at":"2026-01-01T00:00:00Z","producer":"admin-1","data":{}}"#;
    let payload = Bytes::from_static(text.as_bytes());
    let record = Record { subject: "wb.config.wormhole.1".to_owned(), message_id: None, payload };
    journal.log.append(Stream::Config, record, Expect::Anything).await.unwrap();
}

/// All events of the traffic stream that can be read.
pub async fn events(journal: &Journal) -> Vec<Event> {
    let messages = journal.log.read(Stream::Traffic, 1, 10_000).await.unwrap();
    let read = messages.iter().filter_map(|message| decode_batch(&message.payload).ok());
    read.flatten().filter_map(Result::ok).collect()
}
