//! What a lane's driver is made of, whichever it is: the backend, and what both share.
//!
//! Rules that the code cites:
//! 1. **One thread.** A `Core` is in an `Rc` and stays on its lane. It lives until the last descriptor of it
//!    is gone.
//! 2. **Nothing foreign runs while something is borrowed.** Wakers are taken out first and woken after;
//!    chains are taken out before they are sent, since dropping a segment may run a foreign free function.
//! 3. **A future holds no state that the kernel knows.** What the kernel works on belongs to the backend. So
//!    dropping a future loses no bytes and frees no buffer that is still written to.
//! 4. **Whoever is not waited for is not forgotten.** Every `Pending` leaves a waker with the descriptor,
//!    with [`Core::defer`] or with a timer.

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
    /// Looks at the kernel so far: what is bounded is bounded for each of them.
    pub(crate) round: Cell<u32>,
    /// Connections that each listener may accept in a round, one at least.
    pub(crate) accepts: Cell<u32>,
    /// Tasks that had their share of this round.
    deferred: RefCell<Vec<Deferred>>,
    /// The other half of `deferred`, so that neither is allocated anew.
    woken: RefCell<Vec<Deferred>>,
    /// Tasks that wait for a descriptor to be closed.
    starved: RefCell<Vec<(u64, Waker)>>,
    tickets: Cell<u64>,
    pub(crate) pipes: RefCell<Vec<Pipe>>,
    /// Pipes that there are, kept ones included, and how many there may be.
    pub(crate) pipes_open: Cell<usize>,
    pub(crate) most_pipes: Cell<usize>,
    /// Bytes of a pipe, and of one splice.
    pub(crate) pipe_size: Cell<usize>,
    /// Events that one look at the kernel takes in.
    pub(crate) events: Cell<usize>,
    pub(crate) clusters: Clusters,
    pub(crate) backend: Backend,
}

/// The two drivers. Each call of the data path is one branch on it.
#[expect(clippy::large_enum_variant)] // there is one for each lane
pub(crate) enum Backend {
    Epoll(Epoll),
    Uring(Uring),
}

/// Calls the same function of whichever backend there is.
macro_rules! backend {
    ($core:expr, $driver:ident => $call:expr) => {
        match &$core.backend {
            $crate::core::Backend::Epoll($driver) => $call,
            $crate::core::Backend::Uring($driver) => $call,
        }
    };
}
pub(crate) use backend;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// TCP: a read that fills less than its room has emptied the socket.
    Tcp,
    /// Another stream: reads may be short although there is more.
    Stream,
    Listener,
    Datagram,
}

/// One of the two things that a task may wait for on a descriptor.
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
            tickets: Cell::new(0),
            pipes: RefCell::default(),
            pipes_open: Cell::new(0),
            most_pipes: Cell::new(usize::MAX),
            pipe_size: Cell::new(SPLICE_AT_ONCE),
            events: Cell::new(EVENTS_PER_WAIT),
            clusters: Clusters::new(),
            backend,
        }
    }

    /// Has the task woken at the next look at the kernel, which then does not wait; unless it
    /// [leaves](Self::leave) before.
    pub(crate) fn defer(&self, key: Key, direction: Direction, waker: &Waker) {
        self.deferred.borrow_mut().push(Deferred { key, direction, waker: waker.clone() });
    }

    /// Whether tasks wait for the next look at the kernel.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.borrow().is_empty()
    }

    /// Begins a round: wakes who was deferred, and tells whether anybody was.
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

    /// Wakes who waits for clusters, as far as there are some (R-D4); true if somebody was woken.
    #[inline]
    pub(crate) fn offer_clusters(&self) -> bool {
        self.clusters.are_waited_for()
            && backend!(self, driver => self.clusters.offer(driver.idle_clusters(), |key| driver.offer(key)))
    }

    // ---- Descriptors come and go ----

    /// Makes a descriptor the backend's. It asks nothing of the kernel.
    pub(crate) fn add(&self, nature: Nature) -> Key {
        self.tallies.opened.add(1);
        backend!(self, driver => driver.add(nature))
    }

    /// Closes it, whatever still goes on with it.
    pub(crate) fn release(&self, key: Key, fd: OwnedFd) {
        self.tallies.closes.add(1);
        backend!(self, driver => driver.release(self, key, fd));
        self.tallies.released.add(1);
    }

    /// Nobody waits in this direction any more.
    pub(crate) fn leave(&self, key: Key, direction: Direction) {
        // The task may end now: waking it later would wake a task that has ended.
        self.deferred.borrow_mut().retain(|deferred| deferred.key != key || deferred.direction != direction);
        backend!(self, driver => driver.leave(key, direction));
    }

    pub(crate) fn forget_readiness(&self, key: Key, direction: Direction) {
        backend!(self, driver => driver.forget_readiness(key, direction));
    }

    /// A descriptor that no task waits for is closed.
    pub(crate) fn close_plainly(&self, fd: OwnedFd) {
        self.tallies.closes.add(1);
        drop(fd);
        self.descriptor_freed();
    }

    // ---- No descriptors left ----

    /// A descriptor is closed, or about to be before anything that is asked for from here on.
    pub(crate) fn descriptor_freed(&self) {
        if !self.starved.borrow().is_empty() {
            let starved = self.starved.take();
            starved.into_iter().for_each(|(_, waker)| waker.wake()); // rule 2
        }
    }

    pub(crate) fn starve(&self, ticket: Option<u64>, waker: &Waker) -> u64 {
        let ticket = ticket.unwrap_or_else(|| self.tickets.replace(self.tickets.get() + 1));
        let mut starved = self.starved.borrow_mut();
        if !starved.iter().any(|(taken, _)| *taken == ticket) {
            starved.push((ticket, waker.clone()));
        }
        ticket
    }

    pub(crate) fn is_starved(&self, ticket: u64) -> bool {
        self.starved.borrow().iter().any(|(taken, _)| *taken == ticket)
    }

    pub(crate) fn stop_starving(&self, ticket: u64) {
        self.starved.borrow_mut().retain(|(taken, _)| *taken != ticket);
    }
}

/// The descriptor of a source, which lives as long as the source does.
pub(crate) type Fd<'a> = BorrowedFd<'a>;

impl Drop for Core {
    fn drop(&mut self) {
        if let Backend::Uring(uring) = &self.backend {
            uring.end(self);
        }
    }
}

/// What one descriptor had in a round.
pub(crate) struct Budget {
    round: Cell<u32>,
    taken: Cell<usize>,
}

impl Budget {
    pub(crate) const fn new() -> Self {
        Self { round: Cell::new(0), taken: Cell::new(0) }
    }

    /// Whether something of `limit` is left in this round.
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
