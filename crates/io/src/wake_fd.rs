//! How another lane ends this one's sleep: an event descriptor.

use manylane_sched::Unpark;
use manylane_sync::Arc;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Shared by the driver, which waits for it, and whoever wakes the lane. Closed when both have let go, so
/// that nobody writes into a number that has become something else.
pub(crate) struct WakeFd(OwnedFd);

impl WakeFd {
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Unpark for WakeFd {
    fn unpark(&self) {
        // It fails only when the counter is near 2^64: then it has rung, and nobody has listened.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}
