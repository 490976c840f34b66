//! A bounded number of places, for connections of the process, of a frontend or of a listener (`maxconn`).
//!
//! # Protocol
//! 1. `taken` is changed by compare-and-swap, never above `most`.
//! 2. Who finds no place takes the queue's lock, says so in `waiting`, tries once more, and leaves a waker only if that fails too.
//! 3. Who gives a place back does so first and looks at `waiting` then. Both sides use the one order of `SeqCst`: so the one that
//!    waits sees the place, or the one that gives sees the one that waits.
//! 4. A woken waiter tries again like anybody else. It may lose to a newcomer, and waits again.
//!
//! # Cost
//! Two locked operations on one line for each *connection*; nothing for a request. Without a bound: nothing at all.

use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{CachePadded, LockClass, Mutex};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

static WAITERS: LockClass = LockClass::new("places", LockClass::LEAF);

/// So many places.
#[derive(Debug)]
pub struct Places {
    /// 0 for no bound.
    most: u64,
    taken: CachePadded<AtomicU64>,
    waiting: AtomicU64,
    waiters: Mutex<VecDeque<Waker>>,
}

impl Places {
    /// `most` places; 0 for no bound.
    pub fn new(most: u32) -> Self {
        Self {
            most: most.into(),
            taken: CachePadded::new(AtomicU64::new(0)),
            waiting: AtomicU64::new(0),
            waiters: Mutex::new(&WAITERS, VecDeque::new()),
        }
    }

    /// How many there are; 0 for no bound.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Changes the bound, before anybody uses it.
    pub fn set_most(&mut self, most: u64) {
        self.most = most;
    }

    /// How many are taken; 0 without a bound.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a place, if one is free. It is held until [`leave`](Self::leave).
    #[must_use]
    pub fn try_enter(&self) -> bool {
        if self.most == 0 {
            return true;
        }
        let took = self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
            (taken < self.most).then_some(taken + 1)
        });
        took.is_ok()
    }

    /// Takes a place, as soon as one is free. It is held until [`leave`](Self::leave).
    pub async fn enter(&self) {
        poll_fn(|context| {
            if self.try_enter() {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.lock();
            self.waiting.store(waiters.len() as u64 + 1, Ordering::SeqCst); // rule 2
            if self.try_enter() {
                self.waiting.store(waiters.len() as u64, Ordering::SeqCst);
                return Poll::Ready(());
            }
            waiters.push_back(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Gives a place back that was entered.
    pub fn leave(&self) {
        if self.most == 0 {
            return;
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut waiters = self.waiters.lock();
            let next = waiters.pop_front();
            self.waiting.store(waiters.len() as u64, Ordering::SeqCst);
            drop(waiters);
            if let Some(waker) = next {
                waker.wake(); // outside of the lock
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_taken_than_there_are() {
        let places = Places::new(2);
        assert!(places.try_enter() && places.try_enter() && !places.try_enter());
        places.leave();
        assert!(places.try_enter() && !places.try_enter());
        assert!(Places::new(0).try_enter());
    }
}
