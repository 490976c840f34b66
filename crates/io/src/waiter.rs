//! Slots in which one task waits for one event.

use crate::core::{Core, Direction};
use crate::slab::Key;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// At most one waiting task.
#[derive(Default)]
pub(crate) struct Waiter(Option<Waker>);

/// Error: another task waits here already.
pub(crate) struct Taken;

impl Waiter {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Registers the task. The same task may register any number of times.
    #[inline]
    pub(crate) fn park(&mut self, waker: &Waker) -> Result<(), Taken> {
        match &self.0 {
            Some(waiting) if waiting.will_wake(waker) => Ok(()),
            Some(_) => Err(Taken),
            None => {
                self.0 = Some(waker.clone());
                Ok(())
            }
        }
    }

    /// Returns true if a task other than that of this waker waits here.
    #[inline]
    pub(crate) fn is_anothers(&self, waker: &Waker) -> bool {
        self.0.as_ref().is_some_and(|waiting| !waiting.will_wake(waker))
    }

    /// Takes the waker, which the caller wakes when nothing is borrowed.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Waker> {
        self.0.take()
    }

    /// Ends the waiting.
    pub(crate) fn leave(&mut self) {
        self.0 = None;
    }
}

/// A call that may have to wait. Dropping it while it waits removes its registration, and changes nothing
/// else (rule 3 of the core).
pub(crate) struct Waiting<'a, F> {
    core: &'a Core,
    key: Key,
    direction: Direction,
    waits: bool,
    poll: F,
}

impl<'a, F> Waiting<'a, F> {
    #[inline]
    pub(crate) fn new<T>(core: &'a Core, key: Key, direction: Direction, poll: F) -> Self
    where
        F: FnMut(&mut Context<'_>) -> Poll<T>,
    {
        Self { core, key, direction, waits: false, poll }
    }
}

// The closure is called through a plain reference and never pinned.
impl<F> Unpin for Waiting<'_, F> {}

impl<T, F: FnMut(&mut Context<'_>) -> Poll<T>> Future for Waiting<'_, F> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let outcome = (self.poll)(context);
        self.waits = outcome.is_pending();
        outcome
    }
}

impl<F> Drop for Waiting<'_, F> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.core.leave(self.key, self.direction);
        }
    }
}
