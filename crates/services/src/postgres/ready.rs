//! Whether Postgres takes connections: its own pid file says so, as `pg_ctl` reads it, and it answers the first message
//! of its protocol, as `pg_isready` asks. The file keeps us from taking another server on the same port for ours.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::USER;

const DEADLINE: Duration = Duration::from_secs(2);
/// Protocol 3.0.
const PROTOCOL: u32 = 0x0003_0000;
/// Error code of a server that starts up, shuts down or recovers.
const CANNOT_CONNECT_NOW: &[u8] = b"57P03";
/// An error answer is shorter than this.
const ANSWER_BYTES: u64 = 512;

/// Whether the server with process `pid` and folder `data` would talk to a client on `port`.
pub(super) async fn accepts(pid: u32, data: &Path, port: u16) -> bool {
    let file = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    says_ready(&file, pid) && answers(port).await
}

/// First line: the process; eighth: its state.
fn says_ready(file: &str, pid: u32) -> bool {
    let mut lines = file.lines().map(str::trim);
    lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
}

async fn answers(port: u16) -> bool {
    matches!(tokio::time::timeout(DEADLINE, ask(port)).await, Ok(Ok(true)))
}

async fn ask(port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(&startup_message()).await?;
    let answer = stream.read_u8().await?;
    if answer != b'E' {
        // `R`: it asks for the password.
        return Ok(answer == b'R');
    }
    let mut rest = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut rest).await?;
    Ok(!rest.windows(CANNOT_CONNECT_NOW.len()).any(|part| part == CANNOT_CONNECT_NOW))
}

fn startup_message() -> Vec<u8> {
    let body = format!("user\0{USER}\0database\0postgres\0\0");
    // Length (itself included) and protocol, then the parameters.
    let length = u32::try_from(body.len() + 8).unwrap_or_default();
    [&length.to_be_bytes()[..], &PROTOCOL.to_be_bytes()[..], body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_startup_message_counts_itself() {
        let message = startup_message();
        assert_eq!(message.len(), usize::try_from(u32::from_be_bytes(message[..4].try_into().unwrap())).unwrap());
        assert!(message.ends_with(b"postgres\0\0"));
    }

    #[tokio::test]
    async fn nobody_there_is_no() {
        let held = crate::ports::hold::<1>().unwrap();
        let [port] = held.ports();
        assert!(!answers(port).await);
    }

    #[test]
    fn only_our_own_server_counts() {
        let file = |state: &str| format!("42\n/data\n1764466765\n5432\n\n127.0.0.1\n  98305  7\n{state}\n");
        assert!(says_ready(&file("ready   "), 42));
        assert!(!says_ready(&file("starting"), 42));
        assert!(!says_ready(&file("ready   "), 43));
        assert!(!says_ready("", 42));
    }
}
