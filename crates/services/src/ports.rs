//! Ports on the loopback interface that nobody else is given while we hold them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// `N` distinct ports of a server, held as long as this value lives: bound and never listened on. A server that may share
/// its address with sockets that don't listen (`SO_REUSEADDR`, as nats-server, Postgres and HAProxy ask for) listens on
/// one all the same; the system gives it to nobody else, neither to who asks for any free port nor to a connection that
/// goes out, and that also while the server is down and starts again.
///
/// Linux alone lets two sockets share a port in this way. Elsewhere the ports were free a moment ago and aren't held.
/// Whoever asks for a port by its number gets it everywhere, so whoever starts a server looks at why it failed.
#[derive(Debug)]
pub struct Held<const N: usize> {
    ports: [u16; N],
    _sockets: Vec<TcpSocket>,
}

impl<const N: usize> Held<N> {
    /// The ports.
    #[must_use]
    pub fn ports(&self) -> [u16; N] {
        self.ports
    }

    /// Ports that aren't held, so that a test can give one that somebody has taken.
    #[cfg(test)]
    pub(crate) fn unheld(ports: [u16; N]) -> Self {
        Self { ports, _sockets: Vec::new() }
    }
}

/// Holds `N` free ports.
///
/// # Errors
/// When the loopback interface gives no port.
pub fn hold<const N: usize>() -> io::Result<Held<N>> {
    let mut ports = [0; N];
    // All are held at once, otherwise one port could be given twice.
    let mut sockets = Vec::with_capacity(N);
    for port in &mut ports {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        *port = socket.local_addr()?.port();
        sockets.push(socket);
    }
    if !cfg!(target_os = "linux") {
        sockets.clear();
    }
    Ok(Held { ports, _sockets: sockets })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// How many listeners ask for a port. The system has some 14000 to give, so with 64 of them held, one would be given
    /// to a listener all but surely if holding did nothing.
    const LISTENERS: usize = 2000;

    fn any_port() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn they_are_distinct_and_a_server_can_listen_on_them() {
        let held = hold::<8>().unwrap();
        let mut ports = held.ports();
        let _listening = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_held_port_is_given_to_nobody_before_during_and_after_its_server_runs() {
        let held = hold::<64>().unwrap();
        let given = || (0..LISTENERS).map(|_| any_port()).find(|port| held.ports().contains(port));
        assert_eq!(given(), None);
        let listening = held.ports().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        assert_eq!(given(), None);
        drop(listening);
        assert_eq!(given(), None);
        let others: Vec<Held<8>> = (0..16).map(|_| hold().unwrap()).collect();
        assert!(others.iter().flat_map(Held::ports).all(|port| !held.ports().contains(&port)));
    }

    #[test]
    fn nobody_listens_on_a_held_port() {
        let held = hold::<1>().unwrap();
        let [port] = held.ports();
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::ConnectionRefused));
    }
}
