//! One queue of requests: of a server, or of a backend for any of its servers.
//!
//! # Protocol
//! 1. A queue has a *line* for each group of lanes. A request waits in the line of its own group, under that
//!    line's lock. Each line publishes the key of its first request (`head`), so a search for the first of
//!    all locks one line only.
//! 2. The number of waiting requests is counted outside of the queue, in a word of its owner
//!    ([`WaiterCount`]). A thread that decrements this number gets a *claim*: the right to take one entry
//!    out. A request enters its line before it is counted, and a request that leaves decrements the number
//!    before it removes its entry. So there are at least as many entries as unused claims, and each claim
//!    finds an entry.
//! 3. If other threads have claimed all entries, a request that wants to leave stays as an *orphan*: one of
//!    those threads takes it out and wakes no task.
//! 4. The outcome of a request stands in its slot. The request reads it under the line's lock, and it stays
//!    there until then.
//! 5. Each line counts the requests that were taken out of it to be served, beside its first key and under
//!    its lock. From these counts a request learns how many were served while it waited, for logs.
//! 6. A thread with a claim takes the first request of its own line, unless another line's first request is
//!    older by at least [`OVERTAKEN_BY`]: waking a task of another lane costs system calls on both lanes. So
//!    no request overtakes one that came that much earlier, and classes are served strictly in order.
//!
//! No waiter is woken under a lock.
//!
//! # Cost
//! Entering and leaving: the lock of the own line, and a heap of keys. Entering takes `log2(n)` steps,
//! leaving none: the heap skips entries of requests that left, and a sweep drops them once they are the
//! majority. Taking a request out: one load for each line, and the lock of one line.

use crate::spec::Index;
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{CachePadded, LockClass, Mutex, MutexGuard, lane, relax};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::task::Waker;

static LINE: LockClass = LockClass::new("line of a server queue", 60);

/// Rule 6: microseconds, the unit of keys.
const OVERTAKEN_BY: u64 = 1000;

/// Key that a line without entries publishes.
const NOBODY: u64 = u64::MAX;

/// A waiting request, woken once: its turn came, or it must go elsewhere.
pub trait Waiter: Send {
    /// Wakes the request. Called without a lock held, from any lane.
    fn wake(self);
}

impl Waiter for Waker {
    fn wake(self) {
        Waker::wake(self);
    }
}

impl Waiter for manylane_sched::TaskId {
    fn wake(self) {
        manylane_sched::TaskId::wake(self);
    }
}

/// The counter of a queue's waiting requests (rule 2).
pub(crate) trait WaiterCount {
    /// Counts one request up. Returns false if too many wait already.
    fn add(&self) -> bool;
    /// Counts one request down and returns true: the caller has a claim. Returns false if no request is left
    /// to claim.
    fn claim(&self) -> bool;
}

/// Outcome of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The request may begin on this server, where it counts already. The number counts the requests served
    /// since it entered, itself included.
    Granted(Index, u64),
    /// The server takes no more requests.
    Elsewhere,
}

enum State<W> {
    Free,
    Waiting(W),
    /// The request left while other threads had claimed all entries (rule 3).
    Orphan,
    Done(Outcome),
}

struct Slot<W> {
    /// Number of the slot's current user: entries of earlier users are skipped.
    user: u64,
    state: State<W>,
    /// Number of requests served before it entered (rule 5).
    entered: u64,
}

struct Line<W> {
    slots: Vec<Slot<W>>,
    free: Vec<u32>,
    order: BinaryHeap<Reverse<Entry>>,
    /// Number of entries in `order` whose requests still wait.
    live: usize,
    users: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: u64,
    user: u64,
    slot: u32,
}

struct Head<W> {
    head: AtomicU64,
    /// Rule 5.
    served: AtomicU64,
    line: Mutex<Line<W>>,
}

/// See the module.
pub(crate) struct Queue<W> {
    lines: Box<[CachePadded<Head<W>>]>,
    lanes_per_group: usize,
}

/// Position of a request in a queue. Return it through [`Balancer::poll`](crate::Balancer::poll) or
/// [`Balancer::leave`](crate::Balancer::leave).
#[derive(Debug)]
#[must_use = "a position in a queue must be given back by `poll` or `leave`, or others wait behind it"]
pub struct QueuePosition {
    /// Server that the request waits for; `None` for any.
    pub(crate) server: Option<Index>,
    line: u32,
    slot: u32,
    user: u64,
}

impl<W> Line<W> {
    fn is_live(&self, entry: Entry) -> bool {
        let slot = &self.slots[entry.slot as usize];
        slot.user == entry.user && matches!(slot.state, State::Waiting(_) | State::Orphan)
    }

    fn free(&mut self, slot: u32) {
        let freed = &mut self.slots[slot as usize];
        freed.state = State::Free;
        freed.user = 0; // no user has this number
        self.free.push(slot);
    }

    /// Returns the first entry whose request still waits, and drops the entries before it.
    fn first(&mut self) -> Option<Entry> {
        while let Some(&Reverse(entry)) = self.order.peek() {
            if self.is_live(entry) {
                return Some(entry);
            }
            self.order.pop();
        }
        None
    }

    /// Drops the entries of requests that left, once they are the majority.
    fn sweep(&mut self) {
        if self.order.len() > 2 * self.live + 32 {
            let mut entries = std::mem::take(&mut self.order).into_vec();
            entries.retain(|Reverse(entry)| self.is_live(*entry));
            self.order = entries.into();
        }
    }
}

impl<W: Waiter> Queue<W> {
    /// Creates a queue for `lanes` lanes, of which `lanes_per_group` share one line.
    pub(crate) fn new(lanes: usize, lanes_per_group: usize) -> Self {
        let line = |_| {
            let line =
                Line { slots: Vec::new(), free: Vec::new(), order: BinaryHeap::new(), live: 0, users: 0 };
            CachePadded::new(Head {
                head: AtomicU64::new(NOBODY),
                served: AtomicU64::new(0),
                line: Mutex::new(&LINE, line),
            })
        };
        Self { lines: (0..lanes.max(1).div_ceil(lanes_per_group)).map(line).collect(), lanes_per_group }
    }

    /// Returns the number of lines.
    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns the line of this lane's group. Lanes have the lowest numbers, and lanes of a group have
    /// successive ones.
    fn own(&self) -> usize {
        lane::current().index() / self.lanes_per_group % self.lines.len()
    }

    /// Returns the line whose first request is next (rule 6).
    fn next(&self) -> &Head<W> {
        let key = |head: &Head<W>| head.head.load(Ordering::SeqCst);
        let own = &*self.lines[self.own()];
        let first = self.lines.iter().map(|head| (key(head), &**head)).min_by_key(|&(key, _)| key);
        match (key(own), first) {
            (of_own, Some((of_first, first)))
                if of_own == NOBODY || of_own >= of_first.saturating_add(OVERTAKEN_BY) =>
            {
                first
            }
            _ => own,
        }
    }

    /// Publishes the key of the first request. The caller holds the line's lock.
    fn publish(head: &Head<W>, line: &mut MutexGuard<'_, Line<W>>) {
        let key = line.first().map_or(NOBODY, |entry| entry.key);
        if head.head.load(Ordering::Relaxed) != key {
            // SeqCst: a thread that gets a claim by decrementing the count sees this key (rule 2).
            head.head.store(key, Ordering::SeqCst);
        }
    }

    /// Enters behind all requests with keys up to `key`. Returns `None` if `claims` refuses another request.
    pub(crate) fn enter(
        &self,
        server: Option<Index>,
        key: u64,
        waiter: W,
        claims: &impl WaiterCount,
    ) -> Option<QueuePosition> {
        let number = self.own();
        let head = &self.lines[number];
        let entered = self.served();
        let mut line = head.line.lock();
        line.users += 1;
        let user = line.users;
        let waiting = Slot { user, state: State::Waiting(waiter), entered };
        let slot = match line.free.pop() {
            Some(slot) => {
                line.slots[slot as usize] = waiting;
                slot
            }
            None => {
                line.slots.push(waiting);
                (line.slots.len() - 1) as u32
            }
        };
        line.order.push(Reverse(Entry { key: key.min(NOBODY - 1), user, slot }));
        line.live += 1;
        Self::publish(head, &mut line);
        // The request is in its line before it is counted (rule 2).
        if claims.add() {
            return Some(QueuePosition { server, line: number as u32, slot, user });
        }
        line.live -= 1;
        line.free(slot); // frees the waiter, which was never woken
        line.sweep(); // else a full queue keeps an entry for each request that it refuses
        Self::publish(head, &mut line);
        None
    }

    /// Returns the number of requests taken out to be served so far (rule 5).
    pub(crate) fn served(&self) -> u64 {
        self.lines.iter().map(|head| head.served.load(Ordering::Relaxed)).sum()
    }

    /// Returns the key of the first request of all lines, for comparisons. It may be outdated.
    pub(crate) fn first_key(&self) -> u64 {
        self.lines.iter().map(|head| head.head.load(Ordering::SeqCst)).min().unwrap_or(NOBODY)
    }

    /// Takes the next request out and grants it a permit of `server`; `None` sends it elsewhere. The caller
    /// has a claim (rule 2). Returns the waiter to wake, or `None` if the request had left (rule 3).
    pub(crate) fn take(&self, server: Option<Index>) -> Option<W> {
        loop {
            let head = self.next();
            let mut line = head.line.lock();
            let Some(entry) = line.first() else {
                drop(line); // another thread took it; by rule 2 there is one for this claim
                relax();
                continue;
            };
            line.order.pop();
            line.live -= 1;
            let slot = &mut line.slots[entry.slot as usize];
            let waiter = match std::mem::replace(&mut slot.state, State::Free) {
                State::Waiting(waiter) => {
                    slot.state = State::Done(match server {
                        None => Outcome::Elsewhere,
                        Some(index) => {
                            head.served.store(head.served.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                            Outcome::Granted(index, self.served() - slot.entered)
                        }
                    });
                    Some(waiter)
                }
                _ => {
                    line.free(entry.slot); // the request of an orphan reads no outcome
                    None
                }
            };
            Self::publish(head, &mut line);
            return waiter;
        }
    }

    /// Returns the outcome of the request. While there is none, returns the position again, and stores
    /// `waiter` in place of the earlier one.
    pub(crate) fn poll(&self, position: QueuePosition, waiter: W) -> Result<Outcome, QueuePosition> {
        let mut line = self.lines[position.line as usize].line.lock();
        let slot = &mut line.slots[position.slot as usize];
        debug_assert_eq!(slot.user, position.user, "rule 4: it stays until it was read");
        match &mut slot.state {
            State::Done(outcome) => {
                let outcome = *outcome;
                line.free(position.slot);
                Ok(outcome)
            }
            state => {
                let before = std::mem::replace(state, State::Waiting(waiter));
                drop(line);
                drop(before);
                Err(position)
            }
        }
    }

    /// Takes the request out of the queue. Returns its outcome if it got one before it left.
    pub(crate) fn leave(&self, position: QueuePosition, claims: &impl WaiterCount) -> Option<Outcome> {
        let head = &self.lines[position.line as usize];
        let mut line = head.line.lock();
        let slot = &mut line.slots[position.slot as usize];
        debug_assert_eq!(slot.user, position.user, "rule 4: it stays until it was read");
        if let State::Done(outcome) = slot.state {
            line.free(position.slot);
            return Some(outcome);
        }
        let waiter = std::mem::replace(&mut slot.state, State::Orphan); // rule 3
        if claims.claim() {
            line.live -= 1;
            line.free(position.slot);
            line.sweep();
            Self::publish(head, &mut line);
        }
        drop(line);
        drop(waiter);
        None
    }
}

impl<W> fmt::Debug for Queue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;
    use std::task::Waker;

    struct Full;

    impl WaiterCount for Full {
        fn add(&self) -> bool {
            false
        }

        fn claim(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_queue_that_is_full_keeps_nothing_of_those_that_it_refuses() {
        let queue: Queue<Waker> = Queue::new(1, 1);
        for _ in 0..10_000 {
            assert!(queue.enter(None, 7, Waker::noop().clone(), &Full).is_none());
        }
        let line = queue.lines[0].line.lock();
        assert!(line.order.len() < 100 && line.slots.len() < 100, "{} entries", line.order.len());
    }
}
