//! One queue: of a server, or of a backend for any of its servers.
//!
//! # Protocol
//! 1. A queue is a *line* for each group of lanes. A request waits in the line of its own group, under that
//!    line's lock. Each line publishes the key of its first one (`head`), so that who looks for the first of
//!    all locks one line only.
//! 2. How many wait is counted outside, in a word of whoever owns the queue ([`Claims`]). Who counts one down
//!    has the *right* to take one out. A request is in its line before it is counted, and who leaves counts
//!    itself down before it goes. So there are at least as many entries as rights that were taken and not
//!    used yet, and who has a right finds an entry.
//! 3. Who wants to leave when all entries are claimed by others stays as an *orphan*: one of the others takes
//!    it out and finds nobody.
//! 4. What became of a request stands in its slot: it is read under the line's lock by the one who waits, and
//!    stays until it was read.
//! 5. Each line counts those who were taken out of it to be served, beside its first key and under its lock;
//!    so each learns how many were served before it, as logs tell.
//! 6. Who has a right takes the first of its own line, unless another line's first came [`OVERTAKEN_BY`]
//!    before that one: a wake-up of another lane costs system calls of both. So nobody is overtaken by who
//!    came as much as that after it, and classes go strictly one after another.
//!
//! Nothing is woken under a lock.
//!
//! # Cost
//! Entering and leaving: the group's own lock; a heap of keys, `log2(n)` to enter, nothing to leave (entries
//! of those who left are skipped later, and swept when they are most). Taking one out: a load for each group,
//! and the lock of one line.

use crate::spec::Index;
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{CachePadded, LockClass, Mutex, MutexGuard, lane, relax};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::task::Waker;

static LINE: LockClass = LockClass::new("line of a server queue", 60);

/// Rule 6, in microseconds, the unit of keys.
const OVERTAKEN_BY: u64 = 1000;

/// The key of a line without entries.
const NOBODY: u64 = u64::MAX;

/// Who waits: woken once when its turn came or it must go elsewhere.
pub trait Waiter: Send {
    /// Wakes it. Called without a lock, from any lane.
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

/// Where a queue's number of waiting requests is kept (rule 2).
pub(crate) trait Claims {
    /// Counts one up, unless there are too many.
    fn add(&self) -> bool;
    /// Counts one down: a right to take one out. False when all are claimed.
    fn claim(&self) -> bool;
}

/// What became of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It may begin on this server: it counts there. With how many were served since it entered, itself
    /// included.
    Granted(Index, u64),
    /// Its server is gone.
    Elsewhere,
}

enum State<W> {
    Free,
    Waiting(W),
    /// Rule 3.
    Orphan,
    Done(Outcome),
}

struct Slot<W> {
    /// Which of those who used the slot this is: entries of earlier ones are skipped.
    user: u64,
    state: State<W>,
    /// How many had been served when it entered (rule 5).
    entered: u64,
}

struct Line<W> {
    slots: Vec<Slot<W>>,
    free: Vec<u32>,
    order: BinaryHeap<Reverse<Entry>>,
    /// Entries of `order` that somebody waits by.
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

/// A place in a queue. It must be given back: by [`Balancer::poll`](crate::Balancer::poll) or
/// [`Balancer::leave`](crate::Balancer::leave).
#[derive(Debug)]
#[must_use = "a place in a queue must be given back by `poll` or `leave`, or others wait behind it"]
pub struct QueuePosition {
    /// The server, or any.
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
        let place = &mut self.slots[slot as usize];
        place.state = State::Free;
        place.user = 0; // no user has this number
        self.free.push(slot);
    }

    /// The first entry that somebody waits by; those before it are dropped.
    fn first(&mut self) -> Option<Entry> {
        while let Some(&Reverse(entry)) = self.order.peek() {
            if self.is_live(entry) {
                return Some(entry);
            }
            self.order.pop();
        }
        None
    }

    /// Drops entries of those who left, when they are most.
    fn sweep(&mut self) {
        if self.order.len() > 2 * self.live + 32 {
            let mut entries = std::mem::take(&mut self.order).into_vec();
            entries.retain(|Reverse(entry)| self.is_live(*entry));
            self.order = entries.into();
        }
    }
}

impl<W: Waiter> Queue<W> {
    /// For so many lanes, so many of which share a line.
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

    /// How many lines it has.
    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The line of this lane's group. Lanes have the lowest numbers, and those of a group follow each other.
    fn own(&self) -> usize {
        lane::current().index() / self.lanes_per_group % self.lines.len()
    }

    /// The line whose first one is next (rule 6).
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

    /// Publishes the key of the first. Under the line's lock.
    fn publish(head: &Head<W>, line: &mut MutexGuard<'_, Line<W>>) {
        let key = line.first().map_or(NOBODY, |entry| entry.key);
        if head.head.load(Ordering::Relaxed) != key {
            // SeqCst: who has a right from counting down sees it (rule 2).
            head.head.store(key, Ordering::SeqCst);
        }
    }

    /// Enters behind all with a key up to `key`. None when `claims` has no room.
    pub(crate) fn enter(
        &self,
        server: Option<Index>,
        key: u64,
        waiter: W,
        claims: &impl Claims,
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
        // Rule 2: in its line before it is counted.
        if claims.add() {
            return Some(QueuePosition { server, line: number as u32, slot, user });
        }
        line.live -= 1;
        line.free(slot); // with the waiter, which was never woken
        line.sweep(); // else a queue that stays full keeps an entry for each that it refuses
        Self::publish(head, &mut line);
        None
    }

    /// How many were taken out to be served so far (rule 5).
    pub(crate) fn served(&self) -> u64 {
        self.lines.iter().map(|head| head.served.load(Ordering::Relaxed)).sum()
    }

    /// The key of the first of all, for comparing; it may be outdated.
    pub(crate) fn first_key(&self) -> u64 {
        self.lines.iter().map(|head| head.head.load(Ordering::SeqCst)).min().unwrap_or(NOBODY)
    }

    /// Takes the next one out and tells it that it may begin on a server; without one, that it must go
    /// elsewhere. For who has a right (rule 2). Gives who is to be woken; `None`: it had left (rule 3).
    pub(crate) fn take(&self, server: Option<Index>) -> Option<W> {
        loop {
            let head = self.next();
            let mut line = head.line.lock();
            let Some(entry) = line.first() else {
                drop(line); // another was faster; by rule 2 there is one for us
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
                    line.free(entry.slot); // an orphan reads nothing any more
                    None
                }
            };
            Self::publish(head, &mut line);
            return waiter;
        }
    }

    /// What became of the request; the ticket while nothing did, and then `waiter` is woken in place of the
    /// one before.
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

    /// Leaves. Gives what became of the request, if something did before it left.
    pub(crate) fn leave(&self, position: QueuePosition, claims: &impl Claims) -> Option<Outcome> {
        let head = &self.lines[position.line as usize];
        let mut line = head.line.lock();
        let slot = &mut line.slots[position.slot as usize];
        debug_assert_eq!(slot.user, position.user, "rule 4: it stays until it was read");
        if let State::Done(outcome) = slot.state {
            line.free(position.slot);
            return Some(outcome);
        }
        let waiter = std::mem::replace(&mut slot.state, State::Orphan); // rule 3, if it stays so
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

    impl Claims for Full {
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
