//! The io_uring driver: operations handed to the kernel in batches, their outcomes taken in batches.
//!
//! System calls: `io_uring_setup`, `io_uring_register` for the ring's descriptor and the buffers, then one
//! `io_uring_enter` a round, and none in rounds without anything to pass on or to take; for bulk `recv`,
//! `recvmsg`, `send` and `sendmsg` (rule 3). Needs Linux 6.1 (deferred task work); where the kernel lacks
//! something or forbids the calls, the driver is refused when it is made.
//!
//! 1. **What the kernel works on is in a source's entry** or in the buffer rings, never in a future: chains
//!    that are sent stay in the entry's outbox, addresses and vectors in boxes of it, until the completion
//!    has come.
//! 2. **An entry outlives its operations.** `ops` counts those whose last completion has not come. A source
//!    that is released asks for their cancellation, and goes when the count is 0; then its descriptor is
//!    closed.
//! 3. **Receiving is one operation for many reads.** It takes buffers from a ring of clusters; a buffer that
//!    was filled becomes a segment, and a fresh cluster takes its place. It is stopped when
//!    [`RECEIVED_AHEAD`](crate::RECEIVED_AHEAD) segments wait for the task, and begun again when they are
//!    gone: so a partner cannot fill our memory. After full reads in a row it ends: bulk is read, and sent,
//!    with calls of its own, and waited for by rule 5. A ring hands its buffers out in turns, so that each is
//!    out of the cache when it is filled; clusters that were sent a moment ago are not. Where connections may
//!    hold so many clusters only (R-D4), all is received as bulk is.
//! 4. **Accepting likewise**, with [`ACCEPTED_AHEAD`](crate::ACCEPTED_AHEAD).
//! 5. **Readiness** (datagrams, splices) is asked for one at a time, by operations that tell when a call may
//!    succeed. The ring's polls end with the end of what is received, too, also those for room. Once one did,
//!    splices go another way, and a socket of datagrams is watched by an epoll instance of its own, which is
//!    told what to look for: the ring asks that one.
//! 6. **The ring is left empty.** The core's end cancels what is left and waits for it; should the kernel not
//!    answer, memory that it may still write to is leaked, not freed.

mod accept;
mod buffers;
mod complete;
mod receive;
mod send;
mod source;
mod trial;

use crate::clusters::Turn;
use crate::core::{Core, Direction, Fd, Nature};
use crate::error::{Call, Error};
use crate::limits::EVENTS_PER_WAIT;
use crate::listener::Early;
use crate::slab::{Key, Slab};
use crate::stats::Tallies;
use crate::wake_fd::WakeFd;
use buffers::Buffers;
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use manylane_buf::Chain;
use manylane_sync::Arc;
use rustix::event::epoll;
use rustix::io::Errno;
use source::{Op, Readiness, Source};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
pub(crate) use trial::{Failure as TrialFailure, run as try_out};

/// Entries of the submission queue. When they are taken, what is in them is passed on at once.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue. What does not fit waits in the kernel.
const COMPLETIONS: u32 = 4096;

/// Is ready to be read when there is room in a socket, whatever else there is to tell of it.
fn watch(fd: Fd<'_>) -> Result<OwnedFd, Errno> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::OUT)?;
    Ok(watch)
}

pub(crate) struct Uring {
    tallies: &'static Tallies,
    ring: RefCell<IoUring>,
    wake_fd: Arc<WakeFd>,
    sources: RefCell<Slab<Source>>,
    buffers: RefCell<Buffers>,
    /// What found no place in the submission queue.
    backlog: RefCell<VecDeque<squeue::Entry>>,
    completions: RefCell<Vec<Completion>>,
    /// Whether the event descriptor's operation is the kernel's.
    listening: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Completion {
    data: u64,
    result: i32,
    flags: u32,
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Uring {
    fn ring() -> Result<IoUring, Errno> {
        IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)
            .map_err(errno)
    }

    pub(crate) fn new() -> Result<Self, Errno> {
        let ring = Self::ring()?;
        let buffers = Buffers::new(&ring, buffers::ENTRIES)?;
        // Spares a look-up in each enter; without it all works.
        let _ = ring.submitter().register_ring_fd();
        let uring = Self {
            tallies: crate::stats::own(),
            ring: RefCell::new(ring),
            wake_fd: WakeFd::new()?,
            sources: RefCell::new(Slab::new()),
            buffers: RefCell::new(buffers),
            backlog: RefCell::default(),
            completions: RefCell::new(Vec::with_capacity(EVENTS_PER_WAIT)),
            listening: Cell::new(false),
        };
        uring.listen_to_the_bell();
        Ok(uring)
    }

    pub(crate) fn wake_fd(&self) -> Arc<WakeFd> {
        self.wake_fd.clone()
    }

    /// Each ring of the event descriptor is a completion, and nobody has to read the counter back.
    fn listen_to_the_bell(&self) {
        self.listening.set(true);
        let fd = types::Fd(self.wake_fd.fd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        self.push(poll.user_data(Op::WakeFd.bits()));
    }

    /// Sources that exist, those included that wait for their last operation.
    pub(crate) fn len(&self) -> usize {
        self.sources.borrow().len()
    }

    // ---- Operations to the kernel ----

    /// Puts an operation where the next enter takes it.
    fn push(&self, entry: squeue::Entry) {
        let mut backlog = self.backlog.borrow_mut();
        backlog.push_back(entry); // in order, whatever happens
        self.hand_over(&mut self.ring.borrow_mut(), &mut backlog);
    }

    /// Moves the backlog into the queue, as far as that is possible.
    fn hand_over(&self, ring: &mut IoUring, backlog: &mut VecDeque<squeue::Entry>) {
        while let Some(entry) = backlog.front() {
            // SAFETY: rule 1: what the operation points to is the source's and lives until the completion.
            if unsafe { ring.submission().push(entry) }.is_ok() {
                backlog.pop_front();
            } else {
                self.tallies.waits.add(1);
                if ring.submit().is_err() {
                    return; // the kernel wants its completions taken first
                }
            }
        }
    }

    /// Begins an operation of a source.
    fn begin(&self, source: &mut Source, key: Key, op: Op, entry: squeue::Entry) {
        source.ops += 1;
        if matches!(op, Op::Receive | Op::Send | Op::Accept | Op::Connect) {
            self.tallies.in_ring.add(1); // whoever begins one has counted it as what it is
        }
        self.push(entry.user_data(op.of(key)));
    }

    /// Asks for the end of an operation; its completion comes all the same.
    fn cancel(&self, data: u64) {
        let cancel = opcode::AsyncCancel::new(data).build();
        self.push(cancel.flags(squeue::Flags::SKIP_SUCCESS).user_data(Op::Ignored.bits()));
    }

    fn cancel_all_of(&self, source: &Source, key: Key) {
        for (op, active) in source.active() {
            if active {
                self.cancel(op.of(key));
            }
        }
    }

    // ---- Sources ----

    pub(crate) fn add(&self, _: Nature) -> Key {
        self.sources.borrow_mut().insert(Source::new())
    }

    /// Rule 2.
    pub(crate) fn release(&self, core: &Core, key: Key, fd: OwnedFd) {
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return };
        core.clusters.forget(key, std::mem::take(&mut source.turn));
        self.cancel_all_of(source, key);
        self.tallies.in_ring.add(1); // the core has counted a close
        source.closing = Some(fd);
        drop(sources);
        self.end_if_idle(core, key);
    }

    /// Closes a released source whose operations are over.
    fn end_if_idle(&self, core: &Core, key: Key) {
        let mut sources = self.sources.borrow_mut();
        let idle = sources.get(key).is_some_and(|source| source.ops == 0 && source.closing.is_some());
        let Some(mut source) = idle.then(|| sources.remove(key)).flatten() else { return };
        drop(sources);
        if let Some(fd) = source.closing.take() {
            self.close(fd);
        }
        for fd in source.accepted.take().into_iter().flat_map(|accepted| *accepted) {
            self.tallies.closes.add(1);
            self.tallies.in_ring.add(1);
            self.close(fd);
        }
        drop(source); // rule 2 of the core
        core.descriptor_freed();
    }

    /// Closing rides along with the next enter.
    fn close(&self, fd: OwnedFd) {
        let close = opcode::Close::new(types::Fd(fd.into_raw_fd())).build();
        self.push(close.flags(squeue::Flags::SKIP_SUCCESS).user_data(Op::Ignored.bits()));
    }

    /// Gives up a descriptor that stays open, when its operations are over.
    pub(crate) async fn detach(&self, core: &Core, key: Key, _: Fd<'_>) -> Result<Early, Error> {
        if let Some(source) = self.sources.borrow_mut().get(key) {
            core.clusters.forget(key, std::mem::take(&mut source.turn));
            self.cancel_all_of(source, key);
            source.stopping = true;
        }
        poll_fn(|context| {
            let mut sources = self.sources.borrow_mut();
            let Some(source) = sources.get(key) else { return Poll::Ready(()) };
            if source.ops == 0 {
                return Poll::Ready(());
            }
            source.detacher = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        let Some(mut source) = self.sources.borrow_mut().remove(key) else { return Ok(Early::default()) };
        // The kernel tells of it once: without it the stream would seem to have ended well.
        if let Some(Err(errno)) = source.ended {
            return Err(Error::system(Call::Receive, errno));
        }
        Ok(Early {
            received: source.arrived.take(),
            accepted: source.accepted.take().map_or_else(Vec::new, |accepted| (*accepted).into()),
        })
    }

    pub(crate) fn leave(&self, key: Key, direction: Direction) {
        if let Some(source) = self.sources.borrow_mut().get(key) {
            source.waiter(direction).leave();
        }
    }

    /// Clusters that the kernel was given room in and has not filled.
    pub(crate) fn idle_clusters(&self) -> usize {
        self.buffers.borrow().len()
    }

    /// Who waits for clusters with this source, if anybody still does.
    pub(crate) fn offer(&self, key: Key) -> Option<Waker> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key)?;
        let waker = source.reader.take();
        source.turn = if waker.is_some() { Turn::Offered } else { Turn::None };
        waker
    }

    // ---- Readiness (rule 5) ----

    pub(crate) fn forget_readiness(&self, key: Key, direction: Direction) {
        if let Some(source) = self.sources.borrow_mut().get(key)
            && source.readiness(direction) == Readiness::Ready
        {
            source.set_readiness(direction, Readiness::Unknown);
        }
    }

    pub(crate) fn poll_ready(
        &self,
        _: &Core,
        key: Key,
        fd: Fd<'_>,
        (direction, call): (Direction, Call),
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key).expect("a source lives as long as its handle");
        if direction == Direction::Read
            && let Some(Err(errno)) = source.ended
        {
            return Poll::Ready(Err(Error::system(call, errno)));
        }
        if source.readiness(direction) == Readiness::Ready {
            return Poll::Ready(Ok(()));
        }
        if direction == Direction::Write && !source.tells_of_room() {
            if call != Call::SendDatagrams {
                return Poll::Ready(Err(Error::system(call, Errno::INVAL))); // as of a kernel that cannot tell
            }
            match watch(fd) {
                Ok(watch) => source.watch = Some(watch),
                Err(errno) => return Poll::Ready(Err(Error::system(call, errno))),
            }
        }
        if source.waiter(direction).park(context.waker()).is_err() {
            return Poll::Ready(Err(Error::busy(call)));
        }
        if source.readiness(direction) == Readiness::Unknown {
            self.ask(source, key, fd, direction);
        }
        Poll::Pending
    }

    /// Asks to be told of readiness.
    fn ask(&self, source: &mut Source, key: Key, fd: Fd<'_>, direction: Direction) {
        let (op, fd, events) = match (direction, &source.watch) {
            (Direction::Read, _) => (Op::Readable, fd.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP),
            (Direction::Write, None) => (Op::Writable, fd.as_raw_fd(), libc::POLLOUT),
            (Direction::Write, Some(watch)) => (Op::Writable, watch.as_raw_fd(), libc::POLLIN),
        };
        source.set_readiness(direction, Readiness::Requested);
        let poll = opcode::PollAdd::new(types::Fd(fd), events as u32).build();
        self.begin(source, key, op, poll);
    }

    // ---- The round ----

    /// Whether operations wait to be handed over, or completions to be taken.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let queue = ring.submission();
        let waits = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        waits || !ring.completion().is_empty() || !self.backlog.borrow().is_empty()
    }

    /// Whether a completion of this operation waits to be taken, as far as that can be told: true if some
    /// found no place in the queue. Looks at all that a round has left, which is nothing but under load.
    fn has_completion(&self, data: u64) -> bool {
        let mut ring = self.ring.borrow_mut();
        if ring.submission().cq_overflow() {
            return true;
        }
        let mut queue = ring.completion();
        let found = queue.any(|entry| entry.user_data() == data);
        std::mem::forget(queue); // its drop would take what was looked at
        found
    }

    /// One look at the kernel, and the wake-ups that follow from it.
    pub(crate) fn wait(&self, core: &Core, timeout: Option<Duration>) -> Result<(), Errno> {
        self.enter(core, timeout)?;
        let mut completions = self.completions.take();
        {
            let mut ring = self.ring.borrow_mut();
            let queue = ring.completion();
            completions.extend(queue.take(core.events.get()).map(|entry| Completion {
                data: entry.user_data(),
                result: entry.result(),
                flags: entry.flags(),
            }));
        }
        for completion in completions.drain(..) {
            self.complete(core, completion);
        }
        *self.completions.borrow_mut() = completions;
        self.buffers.borrow_mut().refill();
        Ok(())
    }

    fn enter(&self, core: &Core, timeout: Option<Duration>) -> Result<(), Errno> {
        let mut ring = self.ring.borrow_mut();
        let mut backlog = self.backlog.borrow_mut();
        self.hand_over(&mut ring, &mut backlog);
        let (to_submit, runs, overflown) = {
            let queue = ring.submission();
            (queue.len(), queue.taskrun(), queue.cq_overflow())
        };
        let look = timeout == Some(Duration::ZERO) || !backlog.is_empty() || !ring.completion().is_empty();
        if look && to_submit == 0 && !runs && !overflown {
            return Ok(()); // there is nothing that the kernel could do
        }
        core.tallies.waits.add(1);
        let wanted = u32::from(!look);
        let submitter = ring.submitter();
        let outcome = match timeout.filter(|_| !look) {
            None => {
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: no argument; what the operations point to lives (rule 1).
                unsafe { submitter.enter::<libc::sigset_t>(to_submit as u32, wanted, flags, None) }
            }
            Some(timeout) => {
                let time = types::Timespec::from(timeout);
                let arguments = types::SubmitArgs::new().timespec(&time);
                let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
                // SAFETY: the argument lives until after the call; the rest as above.
                unsafe { submitter.enter(to_submit as u32, wanted, flags, Some(&arguments)) }
            }
        };
        match outcome.map_err(errno) {
            // Busy, again: the kernel wants its completions taken first, and is asked again in the next
            // round.
            Ok(_) | Err(Errno::INTR | Errno::TIME | Errno::BUSY | Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Rule 6. All handles are gone.
    pub(crate) fn end(&self, core: &Core) {
        if self.listening.get() {
            self.cancel(Op::WakeFd.bits());
        }
        let idle = || self.len() == 0 && !self.listening.get() && self.backlog.borrow().is_empty();
        let mut rounds = 0;
        while !idle() && rounds < 1000 {
            rounds += 1;
            if self.wait(core, Some(Duration::from_millis(10))).is_err() {
                break;
            }
        }
        // The closes that are still queued.
        let _ = self.enter(core, Some(Duration::ZERO));
        if !idle() {
            std::mem::forget(self.buffers.replace(Buffers::none()));
            std::mem::forget(self.sources.replace(Slab::new()));
        }
    }

    /// Receiving on the driver's account ends; at most `limit` bytes of what it brought. The rest stays for
    /// the next.
    pub(crate) async fn stop_receiving(&self, _: &Core, key: Key, limit: usize) -> Result<Chain, Error> {
        poll_fn(|context| {
            let mut sources = self.sources.borrow_mut();
            let source = sources.get(key).expect("a source lives as long as its handle");
            if !source.receiving {
                let at = limit.min(source.arrived.len());
                let part = source.arrived.change(|arrived| arrived.split_to(at));
                return Poll::Ready(part.and_then(|part| part).map_err(|_| Error::memory(Call::Splice)));
            }
            if !source.stopping {
                source.stopping = true;
                self.cancel(Op::Receive.of(key));
            }
            source.detacher = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
