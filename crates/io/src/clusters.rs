//! How many clusters a lane's connections may hold, and who waits for some (R-D4).
//!
//! 1. Only a receive that holds nothing waits: of a connection without a partial message and without unsent
//!    bytes. All others go on, one cluster at a time, so what is held is released sooner or later. Whoever
//!    sets the limit leaves room for them.
//! 2. Who waits stands in the lane's queue, in order. Before each look at the kernel the lane wakes as many
//!    as it has clusters for. No lane wakes another's.
//! 3. A newcomer waits behind those who wait. One that was woken and finds nothing goes to the front.
//! 4. `turn` of a source is [`Turn::Queued`] exactly while the queue has its key.

use crate::slab::Key;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

/// How often a lane looks for clusters while somebody waits and nothing else happens: those that other lanes
/// release, with bytes that came from here, are seen then.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// Whether a source waits for clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    #[default]
    None,
    Queued,
    /// It was woken, and has not received since.
    Offered,
}

pub(crate) struct Clusters {
    /// Clusters in use on this lane from which on a receive that holds nothing waits, and any other fills one
    /// at most.
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

    /// Whether anybody waits.
    #[inline]
    pub(crate) fn are_waited_for(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// How many clusters a receive of the source `key` may fill; none where it waits. `holds` tells whether
    /// anything of the connection is held, `idle` how many clusters the driver keeps for the kernel.
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

    /// Clusters in use. A lane counts those that it takes and those that it gives back: bytes that change
    /// lanes make that too many on one and too few on the other. Where the own count cannot be true, or would
    /// have somebody wait, the sum of all lanes is taken, which is always right.
    fn used(&self, idle: usize) -> usize {
        let own = manylane_buf::clusters_here() - idle as i64;
        match usize::try_from(own) {
            Ok(own) if own < self.most.get() => own,
            _ => usize::try_from(manylane_buf::clusters() - idle as i64).unwrap_or(0),
        }
    }

    /// Wakes who may go on. `take` gives the waker of a source of which the queue has the key, if it still
    /// waits. True if somebody was woken.
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

    /// The source is gone.
    pub(crate) fn forget(&self, key: Key, turn: Turn) {
        if turn == Turn::Queued {
            self.queue.borrow_mut().retain(|queued| *queued != key);
        }
    }
}
