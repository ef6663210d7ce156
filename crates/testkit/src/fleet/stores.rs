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
        let urls = addresses.nats_url.split(',').map(str::to_owned).collect();
        let config = NatsConfig::new(urls, user.to_owned(), SecretString::from(password), name);
        let connecting = tokio::time::timeout(CONNECT_DEADLINE, waybill_journal_nats::connect(config));
        match connecting.await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => panic!("the log, as {user}: {error}\n{}", self.diagnosis()),
            Err(_) => panic!("the log, as {user}: no answer\n{}", self.diagnosis()),
        }
    }

    /// The process that leads a stream; `None` where nobody does, or nobody can be asked.
    pub async fn stream_leader(&self, stream: Stream) -> Option<String> {
        for process in self.processes() {
            let Some(url) = process.monitor_url else { continue };
            let page = self.http.get(format!("{url}/jsz?accounts=true&streams=true")).timeout(CONNECT_DEADLINE);
            let page = async { page.send().await?.json::<Value>().await };
            let Ok(page) = page.await else { continue };
            let accounts = page.get("account_details").and_then(Value::as_array).into_iter().flatten();
            let streams = accounts.filter_map(|account| account.get("stream_detail")?.as_array()).flatten();
            let found = streams.filter(|found| found.get("name").and_then(Value::as_str) == Some(stream.name()));
            let leader = found.filter_map(|found| found.pointer("/cluster/leader")?.as_str()).next();
            if let Some(leader) = leader {
                return Some(leader.to_owned());
            }
        }
        None
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
