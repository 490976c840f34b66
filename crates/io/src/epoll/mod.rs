//! The epoll driver: edge-triggered readiness, and a system call for each transfer.
//!
//! System calls: `epoll_create1`, `epoll_ctl` once for each descriptor that ever had to wait (twice for
//! listeners and datagram sockets) and twice for each time that rule 4 applies, `epoll_pwait` once a round.
//!
//! 1. A descriptor is registered when a task first has to wait for it, for all events, edge-triggered. `ADD`
//!    reports what is ready already, so no event is lost. A descriptor that is closed before a task had to
//!    wait is never registered.
//! 2. `readable` and `writable` mean that a call may succeed. They start true (the first call is a guess that
//!    mostly succeeds); `EAGAIN` makes them false, an edge makes them true.
//! 3. For TCP, a read that did not fill its room has emptied the socket, so `readable` becomes false without
//!    another call, unless the end of the stream or urgent data was reported: those also end a read early,
//!    and bring no further edge.
//! 4. After [`MAX_UNREAD_EVENTS`](crate::MAX_UNREAD_EVENTS) events for bytes while no task reads, the driver
//!    asks for no more events for bytes (`EPOLLIN`): a peer that drips into a connection that nobody reads
//!    costs nothing. It asks again when a task waits, and the kernel then reports what is ready.
//! 5. An edge contains a key. Keys of descriptors that are gone match no source, so the driver ignores an
//!    event of a file description that lives on elsewhere (in a duplicate, or in a child).

mod accept;
mod connect;
mod source;
mod transfer;

use crate::clusters::Turn;
use crate::core::{Core, Direction, Fd, FdKind};
use crate::error::{Call, Error};
use crate::limits::EVENTS_PER_WAIT;
use crate::listener::PrefetchedData;
use crate::slab::{Key, Slab};
use crate::wake_fd::WakeFd;
use manylane_buf::Chain;
use manylane_sync::Arc;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use source::Source;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) struct Epoll {
    epoll: OwnedFd,
    wake_fd: Arc<WakeFd>,
    sources: RefCell<Slab<Source>>,
    events: RefCell<Vec<Event>>,
    /// Capacity of the event buffer.
    room: Cell<usize>,
    /// Sources whose outboxes had their share of the round.
    unfinished: RefCell<Vec<Key>>,
}

/// Key of the wake-up descriptor: no source has a generation of 32 bits.
const WAKE_TOKEN: u64 = u64::MAX;

impl Epoll {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake_fd = WakeFd::new()?;
        // Edge-triggered, so that each wake-up is one event and no thread has to read the counter.
        epoll::add(&epoll, wake_fd.fd(), EventData::new_u64(WAKE_TOKEN), EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            epoll,
            wake_fd,
            sources: RefCell::new(Slab::new()),
            events: RefCell::new(Vec::with_capacity(EVENTS_PER_WAIT)),
            room: Cell::new(EVENTS_PER_WAIT),
            unfinished: RefCell::default(),
        })
    }

    pub(crate) fn wake_fd(&self) -> Arc<WakeFd> {
        self.wake_fd.clone()
    }

    /// Returns the number of sources.
    pub(crate) fn len(&self) -> usize {
        self.sources.borrow().len()
    }

    pub(crate) fn add(&self, nature: FdKind) -> Key {
        self.sources.borrow_mut().insert(Source::new(nature))
    }

    pub(crate) fn release(&self, core: &Core, key: Key, fd: OwnedFd) {
        let Some(source) = self.sources.borrow_mut().remove(key) else { return };
        core.clusters.forget(key, source.turn);
        // Closing removes it from the interest list only if no duplicate is left. Listeners and datagram
        // sockets usually have duplicates: each generation makes its own, and the entries would accumulate.
        if source.registered && matches!(source.nature, FdKind::Listener | FdKind::Datagram) {
            self.deregister(core, fd.as_fd());
        }
        drop(fd);
        core.descriptor_freed();
    }

    /// Removes a descriptor from the interest list.
    fn deregister(&self, core: &Core, fd: Fd<'_>) {
        core.tallies.controls.add(1);
        // Fails only if the descriptor is not on the list, which is the goal.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Gives up a descriptor that stays open. This driver receives nothing ahead of requests.
    pub(crate) async fn detach(&self, core: &Core, key: Key, fd: Fd<'_>) -> Result<PrefetchedData, Error> {
        if let Some(source) = self.sources.borrow_mut().remove(key) {
            core.clusters.forget(key, source.turn);
            if source.registered {
                self.deregister(core, fd);
            }
        }
        Ok(PrefetchedData::default())
    }

    pub(crate) fn leave(&self, key: Key, direction: Direction) {
        if let Some(source) = self.sources.borrow_mut().get(key) {
            source.waiter(direction).leave();
        }
    }

    pub(crate) fn forget_readiness(&self, key: Key, direction: Direction) {
        if let Some(source) = self.sources.borrow_mut().get(key) {
            source.set_ready(direction, false);
        }
    }

    /// Returns ready if a call in this direction may succeed; otherwise registers the task's waker.
    pub(crate) fn poll_ready(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        (direction, call): (Direction, Call),
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key).expect("a source lives as long as its handle");
        if source.ready(direction) {
            if direction == Direction::Read {
                source.unread_events = 0;
            }
            return Poll::Ready(Ok(()));
        }
        self.wait_for(core, source, key, fd, (direction, call), context)
    }

    /// Stores the waker with the source, which it registers (rules 1 and 4 of the core).
    fn wait_for<T>(
        &self,
        core: &Core,
        source: &mut Source,
        key: Key,
        fd: Fd<'_>,
        (direction, call): (Direction, Call),
        context: &mut Context<'_>,
    ) -> Poll<Result<T, Error>> {
        if source.waiter(direction).park(context.waker()).is_err() {
            return Poll::Ready(Err(Error::busy(call)));
        }
        if direction == Direction::Read {
            source.unread_events = 0;
        }
        let data = EventData::new_u64(key.bits());
        let outcome = if !source.registered {
            match epoll::add(&self.epoll, fd, data, source.interest()) {
                // Rule 5: an earlier descriptor of this number and description was closed, and its
                // description lives on by a duplicate. Modifying reports readiness as adding does. Listeners
                // and datagram sockets are always deregistered, so it is none of those.
                Err(Errno::EXIST) => epoll::modify(&self.epoll, fd, data, source.interest()),
                outcome => outcome,
            }
        } else if direction == Direction::Read && std::mem::take(&mut source.ignores_bytes) {
            epoll::modify(&self.epoll, fd, data, source.interest()) // rule 4
        } else {
            return Poll::Pending;
        };
        core.tallies.controls.add(1);
        if let Err(errno) = outcome {
            source.waiter(direction).leave();
            source.ignores_bytes = source.registered; // the next to wait asks again
            return Poll::Ready(Err(Error::system(Call::Register, errno)));
        }
        (source.registered, source.fd) = (true, fd.as_raw_fd());
        Poll::Pending
    }

    /// Asks for no more events for bytes (rule 4).
    #[cold]
    fn ignore_bytes(&self, core: &Core, key: Key, source: &mut Source) {
        core.tallies.controls.add(1);
        source.ignores_bytes = true;
        // SAFETY: the source exists, so its handle does, which owns the descriptor. There was an event, so
        // the descriptor was stored.
        let fd = unsafe { BorrowedFd::borrow_raw(source.fd) };
        let data = EventData::new_u64(key.bits());
        if epoll::modify(&self.epoll, fd, data, source.interest()).is_err() {
            source.ignores_bytes = false; // events continue
        }
    }

    /// Nothing to stop: this driver receives nothing ahead of requests.
    pub(crate) async fn stop_receiving(&self, _: &Core, _: Key, _: usize) -> Result<Chain, Error> {
        Ok(Chain::new())
    }

    /// Returns 0: the kernel gets no room in advance.
    pub(crate) fn idle_clusters(&self) -> usize {
        0
    }

    /// Returns the waker of the task that waits for clusters with this source, if one still does.
    pub(crate) fn offer(&self, key: Key) -> Option<Waker> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key)?;
        let waker = source.reader.take();
        source.turn = if waker.is_some() { Turn::Offered } else { Turn::None };
        waker
    }

    /// True if bytes wait for the next round.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.unfinished.borrow().is_empty()
    }

    /// Checks the kernel for events, and wakes the tasks that wait for them.
    pub(crate) fn wait(&self, core: &Core, mut timeout: Option<Duration>) -> Result<(), Errno> {
        if !self.unfinished.borrow().is_empty() {
            for key in self.unfinished.take() {
                if let Some(source) = self.sources.borrow_mut().get(key) {
                    source.unfinished = false;
                }
                self.flush(core, key);
            }
            timeout = Some(Duration::ZERO);
        }
        let timeout = timeout.map(|timeout| {
            // Rounded up to a millisecond, the resolution of timers and of older kernels: an earlier wake-up
            // would be in vain.
            let millis = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
            rustix::event::Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
        });
        let mut events = self.events.take();
        events.clear();
        if self.room.get() != core.events.get() {
            self.room.set(core.events.get());
            events = Vec::with_capacity(core.events.get());
        }
        core.tallies.waits.add(1);
        let outcome = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        for event in &events {
            let Event { flags, data } = *event;
            if data.u64() != WAKE_TOKEN {
                self.happened(core, Key::from_bits(data.u64()), flags);
            }
        }
        *self.events.borrow_mut() = events;
        match outcome {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    #[inline]
    fn happened(&self, core: &Core, key: Key, flags: EventFlags) {
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return }; // rule 5
        source.happened(flags);
        let reader = if source.readable { source.reader.take() } else { None };
        if reader.is_none() && source.count_unread(flags) {
            self.ignore_bytes(core, key, source);
        }
        let empty = source.outbox.is_empty(); // bytes go first, then the task
        // Every event reports that the socket is writable, even one that the peer causes: that is no reason
        // for another share.
        let flush = source.writable && !empty && !source.unfinished;
        let writer = if source.writable && empty { source.writer.take() } else { None };
        drop(sources);
        if let Some(reader) = reader {
            reader.wake();
        }
        if let Some(writer) = writer {
            writer.wake();
        }
        if flush {
            self.flush(core, key);
        }
    }
}
