//! A limit of concurrent permits, for connections of the process, of a frontend or of a listener (`maxconn`).
//!
//! # Protocol
//! 1. `taken` changes by compare-and-swap and never exceeds `most`. But `most` may become smaller, and a
//!    connection that moves to another generation's limit takes a permit in any case.
//! 2. A task that finds no permit locks the queue, sets `waiting`, tries once more, and queues its waker only
//!    if that fails, too.
//! 3. A task that returns a permit does so first and reads `waiting` then. Each side has a fence between its
//!    two steps, so either the waiter sees the permit or the releasing task sees the waiter.
//! 4. A woken waiter tries again like any other task. It may lose to a newcomer and then waits again. It is
//!    in the queue at most once, however often it is polled.
//! 5. A waiter that gives up leaves the queue. If it was woken already, it wakes the next waiter instead.
//!
//! # Cost
//! Two locked operations on one cache line for each *connection*; nothing for a request. Without a limit:
//! nothing at all.

use manylane_sync::atomic::{AtomicU64, Ordering, fence};
use manylane_sync::{CachePadded, LockClass, Mutex, update};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

static WAITERS: LockClass = LockClass::new("waiters of a connection limit", LockClass::LEAF);

/// A limit of concurrent permits.
#[derive(Debug)]
pub struct ConnLimit {
    /// Number of permits; 0 for no limit.
    most: AtomicU64,
    /// Number of permits in the configuration; an operator may change `most`.
    given: AtomicU64,
    taken: CachePadded<AtomicU64>,
    /// How often the last permit was taken.
    filled: AtomicU64,
    waiting: AtomicU64,
    waiters: Mutex<Waiters>,
}

/// Waiters in order of arrival.
#[derive(Debug, Default)]
struct Waiters {
    queue: VecDeque<(u64, Waker)>,
    /// Number of the last waiter.
    next: u64,
}

/// Waits for a permit: [`ConnLimit::enter`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Enter<'a> {
    conn_limit: &'a ConnLimit,
    /// Number of this waiter while it is in the queue, or was woken from there.
    number: Option<u64>,
}

impl ConnLimit {
    /// Returns a limit of `most` permits; 0 for no limit.
    pub fn new(most: u32) -> Self {
        Self {
            most: AtomicU64::new(most.into()),
            given: AtomicU64::new(most.into()),
            taken: CachePadded::new(AtomicU64::new(0)),
            filled: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            waiters: Mutex::new(&WAITERS, Waiters::default()),
        }
    }

    /// Returns the number of permits; 0 for no limit.
    #[inline]
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Returns the number of permits in the configuration.
    #[inline]
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Sets the limit of the configuration. If it has not changed, a limit that an operator has set stays.
    pub fn give(&self, most: u64) {
        // Only the thread that builds and starts generations calls this.
        if self.given.swap(most, Ordering::Relaxed) != most {
            self.set_most(most);
        }
    }

    /// Changes the limit. While permits are in use, neither the old nor the new limit may be 0: without a
    /// limit nothing is counted.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::SeqCst);
        fence(Ordering::SeqCst); // rule 3: a waiter sees the limit, or is seen here
        let woken = {
            let mut waiters = self.waiters.lock();
            self.waiting.store(0, Ordering::SeqCst);
            std::mem::take(&mut waiters.queue)
        };
        woken.into_iter().for_each(|(_, waker)| waker.wake()); // outside of the lock
    }

    /// Returns the number of permits in use; 0 without a limit.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns how often the last permit was taken since the start.
    #[inline]
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Returns true if no permit is free.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.most() > 0 && self.taken() >= self.most()
    }

    /// Returns true if a task waits for a permit.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes a permit if one is free. The caller has to return it with [`leave`](Self::leave).
    #[must_use]
    #[inline]
    pub fn try_enter(&self) -> bool {
        let most = self.most();
        if most == 0 {
            return true;
        }
        let took = update(&*self.taken, Ordering::SeqCst, Ordering::SeqCst, |taken| {
            (taken < most).then_some(taken + 1)
        });
        if took.is_ok_and(|before| before + 1 == most) {
            self.filled.fetch_add(1, Ordering::Relaxed);
        }
        took.is_ok()
    }

    /// Waits for a permit and takes it. The caller has to return it with [`leave`](Self::leave).
    #[inline]
    pub fn enter(&self) -> Enter<'_> {
        Enter { conn_limit: self, number: None }
    }

    /// Takes a permit even if none is free, for a connection that another limit has admitted.
    #[inline]
    pub fn enter_anyway(&self) {
        if self.most() > 0 {
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Returns a permit.
    #[inline]
    pub fn leave(&self) {
        if self.most() == 0 {
            return;
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst); // rule 3
        self.wake_one();
    }

    fn wake_one(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut waiters = self.waiters.lock();
            let next = waiters.queue.pop_front();
            self.waiting.store(waiters.queue.len() as u64, Ordering::SeqCst);
            drop(waiters);
            if let Some((_, waker)) = next {
                waker.wake(); // outside of the lock
            }
        }
    }
}

impl Enter<'_> {
    /// Removes the waiter from the queue. Returns false if it was woken before.
    fn forget(&mut self, waiters: &mut Waiters) -> bool {
        let Some(number) = self.number.take() else { return true };
        let index = waiters.queue.iter().position(|(other, _)| *other == number);
        let waker = index.and_then(|position| waiters.queue.remove(position));
        self.conn_limit.waiting.store(waiters.queue.len() as u64, Ordering::SeqCst);
        waker.is_some()
    }
}

impl Future for Enter<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let conn_limit = self.conn_limit;
        if self.number.is_none() && conn_limit.try_enter() {
            return Poll::Ready(());
        }
        let mut waiters = conn_limit.waiters.lock();
        conn_limit.waiting.store(waiters.queue.len() as u64 + 1, Ordering::SeqCst); // rule 2
        fence(Ordering::SeqCst); // rule 3
        if conn_limit.try_enter() {
            self.forget(&mut waiters); // sets `waiting` to the right number
            conn_limit.waiting.store(waiters.queue.len() as u64, Ordering::SeqCst);
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let queued =
            self.number.and_then(|number| waiters.queue.iter_mut().find(|(other, _)| *other == number));
        let before = match queued {
            Some((_, slot)) => Some(std::mem::replace(slot, waker)),
            None => {
                waiters.next += 1;
                self.number = Some(waiters.next);
                let entry = (waiters.next, waker);
                waiters.queue.push_back(entry);
                None
            }
        };
        conn_limit.waiting.store(waiters.queue.len() as u64, Ordering::SeqCst);
        drop(waiters);
        drop(before); // outside of the lock
        Poll::Pending
    }
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        if self.number.is_none() {
            return; // never waited, or has its permit
        }
        let conn_limit = self.conn_limit;
        let there = self.forget(&mut conn_limit.waiters.lock());
        if !there {
            conn_limit.wake_one(); // rule 5
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_permits_are_taken_than_there_are() {
        let conn_limit = ConnLimit::new(2);
        assert!(conn_limit.try_enter() && conn_limit.try_enter() && !conn_limit.try_enter());
        assert_eq!(conn_limit.filled(), 1);
        conn_limit.leave();
        assert!(conn_limit.try_enter() && !conn_limit.try_enter());
        assert!(ConnLimit::new(0).try_enter());
    }

    #[test]
    fn a_bound_that_grows_lets_waiters_in_and_one_that_shrinks_throws_nobody_out() {
        let (conn_limit, waker) = (ConnLimit::new(1), std::task::Waker::noop());
        assert!(conn_limit.try_enter());
        let mut waiting = std::pin::pin!(conn_limit.enter());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        conn_limit.set_most(2);
        assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_ready());
        conn_limit.set_most(1);
        conn_limit.leave();
        assert!(!conn_limit.try_enter(), "one is still in");
        conn_limit.leave();
        assert!(conn_limit.try_enter());
        conn_limit.enter_anyway();
        assert_eq!(conn_limit.taken(), 2);
    }
}
