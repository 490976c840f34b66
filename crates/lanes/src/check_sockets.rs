//! Sockets of checks that only connect: one socket serves many checks, one after another.
//!
//! Such a check ends its connection with a reset. Disconnecting the socket instead of closing it sends the
//! same reset, and the socket keeps its options and its registration with the driver. No check then opens,
//! closes or registers a socket, which saves a third of the kernel's work for a check.
//!
//! # Bounds
//! At most [`KEPT`] sockets of each family are kept between checks: as many as were in use at once, mostly
//! one to ten. They are closed when the lane stops.

use manylane_io::Stream;
use manylane_io::options::set_reset_on_close;
use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Most sockets of one family that are kept.
const KEPT: usize = 256;

/// Kept sockets of a lane, for connectors that are [plain](manylane_net::Connector::is_plain).
#[derive(Default)]
pub struct CheckSockets {
    v4: RefCell<Vec<Stream>>,
    v6: RefCell<Vec<Stream>>,
}

impl CheckSockets {
    fn of(&self, to: &SocketAddr) -> &RefCell<Vec<Stream>> {
        if to.is_ipv6() { &self.v6 } else { &self.v4 }
    }

    /// Returns true if a socket that was connected to this address is as good as new once it is disconnected.
    /// A socket that reached an IPv4 address by IPv6 keeps doing so, and a socket that reached a scope stays
    /// bound to it.
    pub fn leaves_no_trace(to: &SocketAddr) -> bool {
        match to {
            SocketAddr::V4(_) => true,
            SocketAddr::V6(to) => {
                let ip = to.ip();
                to.scope_id() == 0
                    && ip.to_ipv4_mapped().is_none()
                    && !ip.is_unicast_link_local()
                    && !ip.is_multicast()
            }
        }
    }

    /// Takes a socket that can be connected to `to`.
    pub fn take(&self, to: &SocketAddr) -> Option<Stream> {
        self.of(to).borrow_mut().pop()
    }

    /// Resets the connection to `to` and keeps its socket.
    pub fn put(&self, to: &SocketAddr, stream: Stream) {
        let mut kept = self.of(to).borrow_mut();
        if kept.len() >= KEPT || stream.disconnect().is_err() {
            // without the reset the connection would stay in TIME_WAIT
            let _ = set_reset_on_close(stream.as_fd());
            return;
        }
        kept.push(stream);
    }

    /// Closes all kept sockets.
    pub(crate) fn clear(&self) {
        drop((self.v4.take(), self.v6.take()));
    }
}

impl fmt::Debug for CheckSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckSockets({} + {})", self.v4.borrow().len(), self.v6.borrow().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_traces_is_not_connected_again() {
        let leaves_none = |to: &str| CheckSockets::leaves_no_trace(&to.parse().unwrap());
        for to in ["127.0.0.1:80", "[::1]:80", "[2001:db8::1]:80"] {
            assert!(leaves_none(to), "{to}");
        }
        for to in ["[::ffff:10.0.0.1]:80", "[fe80::1]:80", "[fe80::1%3]:80", "[2001:db8::1%3]:80"] {
            assert!(!leaves_none(to), "{to}");
        }
    }
}
