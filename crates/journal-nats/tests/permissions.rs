//! What each role's user can do at a real server: all that it needs, and nothing that is another's.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use secrecy::SecretString;
use tempfile::TempDir;
use waybill_journal::{AppendError, Bucket, Expect, Held, Record, Start, Stream, Watched};
use waybill_journal_nats::{Connection, NatsConfig, Role, SetupConfig, connect, role_permissions};
use waybill_services::{Finder, Launcher, Nats, NatsConfig as ServerConfig, NatsUser};

const PATIENCE: Duration = Duration::from_secs(20);

fn user(role: Role) -> NatsUser {
    let allowed = role_permissions(role);
    NatsUser {
        name: role.user().to_owned(),
        password: SecretString::from(format!("password of {}", role.user())),
        publish: allowed.publish,
        subscribe: allowed.subscribe,
    }
}

async fn connected(server: &Nats, role: Role) -> Connection {
    let user = user(role);
    connect(NatsConfig::new(vec![server.url()], user.name, user.password, "permissions".to_owned())).await.unwrap()
}

/// What may be written by whom, as the log's design has it.
fn may_append(role: Role, subject: &str) -> bool {
    match role {
        Role::Proxy => subject == "wb.traffic.0.proxy",
        Role::Projector => subject == "wb.traffic.0.control",
        Role::Upkeep => subject == "wb.traffic.0.upkeep" || subject.starts_with("wb.secret.account."),
        Role::Admin => subject.starts_with("wb.config.") || subject.starts_with("wb.secret."),
        Role::Operator => true,
    }
}

fn may_write(role: Role, bucket: Bucket) -> bool {
    match (role, bucket) {
        (Role::Operator, _) | (_, Bucket::Presence) => true,
        (Role::Admin, Bucket::Permits) => false,
        (Role::Proxy | Role::Projector | Role::Upkeep, Bucket::Permits) => true,
        (_, Bucket::Selector) => role == Role::Projector,
        (_, Bucket::Sticky) => role == Role::Proxy,
    }
}

fn may_read(role: Role, stream: Stream) -> bool {
    match role {
        Role::Proxy => stream != Stream::Traffic,
        Role::Upkeep => true,
        Role::Projector => stream != Stream::Secret,
        Role::Admin | Role::Operator => true,
    }
}

const SUBJECTS: [(Stream, &str); 6] = [
    (Stream::Traffic, "wb.traffic.0.proxy"),
    (Stream::Traffic, "wb.traffic.0.control"),
    (Stream::Traffic, "wb.traffic.0.upkeep"),
    (Stream::Config, "wb.config.channel.1"),
    (Stream::Secret, "wb.secret.channel.1"),
    (Stream::Secret, "wb.secret.account.1"),
];

async fn check_appends(connection: &Connection, role: Role) {
    let tries = SUBJECTS.map(|(stream, subject)| async move {
        let payload = Bytes::from(role.user());
        let record = Record { subject: subject.to_owned(), message_id: None, payload };
        let appended = connection.journal().log.append(stream, record, Expect::Anything).await;
        assert_eq!(appended.is_ok(), may_append(role, subject), "{role:?} appends to {subject}: {appended:?}");
    });
    join_all(tries).await;
}

async fn check_batch(connection: &Connection, role: Role) {
    let log = &connection.journal().log;
    let record =
        |n| Record { subject: format!("wb.config.batch.{n}"), message_id: None, payload: Bytes::from(role.user()) };
    let last = log.bounds(Stream::Config).await.unwrap().last;
    let appended = log.append_all(Stream::Config, vec![record(1), record(2)], last).await;
    assert_eq!(appended.is_ok(), may_append(role, "wb.config.batch.1"), "{role:?}: {appended:?}");
}

async fn check_buckets(connection: &Connection, role: Role) {
    let tries = Bucket::ALL.map(|bucket| async move {
        let keyed = &connection.journal().keyed;
        let key = format!("of.{}", role.user());
        let mut watching = keyed.watch(bucket);
        while tokio::time::timeout(PATIENCE, watching.next()).await.unwrap().unwrap().unwrap() != Watched::Current {}
        let ttl = Some(Duration::from_secs(30));
        let written = keyed.write(bucket, &key, Bytes::from_static(b"v"), Held::Nothing, ttl).await;
        assert_eq!(written.is_ok(), may_write(role, bucket), "{role:?} writes to {bucket:?}: {written:?}");
        let found = keyed.get(bucket, &key).await.unwrap();
        assert_eq!(found.map(|entry| entry.revision), written.as_ref().ok().copied());
        if let Ok(revision) = written {
            let own = async {
                while !matches!(watching.next().await, Some(Ok(Watched::Put(entry))) if entry.revision == revision) {}
            };
            tokio::time::timeout(PATIENCE, own).await.unwrap();
            keyed.delete(bucket, &key, Held::Revision(revision)).await.unwrap();
        }
    });
    join_all(tries).await;
}

/// Only upkeep removes old traffic, and nobody removes anything else.
async fn check_purges(connection: &Connection, role: Role) {
    let tries = Stream::ALL.map(|stream| async move {
        let purged = connection.journal().log.purge_before(stream, 1).await;
        let may = role == Role::Upkeep && stream == Stream::Traffic;
        assert_eq!(purged.is_ok(), may, "{role:?} purges {stream:?}: {purged:?}");
        assert!(may || matches!(purged, Err(AppendError::Refused { .. })), "{role:?} {stream:?}: {purged:?}");
    });
    join_all(tries).await;
}

async fn check_reads(connection: &Connection, role: Role) {
    let tries = Stream::ALL.map(|stream| async move {
        let log = &connection.journal().log;
        let bounds = log.bounds(stream).await;
        // How traffic is kept is everybody's business; what it holds isn't.
        let may_ask = may_read(role, stream) || stream == Stream::Traffic;
        assert_eq!(bounds.is_ok(), may_ask, "{role:?} asks about {stream:?}: {bounds:?}");
        let subject = SUBJECTS.iter().find(|(of, _)| *of == stream).map(|(_, subject)| *subject).unwrap();
        if !may_read(role, stream) {
            assert!(log.last_of_subject(stream, subject).await.is_err());
            let followed = log.follow(stream, Start::At(1)).next().await;
            assert!(followed.unwrap().is_err());
            return;
        }
        let first = log.read(stream, 1, 1).await.unwrap();
        assert_eq!(first.len(), 1, "{role:?} {stream:?}");
        assert!(log.last_of_subject(stream, subject).await.unwrap().is_some());
        for start in [Start::At(1), Start::LastPerSubject] {
            let followed = tokio::time::timeout(PATIENCE, log.follow(stream, start).next()).await;
            assert!(followed.unwrap().unwrap().is_ok(), "{role:?} {stream:?}");
        }
    });
    join_all(tries).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_writes_what_is_its_own_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let config = ServerConfig { users: Role::ALL.map(user).to_vec(), ..ServerConfig::new(dir.path().join("nats")) };
    let server = Nats::start(&Launcher::UtilLinux, &Finder::new(dir.path()), config).await.unwrap();
    let operator = connected(&server, Role::Operator).await;
    operator.setup(&SetupConfig::single_node()).await.unwrap();
    let log = &operator.journal().log;
    for (stream, subject) in SUBJECTS {
        let payload = Bytes::from_static(b"first");
        let record = Record { subject: subject.to_owned(), message_id: None, payload };
        log.append(stream, record, Expect::Anything).await.unwrap();
    }
    let roles = [Role::Proxy, Role::Projector, Role::Upkeep, Role::Admin];
    let connections = join_all(roles.map(|role| connected(&server, role))).await;
    let checks = connections.iter().zip(roles).map(|(connection, role)| async move {
        tokio::join!(
            check_appends(connection, role),
            check_buckets(connection, role),
            check_purges(connection, role),
            // Nobody but the operator shapes the streams.
            async { assert!(connection.setup(&SetupConfig::single_node()).await.is_err(), "{role:?}") },
        );
    });
    join_all(checks).await;
    // Of the secrets only the newest are kept: what is read mustn't go while it is read.
    join_all(connections.iter().zip(roles).map(|(connection, role)| check_reads(connection, role))).await;
    for (connection, role) in connections.into_iter().zip(roles) {
        check_batch(&connection, role).await;
        connection.close().await;
    }
    // What was refused is nowhere.
    for (stream, subject) in SUBJECTS {
        for message in log.read(stream, 1, 100).await.unwrap() {
            let writer = String::from_utf8_lossy(&message.payload).into_owned();
            let role = Role::ALL.into_iter().find(|role| role.user() == writer);
            assert!(role.is_none_or(|role| may_append(role, &message.subject)), "{writer} wrote to {subject}");
        }
    }
    operator.close().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_without_the_password() {
    let dir = TempDir::new().unwrap();
    let config = ServerConfig { users: Role::ALL.map(user).to_vec(), ..ServerConfig::new(dir.path().join("nats")) };
    let server = Nats::start(&Launcher::UtilLinux, &Finder::new(dir.path()), config).await.unwrap();
    let config = NatsConfig::new(vec![server.url()], "admin".to_owned(), "guess".into(), "stranger".to_owned());
    let refused = tokio::time::timeout(PATIENCE, connect(config)).await;
    assert!(!matches!(refused, Ok(Ok(_))));
    server.stop().await.unwrap();
}
