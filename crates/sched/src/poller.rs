//! Where a lane waits when it has nothing to do.

use crate::here::Here;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Wakes a lane that waits in its [`Poller`].
pub trait Unpark: Send + Sync {
    /// Makes the poll that is going on, or else the next one, return at once. From any thread. A token is
    /// enough: several calls may end one poll.
    fn unpark(&self);
}

/// What a lane looks at between its rounds: readiness of descriptors, completions of system calls.
pub trait Poller {
    /// How others wake this poller. Called once, before the first poll of a run.
    fn unparker(&self) -> Arc<dyn Unpark>;

    /// Wakes the tasks whose events have come. Waits for one at most `timeout`: zero looks only, none waits
    /// for ever. It may return early for no reason.
    ///
    /// While it waits other lanes may be [isolated](crate::isolate): what isolated code reads of this lane
    /// must not change before the round that follows.
    ///
    /// # Errors
    /// What makes it senseless to go on; [`Lane::run`](crate::Lane::run) returns it.
    fn poll(&mut self, here: Here, timeout: Option<Duration>) -> io::Result<()>;

    /// Whether a look would do something, as far as that is known without a system call: tasks to wake,
    /// operations to pass on. A lane that [polls busily](crate::Config::busy_poll) asks before it looks
    /// at its inbox alone for a while. By default always.
    fn has_work(&self) -> bool {
        true
    }
}

/// Waits for nothing but wake-ups from other lanes and timers, by the thread's own parking place. For lanes
/// without I/O, and for tests.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct ThreadPoller(());

#[cfg(not(loom))]
impl ThreadPoller {
    /// For the calling thread.
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
