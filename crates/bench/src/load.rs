//! The client's side: requests as bytes over kept connections, answers read to their end and no further.

mod paced;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::measure::percentile;
use crate::peers::Peers;
use crate::process;
use crate::request::Kind;
use crate::upstream::content_length;

pub(crate) use paced::paced;

/// What load goes where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the server.
    #[arg(long)]
    to: SocketAddr,
    /// A client key.
    #[arg(long, default_value = "unused")]
    token: String,
    /// Kind of the requests.
    #[arg(long, value_enum, default_value_t = Kind::Small)]
    kind: Kind,
    /// Requests at the same time.
    #[arg(long, default_value_t = 16)]
    at_once: usize,
    /// Requests in all.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Port of an upstream that stands on the clients' thread, as it does while something is measured.
    #[arg(long, default_value_t = 0)]
    upstream_port: u16,
    /// Requests a second, instead of as many as are answered.
    #[arg(long)]
    rate: Option<u32>,
    /// A process whose CPU time is printed, per request.
    #[arg(long)]
    pid: Option<u32>,
}

/// Sends load.
///
/// # Errors
/// A request isn't answered with a success.
pub(crate) async fn run(args: Args) -> Result<()> {
    let request = args.kind.bytes(&args.to.to_string(), &args.token);
    let cpu = || args.pid.map_or(Duration::ZERO, |pid| process::cpu(&[pid]));
    let (before, began) = (cpu(), Instant::now());
    let peers = Peers::start(args.upstream_port)?;
    if let Some(rate) = args.rate {
        let time = Duration::from_secs_f64(f64::from(u32::try_from(args.requests)?) / f64::from(rate));
        peers.go_first();
        let times = peers.at_ease(paced(args.to, request, rate, time)).await?;
        let [p50, p90, p99, most] = [50, 90, 99, 100].map(|percent| percentile(&times, percent));
        println!("p50 {p50:?}, p90 {p90:?}, p99 {p99:?}, at most {most:?}");
    } else {
        let sending = closed(args.to, request, args.at_once, args.requests);
        if args.kind == Kind::Stream { peers.at_ease(sending).await? } else { peers.awake(sending).await? }
    }
    let each = |time: Duration| time / u32::try_from(args.requests).unwrap_or(u32::MAX);
    println!("{:?} and {:?} of CPU time per request", each(began.elapsed()), each(cpu().saturating_sub(before)));
    Ok(())
}

/// How many open at the same time when many are to be held open.
const OPENING: usize = 32;

/// Where the head of a message ends, the blank line included.
pub(crate) fn head_end(buffer: &[u8]) -> Option<usize> {
    memchr::memmem::find(buffer, b"\r\n\r\n").map(|at| at + 4)
}

/// A connection of a client.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
}

enum Length {
    Known(usize),
    Chunked,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens.
    pub(crate) async fn open(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to).await.with_context(|| format!("connecting to {to}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::with_capacity(16 * 1024) })
    }

    /// Sends a request and reads its answer to the end.
    ///
    /// # Errors
    /// It isn't a success, or breaks off.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<()> {
        match self.head(request).await? {
            Length::Known(length) => self.skip(length).await,
            Length::Chunked => {
                while self.chunk().await? > 0 {}
                Ok(())
            }
        }
    }

    /// Sends a request and reads the first chunk of its answer.
    ///
    /// # Errors
    /// It isn't a success, or isn't streamed.
    pub(crate) async fn begin(&mut self, request: &[u8]) -> Result<()> {
        match self.head(request).await? {
            Length::Known(_) => bail!("the answer isn't streamed"),
            Length::Chunked => self.chunk().await.map(|_| ()),
        }
    }

    async fn head(&mut self, request: &[u8]) -> Result<Length> {
        self.stream.write_all(request).await?;
        let end = loop {
            if let Some(end) = head_end(&self.buffer) {
                break end;
            }
            self.more().await?;
        };
        let head = self.buffer.split_to(end);
        if !head.starts_with(b"HTTP/1.1 200") {
            self.more().await?;
            bail!("{}{}", String::from_utf8_lossy(&head), String::from_utf8_lossy(&self.buffer));
        }
        Ok(content_length(&head).map_or(Length::Chunked, Length::Known))
    }

    async fn more(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the connection ended within an answer");
        }
        Ok(())
    }

    async fn skip(&mut self, mut length: usize) -> Result<()> {
        loop {
            let here = length.min(self.buffer.len());
            self.buffer.advance(here);
            length -= here;
            if length == 0 {
                return Ok(());
            }
            self.more().await?;
        }
    }

    /// Reads one chunk of the transfer encoding and gives its length; 0 is the last one.
    async fn chunk(&mut self) -> Result<usize> {
        let line = loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                break self.buffer.split_to(end + 1);
            }
            self.more().await?;
        };
        let digits = std::str::from_utf8(line.trim_ascii()).context("a chunk's length")?;
        let length = usize::from_str_radix(digits, 16).with_context(|| format!("a chunk's length: {digits:?}"))?;
        self.skip(length + 2).await?;
        Ok(length)
    }
}

/// Sends `requests` requests, `at_once` at the same time, each as soon as one before has been answered.
///
/// # Errors
/// One isn't answered with a success.
pub(crate) async fn closed(to: SocketAddr, request: Bytes, at_once: usize, requests: usize) -> Result<()> {
    let taken = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..at_once {
        let (taken, request) = (taken.clone(), request.clone());
        clients.spawn(async move {
            let mut connection = Connection::open(to).await?;
            while taken.fetch_add(1, Ordering::Relaxed) < requests {
                connection.ask(&request).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.context("a client")??;
    }
    Ok(())
}

/// Opens so many streams and keeps them open.
///
/// # Errors
/// One isn't answered with a success.
pub(crate) async fn hold(to: SocketAddr, request: &Bytes, streams: usize) -> Result<Vec<Connection>> {
    let mut open = Vec::with_capacity(streams);
    while open.len() < streams {
        let mut opening = JoinSet::new();
        for _ in 0..OPENING.min(streams - open.len()) {
            let request = request.clone();
            opening.spawn(async move {
                let mut connection = Connection::open(to).await?;
                connection.begin(&request).await?;
                anyhow::Ok(connection)
            });
        }
        while let Some(opened) = opening.join_next().await {
            open.push(opened.context("a client")??);
        }
    }
    Ok(open)
}
