//! The place where an idle lane waits.

use crate::here::Here;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Wakes a lane that waits in its [`Poller`].
pub trait Unpark: Send + Sync {
    /// Makes the current poll, or otherwise the next one, return at once. Any thread may call this. It sets a
    /// token: several calls may end one poll.
    fn unpark(&self);
}

/// Source of events that a lane checks between its rounds: readiness of descriptors, completions of system
/// calls.
pub trait Poller {
    /// Returns the handle with which other threads wake this poller. Called once, before the first poll of a
    /// run.
    fn unparker(&self) -> Arc<dyn Unpark>;

    /// Wakes the tasks whose events have come. Waits at most `timeout` for an event: zero only checks, none
    /// waits without limit. It may return early for no reason.
    ///
    /// While it waits other lanes may be [isolated](crate::isolate): state of this lane that isolated code
    /// reads must not change before the next round.
    ///
    /// # Errors
    /// Errors after which the lane cannot go on; [`Lane::run`](crate::Lane::run) returns them.
    fn poll(&mut self, here: Here, timeout: Option<Duration>) -> io::Result<()>;

    /// True if a poll would do something, as far as is known without a system call: tasks to wake, operations
    /// to submit. A lane that [polls busily](crate::Config::busy_poll) calls this before it checks only its
    /// inbox for a while. Default: always true.
    fn has_work(&self) -> bool {
        true
    }
}

/// A poller for lanes without I/O, and for tests: it waits only for wake-ups from other lanes and for timers,
/// by parking the thread.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct ThreadPoller(());

#[cfg(not(loom))]
impl ThreadPoller {
    /// Creates a poller for the calling thread.
    pub fn new() -> Self {
        Self(())
    }
}

#[cfg(not(loom))]
impl Poller for ThreadPoller {
    fn unparker(&self) -> Arc<dyn Unpark> {
        struct Thread(std::thread::Thread);
        impl Unpark for Thread {
            fn unpark(&self) {
                self.0.unpark();
            }
        }
        Arc::new(Thread(std::thread::current()))
    }

    fn poll(&mut self, _: Here, timeout: Option<Duration>) -> io::Result<()> {
        match timeout {
            Some(Duration::ZERO) => {}
            Some(timeout) => std::thread::park_timeout(timeout),
            None => std::thread::park(),
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        false
    }
}
