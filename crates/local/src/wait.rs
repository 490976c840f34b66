//! Waiting: one mechanism for blocking threads and for tasks.
//!
//! # Protocol
//! 1. An attempt that cannot complete registers a waker for its event, under the lock under which it found
//!    that it must wait. The thread that causes the event finds the waker under the same lock: no wake-up is
//!    lost.
//! 2. The thread that causes the event takes all wakers out and calls them after it has released the lock.
//!    All waiters try again.
//! 3. A waiter that gives up removes its waker. Since all waiters are woken, none depends on one that has
//!    gone.

use crate::error::Error;
use crate::pcb::{Pcb, PcbRef};
use crate::socket::DEFAULT_SPIN;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::relax;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Waiters for one event at one socket, usually one.
pub(crate) struct Waiters {
    first: Option<(u64, Waker)>,
    /// Used only while there is a first.
    more: Vec<(u64, Waker)>,
    next_number: u64,
}

/// Wakers taken out, to be called without a lock.
#[must_use = "whoever waits has to be woken"]
pub(crate) struct Wakes {
    first: Option<(u64, Waker)>,
    more: Vec<(u64, Waker)>,
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        Self { first: None, more: Vec::new(), next_number: 0 }
    }

    /// True if there are no waiters.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds `waker` and returns its number. If the waker of `old` is still here, replaces and returns it.
    fn add(&mut self, old: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        let all = self.first.iter_mut().chain(&mut self.more);
        for (number, slot) in all {
            if Some(*number) == old {
                return (*number, Some(std::mem::replace(slot, waker)));
            }
        }
        self.next_number += 1;
        let entry = (self.next_number, waker);
        if self.first.is_none() {
            self.first = Some(entry)
        } else {
            self.more.push(entry)
        }
        (self.next_number, None)
    }

    fn remove(&mut self, number: u64) -> Option<Waker> {
        if self.first.as_ref().is_some_and(|(t, _)| *t == number) {
            let next = self.more.pop();
            return std::mem::replace(&mut self.first, next).map(|(_, waker)| waker);
        }
        let at = self.more.iter().position(|(t, _)| *t == number)?;
        Some(self.more.swap_remove(at).1)
    }

    /// Takes all wakers, if there are any.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Wakes> {
        if self.is_empty() {
            return None;
        }
        Some(Wakes { first: self.first.take(), more: std::mem::take(&mut self.more) })
    }
}

impl Wakes {
    #[cold]
    pub(crate) fn wake(self) {
        for (_, waker) in self.first.into_iter().chain(self.more) {
            waker.wake();
        }
    }
}

/// Event for which an operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Data in the socket's buffer.
    Data,
    /// Room in the socket's buffer.
    Room,
    /// A connection to accept.
    Connection,
}

/// Where a waiter's waker is, and where it can be replaced and removed.
#[derive(Default)]
pub(crate) struct Registration(Option<(PcbRef, Event, u64)>);

impl Registration {
    /// Adds the waker to `waiters`, those of `event` at `pcb`, under the lock that guards them.
    ///
    /// Returns the waiter's former registration or waker.
    fn enter(&mut self, pcb: &Pcb, event: Event, waiters: &mut Waiters, waker: Waker) -> Replaced {
        if let Some((at, what, number)) = &mut self.0
            && std::ptr::eq::<Pcb>(&**at, pcb)
            && *what == event
        {
            let (now, replaced) = waiters.add(Some(*number), waker);
            *number = now;
            return Replaced { _registration: None, _waker: replaced };
        }
        let old = self.0.take().map(|old| Self(Some(old)));
        // SAFETY: the caller holds a lock of this pcb, so it is alive, which is all that `hold` needs.
        let held = unsafe { PcbRef::hold(std::ptr::NonNull::from(pcb)) };
        let (number, _) = waiters.add(None, waker);
        self.0 = Some((held, event, number));
        Replaced { _registration: old, _waker: None }
    }

    /// Removes the waker, if it is still registered.
    fn leave(&mut self) {
        let Some((pcb, event, number)) = self.0.take() else { return };
        let waker = match event {
            Event::Data => pcb.rcv.lock().readers.remove(number),
            Event::Room => pcb.rcv.lock().writers.remove(number),
            Event::Connection => pcb.state.lock().accepters.remove(number),
        };
        drop(waker); // without the lock: it may run foreign code
    }
}

/// A waiter's former registration and waker. Dropping either may run foreign code: a waker can own the task,
/// and the task sockets.
#[must_use = "to be dropped when no lock is held"]
struct Replaced {
    /// Registration at another place.
    _registration: Option<Registration>,
    /// Waker at the same place.
    _waker: Option<Waker>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Permission for an attempt to wait, with the place of its waker.
pub(crate) struct Waiting<'a> {
    /// A clone, made before the lock since no foreign code runs under one. Present until it is registered.
    waker: Option<Waker>,
    registration: &'a mut Registration,
    /// Dropped after the attempt, when it holds no lock.
    replaced: Option<Replaced>,
}

impl<'a> Waiting<'a> {
    fn new(waker: &Waker, registration: &'a mut Registration) -> Self {
        Self { waker: Some(waker.clone()), registration, replaced: None }
    }

    /// See [`Registration::enter`]. An attempt that registers ends, so it does so once.
    pub(crate) fn enter(&mut self, pcb: &Pcb, event: Event, waiters: &mut Waiters) {
        let Some(waker) = self.waker.take() else {
            return debug_assert!(false, "an attempt waits at one place");
        };
        self.replaced = Some(self.registration.enter(pcb, event, waiters, waker));
    }
}

/// An operation that may need several attempts.
pub(crate) trait Attempt {
    type Output;

    /// Makes an attempt. With `waiting`, [`Error::WouldBlock`] means that the waker is registered for the
    /// event.
    fn attempt(&mut self, waiting: Option<&mut Waiting<'_>>) -> Result<Self::Output, Error>;

    /// Returns the result of an operation that may wait no longer.
    fn given_up(&mut self) -> Result<Self::Output, Error> {
        Err(Error::WouldBlock)
    }

    /// Relaxations before the first check of a spinning thread.
    const PAUSE: u32 = 1;

    /// Checks without a registration whether another attempt may succeed. For spinning.
    fn may_succeed(&self) -> bool;

    /// Makes an attempt on a spinning thread, if it may succeed. `None`: the thread may go on spinning.
    fn glance(&mut self) -> Option<Result<Self::Output, Error>> {
        if !self.may_succeed() {
            return None;
        }
        match self.attempt(None) {
            Err(Error::WouldBlock) => None,
            done => Some(done),
        }
    }
}

/// Makes one attempt.
#[inline]
pub(crate) fn now<A: Attempt>(mut attempt: A) -> Result<A::Output, Error> {
    match attempt.attempt(None) {
        Err(Error::WouldBlock) => attempt.given_up(),
        done => done,
    }
}

/// Deadline and spinning time of a blocking call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockUntil {
    pub(crate) until: Option<Instant>,
    pub(crate) spin: Duration,
}

/// Repeats attempts until one completes, and sleeps between them.
pub(crate) fn block<A: Attempt>(mut attempt: A, until: BlockUntil) -> Result<A::Output, Error> {
    match attempt.attempt(None) {
        Err(Error::WouldBlock) => block_slowly(attempt, until),
        done => done,
    }
}

/// As [`block`], after a first try.
#[cold]
#[inline(never)]
pub(crate) fn block_slowly<A: Attempt>(mut attempt: A, until: BlockUntil) -> Result<A::Output, Error> {
    if let Some(done) = spin(&mut attempt, until) {
        return done;
    }
    with_parker(|parker, waker| {
        let mut registration = Registration::default();
        loop {
            let mut waiting = Waiting::new(waker, &mut registration);
            match attempt.attempt(Some(&mut waiting)) {
                Err(Error::WouldBlock) => {}
                done => return done,
            }
            drop(waiting);
            if !parker.park(until.until) {
                drop(registration);
                // Data that came in the last moment is not lost.
                return match attempt.attempt(None) {
                    Err(Error::WouldBlock) => attempt.given_up(),
                    done => done,
                };
            }
        }
    })
}

/// Checks of a polling thread between two yields of its processor: some microseconds.
const CHECKS_PER_YIELD: u32 = 32;

/// Relaxations between two checks of a polling thread. A check holds the lock for a moment; with one
/// relaxation it collided with a quarter of the sends.
const POLL_PAUSE: u32 = 16;

/// Spins for a while before sleeping, and makes an attempt whenever it may succeed.
fn spin<A: Attempt>(attempt: &mut A, until: BlockUntil) -> Option<Result<A::Output, Error>> {
    if until.spin.is_zero() || cfg!(any(loom, manylane_sim)) {
        return None;
    }
    // A caller that requested busy polling checks often, but yields the processor now and then, since the
    // other side may have none. By default checks become rarer: each takes a line away from the writer, and a
    // later check takes more data at once.
    let polls = until.spin > DEFAULT_SPIN;
    let (mut pause, longest) = if polls { (POLL_PAUSE, POLL_PAUSE) } else { (A::PAUSE, 128) };
    let mut checks = 0u32;
    let started = Instant::now();
    loop {
        (0..pause).for_each(|_| relax());
        pause = (pause * 2).min(longest);
        if let Some(done) = attempt.glance() {
            return Some(done);
        }
        checks += 1;
        if polls && !checks.is_multiple_of(CHECKS_PER_YIELD) {
            continue; // the clock costs more than a check
        }
        if polls {
            manylane_sync::thread::yield_now();
        }
        let spun = started.elapsed();
        if spun >= until.spin || until.until.is_some_and(|until| started + spun >= until) {
            return None;
        }
    }
}

/// The place where a thread sleeps.
struct Parker {
    token: AtomicBool,
    #[cfg(not(any(loom, manylane_sim)))]
    thread: std::thread::Thread,
}

impl Parker {
    fn new() -> Self {
        Self {
            token: AtomicBool::new(false),
            #[cfg(not(any(loom, manylane_sim)))]
            thread: std::thread::current(),
        }
    }

    /// Sleeps until woken, now or since the last call. Returns false at the deadline.
    #[cfg(not(any(loom, manylane_sim)))]
    fn park(&self, until: Option<Instant>) -> bool {
        // Acquire: pairs with the release in `wake_by_ref`.
        while !self.token.swap(false, Ordering::Acquire) {
            match until {
                None => std::thread::park(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    std::thread::park_timeout(left);
                }
            }
        }
        true
    }

    /// Models and virtual cores have no time: they yield until woken.
    #[cfg(any(loom, manylane_sim))]
    fn park(&self, _: Option<Instant>) -> bool {
        while !self.token.swap(false, Ordering::Acquire) {
            manylane_sync::thread::yield_now();
        }
        true
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: pairs with the acquire in `park`.
        self.token.store(true, Ordering::Release);
        #[cfg(not(any(loom, manylane_sim)))]
        self.thread.unpark();
    }
}

/// Calls `f` with the thread's own parker, which the first sleep creates.
#[cfg(not(any(loom, manylane_sim)))]
fn with_parker<R>(f: impl FnOnce(&Parker, &Waker) -> R) -> R {
    thread_local! {
        static OWN: (Arc<Parker>, Waker) = {
            let parker = Arc::new(Parker::new());
            (parker.clone(), parker.into())
        };
    }
    let mut f = Some(f);
    let mut run = |(parker, waker): &(Arc<Parker>, Waker)| f.take().map(|f| f(parker, waker));
    let done = OWN.try_with(&mut run).unwrap_or_else(|_| {
        // The thread is ending, and its own parker is gone.
        let parker = Arc::new(Parker::new());
        run(&(parker.clone(), parker.into()))
    });
    done.expect("it ran once, here or there")
}

/// Threads of a model and virtual cores share real threads: each call gets its own parker.
#[cfg(any(loom, manylane_sim))]
fn with_parker<R>(f: impl FnOnce(&Parker, &Waker) -> R) -> R {
    let parker = Arc::new(Parker::new());
    f(&parker.clone(), &parker.into())
}

/// A future of an operation. Dropping it cancels the operation, except for bytes that a stream has already
/// accepted.
#[must_use = "nothing happens until it is awaited"]
pub(crate) struct Op<A> {
    attempt: A,
    registration: Registration,
}

impl<A> Op<A> {
    pub(crate) fn new(attempt: A) -> Self {
        Self { attempt, registration: Registration::default() }
    }
}

impl<A: Attempt + Unpin> Future for Op<A> {
    type Output = Result<A::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let op = &mut *self;
        // An operation that completes at once needs no waker.
        if op.registration.0.is_none() {
            match op.attempt.attempt(None) {
                Err(Error::WouldBlock) => {}
                done => return Poll::Ready(done),
            }
        }
        let mut waiting = Waiting::new(context.waker(), &mut op.registration);
        match op.attempt.attempt(Some(&mut waiting)) {
            Err(Error::WouldBlock) => Poll::Pending,
            done => {
                drop(waiting);
                op.registration.leave();
                Poll::Ready(done)
            }
        }
    }
}
