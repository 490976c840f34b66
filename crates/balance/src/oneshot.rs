//! One value that a lane asks another lane for, and receives if it still wants it.
//!
//! # Protocol
//! 1. [`oneshot`] makes two ends. [`Request`] stays with the lane that asks; [`Reply`] goes to the lane that
//!    answers.
//! 2. [`Reply::give`] consumes the reply and sends the value; dropping the reply sends `None`. `give` returns
//!    the value if the request is gone.
//! 3. The asker receives the value or `None`, or drops its end. A value that was sent and not received by
//!    then is dropped with it. So one of the two lanes owns the value at each moment, and it is never lost.
//! 4. Both sides change one state under a leaf lock, which they hold for a few stores. The asker is woken
//!    outside of the lock.
//!
//! # Cost
//! One allocation, and the cache line of the state, which moves twice. It is meant for rare events: a lane
//! whose own idle pool is empty.

use crate::queue::Waiter;
use manylane_sync::{Arc, LockClass, Mutex};
use std::fmt;
use std::task::{Context, Poll, Waker};

static ONESHOT: LockClass = LockClass::new("handover", LockClass::LEAF);

enum State<T, W> {
    /// There is no answer yet. Holds the waiter once the asker has polled.
    Waiting(Option<W>),
    /// The answer; `None` inside once it was received, or if the other lane has no value.
    Answer(Option<T>),
    /// The asker has dropped its end.
    Left,
}

/// The end of the lane that asks.
pub struct Request<T, W: Waiter = Waker>(Arc<Mutex<State<T, W>>>);

/// The end of the lane that answers.
pub struct Reply<T, W: Waiter = Waker>(Option<Arc<Mutex<State<T, W>>>>);

/// Returns the two ends of a new oneshot.
pub fn oneshot<T, W: Waiter>() -> (Request<T, W>, Reply<T, W>) {
    let state = Arc::new(Mutex::new(&ONESHOT, State::Waiting(None)));
    (Request(state.clone()), Reply(Some(state)))
}

impl<T, W: Waiter> Request<T, W> {
    /// Returns the answer, once: the value or `None`. While there is no answer, `waiter` replaces the one
    /// that the answer will wake.
    pub fn poll(&mut self, waiter: impl FnOnce() -> W) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        match &mut *state {
            State::Waiting(who) => {
                let before = who.replace(waiter());
                drop(state);
                drop(before);
                Poll::Pending
            }
            State::Answer(answer) => Poll::Ready(answer.take()),
            State::Left => Poll::Ready(None), // only its drop sets this
        }
    }
}

impl<T> Request<T> {
    /// Does what [`poll`](Self::poll) does, for a task.
    pub fn poll_task(&mut self, context: &Context<'_>) -> Poll<Option<T>> {
        self.poll(|| context.waker().clone())
    }
}

impl<T, W: Waiter> Reply<T, W> {
    /// Sends the value.
    ///
    /// # Errors
    /// The value, if the asker has dropped its end.
    pub fn give(mut self, thing: T) -> Result<(), T> {
        match self.0.take() {
            Some(state) => answer(&state, Some(thing)).map_or(Ok(()), Err),
            None => Err(thing), // only this and `drop` take it
        }
    }
}

/// Stores the answer and wakes the asker. Returns the value if the asker has dropped its end.
fn answer<T, W: Waiter>(state: &Mutex<State<T, W>>, thing: Option<T>) -> Option<T> {
    let mut state = state.lock();
    if matches!(*state, State::Left) {
        return thing;
    }
    let before = std::mem::replace(&mut *state, State::Answer(thing));
    drop(state);
    if let State::Waiting(Some(waiter)) = before {
        waiter.wake();
    }
    None
}

impl<T, W: Waiter> Drop for Reply<T, W> {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            answer(&state, None);
        }
    }
}

impl<T, W: Waiter> Drop for Request<T, W> {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.0.lock(), State::Left);
        drop(before); // outside of the lock
    }
}

impl<T, W: Waiter> fmt::Debug for Request<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

impl<T, W: Waiter> fmt::Debug for Reply<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    struct Nobody;

    impl Waiter for Nobody {
        fn wake(self) {}
    }

    #[test]
    fn what_is_given_arrives_once() {
        let (mut request, reply) = oneshot::<_, Nobody>();
        assert_eq!(request.poll(|| Nobody), Poll::Pending);
        assert_eq!(reply.give(7), Ok(()));
        assert_eq!(request.poll(|| Nobody), Poll::Ready(Some(7)));
        assert_eq!(request.poll(|| Nobody), Poll::Ready(None));
    }

    #[test]
    fn a_reply_that_is_dropped_says_that_it_has_nothing() {
        let (mut request, reply) = oneshot::<u32, Nobody>();
        drop(reply);
        assert_eq!(request.poll(|| Nobody), Poll::Ready(None));
    }

    #[test]
    fn what_nobody_waits_for_comes_back() {
        let (request, reply) = oneshot::<_, Nobody>();
        drop(request);
        assert_eq!(reply.give(7), Err(7));
    }
}
