//! A bounded number of places, for connections of the process, of a frontend or of a listener (`maxconn`).
//!
//! # Protocol
//! 1. `taken` is changed by compare-and-swap, never above `most`; but `most` may become smaller, and a
//!    connection that changes to another generation's limit is in already.
//! 2. Who finds no place takes the queue's lock, says so in `waiting`, tries once more, and leaves a waker
//!    only if that fails too.
//! 3. Who gives a place back does so first and looks at `waiting` then. Between the two steps each side has a
//!    fence: so the one that waits sees the place, or the one that gives sees the one that waits.
//! 4. A woken waiter tries again like anybody else. It may lose to a newcomer, and waits again. It is in the
//!    queue once, however often it is polled.
//! 5. A waiter that gives up leaves the queue. If it was woken already, it wakes the next one in its place.
//!
//! # Cost
//! Two locked operations on one line for each *connection*; nothing for a request. Without a bound: nothing
//! at all.

use manylane_sync::atomic::{AtomicU64, Ordering, fence};
use manylane_sync::{CachePadded, LockClass, Mutex};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

static WAITERS: LockClass = LockClass::new("waiters of a connection limit", LockClass::LEAF);

/// So many places.
#[derive(Debug)]
pub struct ConnLimit {
    /// 0 for no bound.
    most: AtomicU64,
    /// What the file says it is, which an operator may change.
    given: AtomicU64,
    taken: CachePadded<AtomicU64>,
    /// How often the last one was taken.
    filled: AtomicU64,
    waiting: AtomicU64,
    waiters: Mutex<Waiters>,
}

/// Who waits, in order.
#[derive(Debug, Default)]
struct Waiters {
    queue: VecDeque<(u64, Waker)>,
    /// The number of the last one.
    next: u64,
}

/// Waits for a place: [`ConnLimit::enter`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Enter<'a> {
    places: &'a ConnLimit,
    /// Its own in the queue, while it is there or was woken from there.
    number: Option<u64>,
}

impl ConnLimit {
    /// `most` places; 0 for no bound.
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

    /// How many there are; 0 for no bound.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// How many there are by the file.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// The bound by the file is that. What an operator made of it stays, if that has not changed.
    pub fn give(&self, most: u64) {
        // Of one thread, the one that builds generations or has them serve.
        if self.given.swap(most, Ordering::Relaxed) != most {
            self.set_most(most);
        }
    }

    /// Changes the bound. Where places are in use, neither the old nor the new one may be 0: without a bound
    /// nobody counts.
    pub fn set_most(&self, most: u64) {
        self.most.store(most, Ordering::SeqCst);
        fence(Ordering::SeqCst); // rule 3: who waits sees it, or is seen
        let woken = {
            let mut waiters = self.waiters.lock();
            self.waiting.store(0, Ordering::SeqCst);
            std::mem::take(&mut waiters.queue)
        };
        woken.into_iter().for_each(|(_, waker)| waker.wake()); // outside of the lock
    }

    /// How many are taken; 0 without a bound.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// How often the last one was taken, since the start.
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// None is free.
    pub fn is_full(&self) -> bool {
        self.most() > 0 && self.taken() >= self.most()
    }

    /// Takes a place, if one is free. It is held until [`leave`](Self::leave).
    #[must_use]
    pub fn try_enter(&self) -> bool {
        let most = self.most();
        if most == 0 {
            return true;
        }
        let took = self
            .taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| (taken < most).then_some(taken + 1));
        if took.is_ok_and(|before| before + 1 == most) {
            self.filled.fetch_add(1, Ordering::Relaxed);
        }
        took.is_ok()
    }

    /// Takes a place, as soon as one is free. It is held until [`leave`](Self::leave).
    pub fn enter(&self) -> Enter<'_> {
        Enter { places: self, number: None }
    }

    /// Takes a place even if none is free, for who is in already by another limit.
    pub fn enter_anyway(&self) {
        if self.most() > 0 {
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Gives a place back that was entered.
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
    /// Takes the waiter out of the queue. Whether it was there: else it was woken.
    fn forget(&mut self, waiters: &mut Waiters) -> bool {
        let Some(number) = self.number.take() else { return true };
        let place = waiters.queue.iter().position(|(other, _)| *other == number);
        let waker = place.and_then(|place| waiters.queue.remove(place));
        self.places.waiting.store(waiters.queue.len() as u64, Ordering::SeqCst);
        waker.is_some()
    }
}

impl Future for Enter<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let places = self.places;
        if self.number.is_none() && places.try_enter() {
            return Poll::Ready(());
        }
        let mut waiters = places.waiters.lock();
        places.waiting.store(waiters.queue.len() as u64 + 1, Ordering::SeqCst); // rule 2
        fence(Ordering::SeqCst); // rule 3
        if places.try_enter() {
            self.forget(&mut waiters); // sets `waiting` right
            places.waiting.store(waiters.queue.len() as u64, Ordering::SeqCst);
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let queued =
            self.number.and_then(|number| waiters.queue.iter_mut().find(|(other, _)| *other == number));
        let before = match queued {
            Some((_, place)) => Some(std::mem::replace(place, waker)),
            None => {
                waiters.next += 1;
                self.number = Some(waiters.next);
                let entry = (waiters.next, waker);
                waiters.queue.push_back(entry);
                None
            }
        };
        places.waiting.store(waiters.queue.len() as u64, Ordering::SeqCst);
        drop(waiters);
        drop(before); // outside of the lock
        Poll::Pending
    }
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        if self.number.is_none() {
            return; // it never waited, or it is in
        }
        let places = self.places;
        let there = self.forget(&mut places.waiters.lock());
        if !there {
            places.wake_one(); // rule 5
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_taken_than_there_are() {
        let places = ConnLimit::new(2);
        assert!(places.try_enter() && places.try_enter() && !places.try_enter());
        assert_eq!(places.filled(), 1);
        places.leave();
        assert!(places.try_enter() && !places.try_enter());
        assert!(ConnLimit::new(0).try_enter());
    }

    #[test]
    fn a_bound_that_grows_lets_waiters_in_and_one_that_shrinks_throws_nobody_out() {
        let (places, waker) = (ConnLimit::new(1), std::task::Waker::noop());
        assert!(places.try_enter());
        let mut waiting = std::pin::pin!(places.enter());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        places.set_most(2);
        assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_ready());
        places.set_most(1);
        places.leave();
        assert!(!places.try_enter(), "one is still in");
        places.leave();
        assert!(places.try_enter());
        places.enter_anyway();
        assert_eq!(places.taken(), 2);
    }
}
