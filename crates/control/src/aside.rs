//! The thread for work that takes long, and values that take long to free.

use manylane_sched::BlockingPool;
use std::ops::Deref;
use std::sync::OnceLock;

/// Capacity of the thread's queue.
const WAITING: usize = 256;

/// The thread for work that takes long. It belongs to the process and is never dropped: dropping a pool waits
/// for its threads, which would block the lane.
pub(crate) fn pool() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::named("aside", 1, WAITING))
}

/// Owns a value of a size that only its users bound, which a lane must not free. The thread for long work
/// frees it, wherever it is dropped. A job on that thread makes it, so that the result of a job for which
/// nobody waits is freed there, too.
#[derive(Debug)]
pub(crate) struct Owned<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send + 'static> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only Drop takes the value")
    }
}

impl<T: Send + 'static> Drop for Owned<T> {
    fn drop(&mut self) {
        // If the thread takes no more jobs, the value is freed here.
        drop(self.0.take().map(|value| pool().run(move || drop(value))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    /// Sends the thread that frees it.
    struct Freed(Sender<ThreadId>);

    impl Drop for Freed {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[test]
    fn the_thread_for_long_work_frees_the_value() {
        let (sender, receiver) = channel();
        let id = sender.clone();
        drop(pool().run(move || id.send(thread::current().id())).unwrap());
        let expected = receiver.recv().unwrap();
        drop(Owned::new(Freed(sender)));
        assert_eq!(receiver.recv().unwrap(), expected);
    }
}
