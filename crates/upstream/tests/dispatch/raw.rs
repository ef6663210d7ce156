//! A server that is scripted by bytes: each connection is handed to the script with its number.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use waybill_domain::observation::TransportFault;
use waybill_event::ChannelId;
use waybill_secret::{KeyRing, SecretString, Vault};
use waybill_upstream::{DispatchConfig, Dispatcher, Limits, Outbound, Reply, Target};
use waybill_wire::endpoint::BaseUrl;
use waybill_wire::headers::ToUpstream;

pub(crate) const BODY: &[u8] = br#"{"model":"m","messages":[]}"#;

/// The server; its tasks end with it.
pub(crate) struct Raw {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Raw {
    pub(crate) async fn serve<F, S>(script: F) -> Self
    where
        F: Fn(usize, TcpStream) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut scripts = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                scripts.spawn(script(counted.fetch_add(1, Ordering::SeqCst), stream));
            }
        });
        Self { address, connections, _tasks: tasks }
    }

    /// A server that reads one request per connection and answers with these bytes, then closes.
    pub(crate) async fn answer(answer: &'static str) -> Self {
        Self::serve(move |_, mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn dispatch(&self) -> Result<Reply, TransportFault> {
        dispatch(&self.url(), true, limits()).await
    }
}

/// Reads one request with its body; empty if the connection ended.
pub(crate) async fn read_request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
        if !matches!(stream.read_buf(&mut read).await, Ok(length) if length > 0) {
            return String::new();
        }
    }
}

/// Waits until the other side is gone; a bounded wait that fails the test.
pub(crate) async fn until_closed(stream: &mut TcpStream) {
    let closed = async {
        let mut piece = [0; 1024];
        while matches!(stream.read(&mut piece).await, Ok(length) if length > 0) {}
    };
    tokio::time::timeout(Duration::from_secs(1), closed).await.expect("the connection is closed within 1 s");
}

pub(crate) fn dispatcher() -> Dispatcher {
    // The first test of a process installs it; the others find it there.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Dispatcher::new(&DispatchConfig::default()).unwrap()
}

pub(crate) fn target(url: &str, allow_private: bool) -> Target {
    let vault = Vault::new(KeyRing::generate().unwrap());
    let sealed = vault.seal("channel", 1, &SecretString::from("sk-canary-0123456789")).unwrap();
    vault.take(&Vault::subject("channel", 1), 1, &sealed).unwrap();
    let bearer = vault.of_channel(1, 1).unwrap();
    Target::new(ChannelId::new(1).into(), BaseUrl::parse(url).unwrap(), &bearer, allow_private).unwrap()
}

pub(crate) fn outbound() -> Outbound<'static> {
    static NONE: LazyLock<ToUpstream> = LazyLock::new(ToUpstream::default);
    Outbound { path: "chat/completions", headers: &NONE, body: Bytes::from_static(BODY), accept_stream: false }
}

/// Limits that no test reaches unless it is about them.
pub(crate) fn limits() -> Limits {
    Limits { connect: Duration::from_secs(30), head: Duration::from_secs(30) }
}

pub(crate) async fn dispatch(url: &str, allow_private: bool, limits: Limits) -> Result<Reply, TransportFault> {
    dispatcher().dispatch(&target(url, allow_private), outbound(), limits).await
}
