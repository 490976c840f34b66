//! Sockets of checks that only connect: one does for many checks, one after the other.
//!
//! Such a check ends its connection with a reset. Disconnected in place of closed, the socket sends the same reset, and keeps its options and its
//! place with the driver: nothing is opened, closed, or registered for each check, which is a third of what the kernel does for one.
//!
//! # Bounds
//! At most [`KEPT`] of each family lie here between two checks: as many as were under way at once, mostly one to ten. They are closed when the lane stops.

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
