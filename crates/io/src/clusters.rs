//! The limit on the clusters of a lane's connections, and the queue of receives that wait for some (R-D4).
//!
//! 1. Only a receive that holds nothing waits: that of a connection without a partial message and without
//!    unsent bytes. All others go on, one cluster at a time, so held clusters are released sooner or later.
//!    The limit must leave room for them.
//! 2. Waiters are in the lane's queue, in order. Before each check of the kernel the lane wakes as many as it
//!    has clusters for. No lane wakes another's.
//! 3. A new waiter goes behind the others. One that was woken and finds nothing goes to the front.
//! 4. `turn` of a source is [`Turn::Queued`] exactly while the queue has its key.

use crate::slab::Key;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

/// Interval at which a lane checks for clusters while a receive waits and nothing else happens: other lanes
/// may have released clusters with bytes from here.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// State of a source in the queue for clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    #[default]
    None,
    Queued,
    /// The lane woke it, and it has not received since.
    Offered,
}

pub(crate) struct Clusters {
    /// Limit on the clusters in use on this lane. At the limit a receive that holds nothing waits, and any
    /// other receive fills at most one cluster.
    most: Cell<usize>,
    queue: RefCell<VecDeque<Key>>,
}

impl Clusters {
    pub(crate) const fn new() -> Self {
        Self { most: Cell::new(usize::MAX), queue: RefCell::new(VecDeque::new()) }
    }

    pub(crate) fn limit(&self, most: usize) {
        self.most.set(most.max(1));
    }

    #[inline]
    pub(crate) fn are_limited(&self) -> bool {
        self.most.get() != usize::MAX
    }

    /// True if a receive waits.
    #[inline]
    pub(crate) fn are_waited_for(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Returns how many clusters a receive of the source `key` may fill; none if it must wait. `holds` is
    /// true if the connection holds clusters; `idle` is the number of clusters that the driver keeps for the
    /// kernel.
    #[inline]
    pub(crate) fn ask(&self, key: Key, turn: &mut Turn, holds: bool, idle: usize) -> Option<usize> {
        if self.are_limited() { self.ask_limited(key, turn, holds, idle) } else { Some(usize::MAX) }
    }

    #[cold]
    fn ask_limited(&self, key: Key, turn: &mut Turn, holds: bool, idle: usize) -> Option<usize> {
        let used = self.used(idle);
        let mut queue = self.queue.borrow_mut();
        if !holds && (used >= self.most.get() || *turn != Turn::Offered && !queue.is_empty()) {
            match std::mem::replace(turn, Turn::Queued) {
                Turn::None => queue.push_back(key),
                Turn::Queued => {}
                Turn::Offered => queue.push_front(key),
            }
            return None;
        }
        if *turn == Turn::Offered {
            *turn = Turn::None;
        }
        Some(self.most.get().saturating_sub(used).max(1))
    }

    /// Returns the number of clusters in use. A lane counts the clusters that it allocates and those that it
    /// frees: bytes that change lanes make the count too high on one and too low on the other. If the own
    /// count cannot be true, or would make a receive wait, this returns the sum of all lanes, which is always
    /// right.
    fn used(&self, idle: usize) -> usize {
        let own = manylane_buf::clusters_here() - idle as i64;
        match usize::try_from(own) {
            Ok(own) if own < self.most.get() => own,
            _ => usize::try_from(manylane_buf::clusters() - idle as i64).unwrap_or(0),
        }
    }

    /// Wakes the waiters that may go on. `take` returns the waker of a queued source, if it still waits.
    /// Returns true if it woke any.
    #[cold]
    pub(crate) fn offer(&self, idle: usize, take: impl Fn(Key) -> Option<Waker>) -> bool {
        let mut woken = 0;
        let room = self.most.get().saturating_sub(self.used(idle));
        while woken < room {
            let Some(key) = self.queue.borrow_mut().pop_front() else { break };
            if let Some(waker) = take(key) {
                waker.wake(); // rule 2 of the core
                woken += 1;
            }
        }
        woken > 0
    }

    /// Removes a source that is released.
    pub(crate) fn forget(&self, key: Key, turn: Turn) {
        if turn == Turn::Queued {
            self.queue.borrow_mut().retain(|queued| *queued != key);
        }
    }
}
