//! Something that happens once on a lane, and that its tasks wait for.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Happens once. Of one lane.
#[derive(Debug, Default)]
pub(crate) struct Event {
    happened: Cell<bool>,
    waiters: RefCell<Vec<Waker>>,
}

impl Event {
    /// It happens now: who waits is woken.
    pub(crate) fn happen(&self) {
        self.happened.set(true);
        for waker in self.waiters.take() {
            waker.wake();
        }
    }

    /// Whether it has.
    pub(crate) fn has_happened(&self) -> bool {
        self.happened.get()
    }

    /// Ready when it has. A task that asks again and again is kept once.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if self.happened.get() {
            return Poll::Ready(());
        }
        let mut waiters = self.waiters.borrow_mut();
        if !waiters.iter().any(|waker| waker.will_wake(context.waker())) {
            waiters.push(context.waker().clone());
        }
        Poll::Pending
    }
}
