//! Something that happens once on a lane, and that its tasks wait for.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Happens once. Of one lane.
#[derive(Debug, Default)]
pub(crate) struct Event {
    happened: Cell<bool>,
    waiters: RefCell<Waiters>,
}

/// Places of those who wait; a place that was left is used again.
#[derive(Debug, Default)]
struct Waiters {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// One that waits.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    event: &'a Event,
    place: Option<usize>,
}

impl Event {
    /// It happens now: who waits is woken.
    pub(crate) fn happen(&self) {
        self.happened.set(true);
        let wakers: Vec<Waker> = self.waiters.borrow_mut().wakers.iter_mut().filter_map(Option::take).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether it has.
    pub(crate) fn has_happened(&self) -> bool {
        self.happened.get()
    }

    /// Somebody who may wait for it. Costs nothing before it is polled.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        Waiter { event: self, place: None }
    }
}

impl Waiter<'_> {
    /// Ready when it has happened. The task that asks first is the one that is woken.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.event.happened.get() {
            return Poll::Ready(());
        }
        if self.place.is_none() {
            let mut waiters = self.event.waiters.borrow_mut();
            let Waiters { wakers, free } = &mut *waiters;
            let place = free.pop().unwrap_or_else(|| {
                wakers.push(None);
                free.reserve(wakers.len()); // it is empty; so to leave a place never asks for memory
                wakers.len() - 1
            });
            wakers[place] = Some(context.waker().clone());
            self.place = Some(place);
        }
        Poll::Pending
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut waiters = self.event.waiters.borrow_mut();
            waiters.wakers[place] = None;
            waiters.free.push(place);
        }
    }
}
