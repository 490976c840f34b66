//! Sockets of checks that only connect: one does for many checks, one after the other.
//!
//! Such a check ends its connection with a reset. Disconnected in place of closed, the socket sends the same
//! reset, and keeps its options and its place with the driver: nothing is opened, closed, or registered for
//! each check, which is a third of what the kernel does for one.
//!
//! # Bounds
//! At most [`KEPT`] of each family lie here between two checks: as many as were under way at once, mostly one
//! to ten. They are closed when the lane stops.

use manylane_io::Stream;
use manylane_io::options::set_reset_on_close;
use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Sockets of one family that are kept.
const KEPT: usize = 256;

/// A lane's, of connectors that are [plain](manylane_net::Connector::is_plain).
#[derive(Default)]
pub(super) struct CheckSockets {
    v4: RefCell<Vec<Stream>>,
    v6: RefCell<Vec<Stream>>,
}

impl CheckSockets {
    fn of(&self, to: &SocketAddr) -> &RefCell<Vec<Stream>> {
        if to.is_ipv6() { &self.v6 } else { &self.v4 }
    }

    /// Whether a socket that was connected there is as good as new when it is disconnected. One that went to
    /// an IPv4 address by IPv6 goes on to do so, and one that went to a scope stays bound to it.
    pub(super) fn leaves_no_trace(to: &SocketAddr) -> bool {
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

    /// One that can be connected to `to`.
    pub(super) fn take(&self, to: &SocketAddr) -> Option<Stream> {
        self.of(to).borrow_mut().pop()
    }

    /// Resets the connection to `to`, and keeps its socket.
    pub(super) fn put(&self, to: &SocketAddr, stream: Stream) {
        let mut kept = self.of(to).borrow_mut();
        if kept.len() >= KEPT || stream.disconnect().is_err() {
            let _ = set_reset_on_close(stream.as_fd()); // else it waits
            return;
        }
        kept.push(stream);
    }

    /// Closes them.
    pub(super) fn clear(&self) {
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
