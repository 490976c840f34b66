//! One thing that goes from one lane to another, if the one who asked still wants it.
//!
//! # Protocol
//! 1. [`oneshot`] makes two ends. [`Request`] stays with the lane that asks, [`Reply`] goes to the lane that
//!    is asked.
//! 2. [`Reply::give`] takes the thing, once; dropping the reply answers that there is none. `give` gives the
//!    thing back when nobody waits any more.
//! 3. The asker has the thing, or nothing, or leaves by dropping its end. What was given and not taken by
//!    then is dropped with it. So the thing is at each moment with one of the two, and never lost.
//! 4. Both sides change one state under a leaf lock, which is held for a few stores. The asker is woken
//!    outside of it.
//!
//! # Cost
//! One block of memory, and the line of the state, which moves twice. It is for what happens seldom: a lane
//! whose own idle pool is empty.

use crate::queue::Waiter;
use manylane_sync::{Arc, LockClass, Mutex};
use std::fmt;
use std::task::{Context, Poll, Waker};

static ONESHOT: LockClass = LockClass::new("handover", LockClass::LEAF);

enum State<T, W> {
    /// Nothing yet; who waits, if it was asked already.
    Waiting(Option<W>),
    /// The answer.
    Answer(Option<T>),
    /// Nobody waits any more.
    Left,
}

/// The end of the lane that asks.
pub struct Request<T, W: Waiter = Waker>(Arc<Mutex<State<T, W>>>);

/// The end of the lane that is asked.
pub struct Reply<T, W: Waiter = Waker>(Option<Arc<Mutex<State<T, W>>>>);

/// Both ends.
pub fn oneshot<T, W: Waiter>() -> (Request<T, W>, Reply<T, W>) {
    let state = Arc::new(Mutex::new(&ONESHOT, State::Waiting(None)));
    (Request(state.clone()), Reply(Some(state)))
}

impl<T, W: Waiter> Request<T, W> {
    /// The answer, once: the thing, or nothing. Until then `waiter` is woken, in place of the one before.
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
            State::Left => Poll::Ready(None), // only its drop says so
        }
    }
}

impl<T> Request<T> {
    /// The answer, for a task that waits.
    pub fn poll_task(&mut self, context: &Context<'_>) -> Poll<Option<T>> {
        self.poll(|| context.waker().clone())
    }
}

impl<T, W: Waiter> Reply<T, W> {
    /// Gives.
    ///
    /// # Errors
    /// What was to be given, when nobody waits any more.
    pub fn give(mut self, thing: T) -> Result<(), T> {
        match self.0.take() {
            Some(state) => answer(&state, Some(thing)).map_or(Ok(()), Err),
            None => Err(thing), // it is taken here and in `drop` only
        }
    }
}

/// What comes back, when nobody waits any more.
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
