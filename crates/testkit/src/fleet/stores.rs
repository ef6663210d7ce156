//! The fleet's stores, opened beside the product: what suites compare its answers with.

use std::fs;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use waybill_journal::{Message, Stream};
use waybill_journal_nats::{Connection, NatsConfig};
use waybill_read_model::{Deadlines, ReadModel};

use super::Fleet;

/// Messages read at once.
const PAGE: usize = 1_000;
/// How long a store may take to answer at first.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

impl Fleet {
    /// The log, as one of the users that the servers know, e.g. `operator`.
    ///
    /// # Panics
    /// When it can't be reached.
    pub async fn log(&self, user: &str) -> Connection {
        let addresses = self.addresses();
        let password = self.secret(&format!("nats-{user}"));
        let name = format!("suite-{user}");
        let config = NatsConfig::new(vec![addresses.nats_url], user.to_owned(), SecretString::from(password), name);
        let connecting = tokio::time::timeout(CONNECT_DEADLINE, waybill_journal_nats::connect(config));
        match connecting.await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => panic!("the log, as {user}: {error}\n{}", self.diagnosis()),
            Err(_) => panic!("the log, as {user}: no answer\n{}", self.diagnosis()),
        }
    }

    /// All messages of a stream, as they are stored.
    ///
    /// # Panics
    /// When the log can't be read.
    pub async fn messages(&self, stream: Stream) -> Vec<Message> {
        let connection = self.log("operator").await;
        let log = &connection.journal().log;
        let mut all: Vec<Message> = Vec::new();
        loop {
            let from = all.last().map_or(1, |message| message.sequence + 1);
            match log.read(stream, from, PAGE).await {
                Ok(page) if page.is_empty() => break,
                Ok(page) => all.extend(page),
                Err(error) => panic!("reading {}: {error}\n{}", stream.name(), self.diagnosis()),
            }
        }
        connection.close().await;
        all
    }

    /// All events of the traffic stream as they are stored, in order, each with its `position`.
    ///
    /// # Panics
    /// When the log can't be read, or holds what isn't JSON.
    pub async fn events(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for message in self.messages(Stream::Traffic).await {
            let batch: Vec<Value> = match serde_json::from_slice(&message.payload) {
                Ok(batch) => batch,
                Err(error) => panic!("message {} of the traffic: {error}", message.sequence),
            };
            for (index, mut event) in batch.into_iter().enumerate() {
                if let Some(fields) = event.as_object_mut() {
                    fields.insert("position".to_owned(), format!("0/0/{}/{index}", message.sequence).into());
                }
                all.push(event);
            }
        }
        all
    }

    /// The tables.
    ///
    /// # Panics
    /// When their address can't be read.
    #[must_use]
    pub fn tables(&self) -> ReadModel {
        match ReadModel::connect(&self.postgres_url(), 2, Deadlines::default()) {
            Ok(tables) => tables,
            Err(error) => panic!("the tables: {error}"),
        }
    }

    /// Where Postgres is, with user and password.
    #[must_use]
    pub fn postgres_url(&self) -> String {
        let path = self.addresses().postgres_url_file;
        match fs::read_to_string(&path) {
            Ok(url) => url.trim().to_owned(),
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }

    fn secret(&self, name: &str) -> String {
        let path = self.dir().join("secrets").join(name);
        match fs::read_to_string(&path) {
            Ok(secret) => secret.trim().to_owned(),
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}
