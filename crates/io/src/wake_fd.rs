//! The event descriptor by which other lanes end this lane's sleep.

use manylane_sched::Unpark;
use manylane_sync::Arc;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Shared by the driver, which waits for it, and by the threads that wake the lane. Closed when all have
/// dropped it, so that no thread writes to a reused descriptor number.
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
        // Fails only if the counter is near 2^64: then the descriptor is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}
