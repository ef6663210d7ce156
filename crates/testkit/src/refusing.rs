//! A base URL at which nobody listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A base URL whose port refuses connections. It is held by a socket that never listens for as long as this process
/// lives, so that no server is given it in the middle of a test.
///
/// # Panics
/// When no port can be had.
#[must_use]
pub fn refusing_url() -> String {
    match held_for_ever() {
        Ok(address) => format!("http://{address}/v1"),
        Err(error) => panic!("no free port: {error}"),
    }
}

fn held_for_ever() -> io::Result<SocketAddr> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = socket.local_addr()?;
    std::mem::forget(socket);
    Ok(address)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn it_refuses() {
        let address = held_for_ever().unwrap();
        let refused = TcpStream::connect(address).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::ConnectionRefused));
    }
}
