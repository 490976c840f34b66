//! The core of a lane's driver: the backend, and the parts that both backends share.
//!
//! Rules that the code cites:
//! 1. **One thread.** A `Core` is in an `Rc` and stays on its lane. It lives until its last descriptor is
//!    gone.
//! 2. **No foreign code runs while something is borrowed.** Wakers are taken out first and woken after;
//!    chains are taken out before they are sent, since dropping a segment may run a foreign free function.
//! 3. **A future holds no state that the kernel uses.** Such state belongs to the backend. So dropping a
//!    future loses no bytes and frees no buffer that the kernel still writes to.
//! 4. **No waiting task is forgotten.** Every `Pending` leaves a waker with the descriptor, with
//!    [`Core::defer`] or with a timer.

use crate::clusters::Clusters;
use crate::epoll::Epoll;
use crate::limits::{ACCEPTS_PER_ROUND, EVENTS_PER_WAIT, SPLICE_AT_ONCE};
use crate::pipe::Pipe;
use crate::slab::Key;
use crate::stats::Tallies;
use crate::uring::Uring;
use manylane_sched::Here;
use std::cell::{Cell, RefCell};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::Waker;

/// A task that waits for the next round.
struct Deferred {
    key: Key,
    direction: Direction,
    waker: Waker,
}

pub(crate) struct Core {
    pub(crate) here: Here,
    pub(crate) tallies: &'static Tallies,
    /// Number of rounds so far: one for each check of the kernel. Budgets apply to a round.
    pub(crate) round: Cell<u32>,
    /// Number of connections that each listener may accept in a round, at least one.
    pub(crate) accepts: Cell<u32>,
    /// Tasks that had their share of this round.
    deferred: RefCell<Vec<Deferred>>,
    /// The second vector, swapped with `deferred`, so that neither is reallocated.
    woken: RefCell<Vec<Deferred>>,
    /// Tasks that wait for a descriptor to be closed.
    starved: RefCell<Vec<(u64, Waker)>>,
    starved_count: Cell<u64>,
    pub(crate) pipes: RefCell<Vec<Pipe>>,
    /// Number of pipes, kept ones included. `most_pipes` is their maximum.
    pub(crate) pipes_open: Cell<usize>,
    pub(crate) most_pipes: Cell<usize>,
    /// Bytes of a pipe, and of one splice.
    pub(crate) pipe_size: Cell<usize>,
    /// Maximum number of events that one check of the kernel returns.
    pub(crate) events: Cell<usize>,
    pub(crate) clusters: Clusters,
    pub(crate) backend: Backend,
}

/// The two drivers. Each call of the data path branches once on it.
#[expect(clippy::large_enum_variant)] // there is one for each lane
pub(crate) enum Backend {
    Epoll(Epoll),
    Uring(Uring),
}

/// Calls the same function of the active backend.
macro_rules! backend {
    ($core:expr, $driver:ident => $call:expr) => {
        match &$core.backend {
            $crate::core::Backend::Epoll($driver) => $call,
            $crate::core::Backend::Uring($driver) => $call,
        }
    };
}
pub(crate) use backend;

/// Kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FdKind {
    /// TCP: a read that fills less than its room has emptied the socket.
    Tcp,
    /// Another stream: reads may be short although there is more.
    Stream,
    Listener,
    Datagram,
}

/// The two directions in which a task may wait on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Core {
    pub(crate) fn new(here: Here, backend: Backend) -> Self {
        Self {
            here,
            tallies: crate::stats::own(),
            round: Cell::new(0),
            accepts: Cell::new(ACCEPTS_PER_ROUND),
            deferred: RefCell::default(),
            woken: RefCell::default(),
            starved: RefCell::default(),
            starved_count: Cell::new(0),
            pipes: RefCell::default(),
            pipes_open: Cell::new(0),
            most_pipes: Cell::new(usize::MAX),
            pipe_size: Cell::new(SPLICE_AT_ONCE),
            events: Cell::new(EVENTS_PER_WAIT),
            clusters: Clusters::new(),
            backend,
        }
    }

    /// Wakes the task at the next check of the kernel, which then does not wait; unless the task
    /// [leaves](Self::leave) before.
    pub(crate) fn defer(&self, key: Key, direction: Direction, waker: &Waker) {
        self.deferred.borrow_mut().push(Deferred { key, direction, waker: waker.clone() });
    }

    /// True if tasks wait for the next check of the kernel.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.borrow().is_empty()
    }

    /// Begins a round: wakes the deferred tasks, and returns true if there were any.
    #[inline]
    pub(crate) fn begin_round(&self) -> bool {
        self.round.set(self.round.get().wrapping_add(1));
        self.has_deferred() && self.wake_deferred()
    }

    fn wake_deferred(&self) -> bool {
        let mut woken = self.woken.take();
        std::mem::swap(&mut *self.deferred.borrow_mut(), &mut woken);
        woken.drain(..).for_each(|deferred| deferred.waker.wake()); // rule 2
        *self.woken.borrow_mut() = woken;
        true
    }

    /// Wakes the tasks that wait for clusters, as many as there are clusters for (R-D4); returns true if it
    /// woke any.
    #[inline]
    pub(crate) fn offer_clusters(&self) -> bool {
        self.clusters.are_waited_for()
            && backend!(self, driver => self.clusters.offer(driver.idle_clusters(), |key| driver.offer(key)))
    }

    // ---- Descriptors come and go ----

    /// Adds a descriptor to the backend. Makes no system call.
    pub(crate) fn add(&self, nature: FdKind) -> Key {
        self.tallies.opened.add(1);
        backend!(self, driver => driver.add(nature))
    }

    /// Closes a descriptor, even while operations on it are in progress.
    pub(crate) fn release(&self, key: Key, fd: OwnedFd) {
        self.tallies.closes.add(1);
        backend!(self, driver => driver.release(self, key, fd));
        self.tallies.released.add(1);
    }

    /// Ends the waiting in this direction.
    pub(crate) fn leave(&self, key: Key, direction: Direction) {
        // The task may end now, and must not be woken later.
        self.deferred.borrow_mut().retain(|deferred| deferred.key != key || deferred.direction != direction);
        backend!(self, driver => driver.leave(key, direction));
    }

    pub(crate) fn forget_readiness(&self, key: Key, direction: Direction) {
        backend!(self, driver => driver.forget_readiness(key, direction));
    }

    /// Closes a descriptor for which no task waits.
    pub(crate) fn close_plainly(&self, fd: OwnedFd) {
        self.tallies.closes.add(1);
        drop(fd);
        self.descriptor_freed();
    }

    // ---- No descriptors left ----

    /// Wakes the tasks that wait for a descriptor: one is closed, or will be before any later request.
    pub(crate) fn descriptor_freed(&self) {
        if !self.starved.borrow().is_empty() {
            let starved = self.starved.take();
            starved.into_iter().for_each(|(_, waker)| waker.wake()); // rule 2
        }
    }

    pub(crate) fn starve(&self, number: Option<u64>, waker: &Waker) -> u64 {
        let number = number.unwrap_or_else(|| self.starved_count.replace(self.starved_count.get() + 1));
        let mut starved = self.starved.borrow_mut();
        if !starved.iter().any(|(taken, _)| *taken == number) {
            starved.push((number, waker.clone()));
        }
        number
    }

    pub(crate) fn is_starved(&self, number: u64) -> bool {
        self.starved.borrow().iter().any(|(taken, _)| *taken == number)
    }

    pub(crate) fn stop_starving(&self, number: u64) {
        self.starved.borrow_mut().retain(|(taken, _)| *taken != number);
    }
}

/// Descriptor of a source, which lives as long as the source.
pub(crate) type Fd<'a> = BorrowedFd<'a>;

impl Drop for Core {
    fn drop(&mut self) {
        if let Backend::Uring(uring) = &self.backend {
            uring.end(self);
        }
    }
}

/// Amount that one descriptor used in a round.
pub(crate) struct Budget {
    round: Cell<u32>,
    taken: Cell<usize>,
}

impl Budget {
    pub(crate) const fn new() -> Self {
        Self { round: Cell::new(0), taken: Cell::new(0) }
    }

    /// True if some of `limit` is left in this round.
    pub(crate) fn is_left(&self, core: &Core, limit: usize) -> bool {
        if self.round.replace(core.round.get()) != core.round.get() {
            self.taken.set(0);
        }
        self.taken.get() < limit
    }

    pub(crate) fn take(&self, n: usize) {
        self.taken.set(self.taken.get().saturating_add(n));
    }
}
