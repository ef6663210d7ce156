//! Whether the server is healthy: it has written down its ports, and its monitoring page says so. The file keeps us from
//! taking another server on the same port for ours.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(2);
const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// The status line is all that is read.
const STATUS_BYTES: usize = "HTTP/1.1 200".len();

/// Whether the server with process `pid`, run from `program`, listens and has said so in `dir`.
pub(super) fn listens(dir: &Path, program: &Path, pid: u32) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    dir.join(format!("{name}_{pid}.ports")).exists()
}

/// Removes what killed servers left: a successor might get the same process id.
pub(super) fn forget_earlier(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("ports")) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Whether `/healthz` answers 200 in time.
pub(super) async fn healthy(monitor_port: u16) -> bool {
    matches!(tokio::time::timeout(DEADLINE, status(monitor_port)).await, Ok(Ok(line)) if line.ends_with(b" 200"))
}

async fn status(port: u16) -> io::Result<[u8; STATUS_BYTES]> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(REQUEST).await?;
    let mut line = [0; STATUS_BYTES];
    stream.read_exact(&mut line).await?;
    Ok(line)
}
