//! Waiting for memory, lane by lane (R-D4). After HAProxy's buffer wait queues.
//!
//! # Protocol
//! 1. A lane's waiters stand in a queue of that lane, in order of their tickets. Nobody else touches it; a
//!    lane is never woken by another.
//! 2. [`offer`](crate::BytePool::offer), once a round, takes as many waiters out of the queue as the lane
//!    released objects since the last call, and wakes them. A waiter that was taken out holds an *offer*.
//! 3. A waiter with an offer that finds nothing after all goes back to its place: it keeps its ticket. One
//!    that is dropped passes its offer on to the next.
//! 4. A newcomer does not overtake: while others wait, in the queue or with an offer, it joins the queue
//!    without trying. The first in the queue tries whenever it is polled, so that a lane that releases
//!    nothing itself can poll it by a timer.
//! 5. Who holds an offer counts as waiting, so that its place stays its own: only newcomers find that too
//!    many wait. And what was released beyond the offers is offered to those who join until all offers are
//!    used.

use crate::error::{AllocError, Cause};
use crate::inner::{Inner, Lane};
use crate::typed::Pooled;
use crate::{BytePool, PooledBytes};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A lane's queue.
pub(crate) struct Waiters {
    /// In order of tickets.
    queue: VecDeque<(WaitNumber, Waker)>,
    next: WaitNumber,
    /// Frees of this lane that were offered already, or that nobody waited for.
    offered: u64,
    /// Waiters that hold an offer: those with a ticket that are not in the queue.
    holders: usize,
}

type WaitNumber = u64;

impl Waiters {
    pub(crate) const fn new() -> Self {
        Self { queue: VecDeque::new(), next: 0, offered: 0, holders: 0 }
    }

    /// Where `number` is, or would be.
    fn place(&self, number: WaitNumber) -> Result<usize, usize> {
        self.queue.binary_search_by_key(&number, |(t, _)| *t)
    }
}

impl Lane {
    fn with_waiters<R>(&'static self, f: impl FnOnce(&mut Waiters) -> R) -> R {
        // SAFETY: every caller got the slot from `Inner::lane` on this thread (a waiter cannot change its
        // thread), and no `f` here calls foreign code: wakers are cloned, woken and dropped outside.
        unsafe { self.waiters.with(f) }
    }

    fn wake_one(&'static self) -> bool {
        let first = self.with_waiters(|waiters| {
            let first = waiters.queue.pop_front();
            waiters.holders += usize::from(first.is_some());
            first
        });
        first.map(|(_, waker)| waker.wake()).is_some()
    }
}

impl Inner {
    /// Rules 2 and 5.
    pub(crate) fn offer(&'static self) -> usize {
        let lane = self.lane();
        let frees = self.frees();
        let released = lane.with_waiters(|waiters| {
            let released = frees.wrapping_sub(waiters.offered);
            // Those who join while we wake wait for the next round.
            let offers = released.min(waiters.queue.len() as u64);
            let none = offers == 0 && waiters.holders == 0;
            waiters.offered = if none { frees } else { waiters.offered.wrapping_add(offers) };
            offers
        });
        (0..released).take_while(|_| lane.wake_one()).count()
    }
}

/// A place in a lane's queue.
struct QueuedWaiter {
    inner: &'static Inner,
    lane: &'static Lane,
    number: Option<WaitNumber>,
    /// The queue is the lane's, so a waiter stays on its thread.
    not_send: PhantomData<*const ()>,
}

impl QueuedWaiter {
    fn new(inner: &'static Inner) -> Self {
        Self { inner, lane: inner.lane(), number: None, not_send: PhantomData }
    }

    /// Whether it is this one's turn to try: it holds an offer, is the first, or nobody waits.
    fn may_try(&self) -> bool {
        self.lane.with_waiters(|waiters| match self.number {
            None => waiters.queue.is_empty() && waiters.holders == 0,
            Some(number) => !matches!(waiters.place(number), Ok(1..)),
        })
    }

    /// Stands in the queue, where it was before or at the end.
    fn join(&mut self, waker: &Waker) -> Result<(), AllocError> {
        let waker = waker.clone();
        let most = self.inner.options.max_waiters;
        let number = self.number;
        let old = self.lane.with_waiters(|waiters| {
            let Some(number) = number else {
                if waiters.queue.len() + waiters.holders >= most {
                    return Some(waker);
                }
                self.number = Some(waiters.next);
                waiters.queue.push_back((waiters.next, waker));
                waiters.next += 1;
                return None;
            };
            match waiters.place(number) {
                Ok(at) => Some(std::mem::replace(&mut waiters.queue[at].1, waker)),
                Err(at) => {
                    waiters.queue.insert(at, (number, waker));
                    waiters.holders -= 1;
                    None
                }
            }
        });
        drop(old);
        match self.number {
            Some(_) => Ok(()),
            None => Err(self.inner.fail(self.lane, Cause::Waiters)),
        }
    }

    /// Leaves the queue with an object: the ticket is used up.
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            let _gone = self.remove(number);
        }
    }

    /// Nobody waits with `number` any more. None if it held an offer.
    fn remove(&self, number: WaitNumber) -> Option<(WaitNumber, Waker)> {
        self.lane.with_waiters(|waiters| {
            let Ok(at) = waiters.place(number) else {
                waiters.holders -= 1;
                return None;
            };
            waiters.queue.remove(at)
        })
    }

    /// One poll: `attempt` tries to allocate.
    fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: impl FnOnce() -> Result<R, AllocError>,
    ) -> Poll<Result<R, AllocError>> {
        if self.may_try()
            && let Ok(object) = attempt()
        {
            self.leave();
            return Poll::Ready(Ok(object));
        }
        match self.join(cx.waker()) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        if self.remove(number).is_none() {
            // Rule 3: it held an offer.
            self.lane.wake_one();
        }
    }
}

/// Waits for a block; see [`BytePool::wait`]. Dropped, it leaves the queue.
#[must_use = "a future does nothing until it is polled"]
pub struct WaitBytes {
    place: QueuedWaiter,
}

impl WaitBytes {
    pub(crate) fn new(inner: &'static Inner) -> Self {
        Self { place: QueuedWaiter::new(inner) }
    }
}

impl Future for WaitBytes {
    type Output = Result<PooledBytes, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = self.place.inner;
        self.place.poll(cx, || BytePool::of(inner).alloc())
    }
}

/// Waits for room for a value; see [`Pool::wait`](crate::Pool::wait). Dropped, it leaves the queue and drops
/// the value.
#[must_use = "a future does nothing until it is polled"]
pub struct Wait<T> {
    place: QueuedWaiter,
    value: Option<T>,
}

// The value is moved out, never pinned.
impl<T> Unpin for Wait<T> {}

impl<T> Wait<T> {
    pub(crate) fn new(inner: &'static Inner, value: T) -> Self {
        Self { place: QueuedWaiter::new(inner), value: Some(value) }
    }
}

impl<T> Future for Wait<T> {
    type Output = Result<Pooled<T>, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place, value } = &mut *self;
        let inner = place.inner;
        place.poll(cx, || {
            let taken = value.take().expect("a future is not polled after it is ready");
            Pooled::new_in(inner, taken).map_err(|(error, back)| {
                *value = Some(back);
                error
            })
        })
    }
}

impl fmt::Debug for WaitBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitBytes({:?})", self.place.inner.name)
    }
}

impl<T> fmt::Debug for Wait<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wait({:?})", self.place.inner.name)
    }
}
