//! Free ports on the loopback interface.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// `N` distinct ports that were free a moment ago. Another process may take one before it is used, so whoever starts
/// a server on one looks at why it failed and asks again.
///
/// # Errors
/// When the loopback interface gives no port.
pub fn free<const N: usize>() -> io::Result<[u16; N]> {
    // All are held at once, otherwise one port could be given twice.
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_distinct_and_can_be_bound() {
        let mut ports = free::<8>().unwrap();
        let _bound = ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
