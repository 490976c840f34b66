//! The io_uring driver: submits operations to the kernel, and takes their completions, in batches.
//!
//! System calls: `io_uring_setup`, `io_uring_register` for the ring's descriptor and the buffers, then one
//! `io_uring_enter` a round, and none in rounds without operations or completions; for bulk `recv`,
//! `recvmsg`, `send` and `sendmsg` (rule 3). Needs Linux 6.1 (deferred task work). If the kernel lacks a
//! feature or forbids the calls, creating the driver fails.
//!
//! 1. **Memory that the kernel uses is in a source's entry** or in the buffer rings, never in a future:
//!    chains that are sent stay in the entry's outbox, addresses and vectors in boxes of the entry, until the
//!    completion.
//! 2. **An entry outlives its operations.** `ops` counts the operations without a last completion. Releasing
//!    a source requests their cancellation; when the count is 0 the entry is removed and the descriptor
//!    closed.
//! 3. **Receiving is one operation for many reads.** It takes buffers from a ring of clusters; a filled
//!    buffer becomes a segment, and a new cluster takes its place. It stops when
//!    [`RECEIVED_AHEAD`](crate::RECEIVED_AHEAD) of them wait for the task, and begins again when they are
//!    gone: so a peer fills neither the lane's memory nor its time.
//!
//!    After several full reads it ends, and bulk is read and sent with system calls, and waits by rule 5: a
//!    ring uses its buffers in turn, so that each is out of the cache when it is filled, unlike clusters that
//!    were sent a moment ago. If connections have a limit of clusters (R-D4), all data is received as bulk
//!    is.
//! 4. **Accepting likewise**, with [`ACCEPTED_AHEAD`](crate::ACCEPTED_AHEAD).
//! 5. **Readiness** (datagrams, splices) is requested once at a time, by operations that report when a call
//!    may succeed. The ring's polls, even those for room, also complete at the end of the peer's stream.
//!    After that, splices go another way, and an epoll instance of its own, which filters events, watches a
//!    datagram socket: the ring polls that instance.
//! 6. **The ring is left empty.** The end of the core cancels the remaining operations and waits for them. If
//!    the kernel does not answer, memory that it may still write to is leaked, not freed.

mod accept;
mod buffers;
mod complete;
mod receive;
mod send;
mod source;
mod trial;

use crate::clusters::Turn;
use crate::core::{Core, Direction, Fd, FdKind};
use crate::error::{Call, Error};
use crate::limits::EVENTS_PER_WAIT;
use crate::listener::PrefetchedData;
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

/// Number of entries of the submission queue. A full queue is submitted at once.
const SUBMISSIONS: u32 = 256;
/// Number of entries of the completion queue. Further completions wait in the kernel.
const COMPLETIONS: u32 = 4096;

/// Number of attempts to make a ring for which there is no memory.
const ATTEMPTS: u32 = 5;
/// Pause between two of them: the kernel releases the locked memory of rings in the background, soon after
/// their process closed them.
const PAUSE: Duration = Duration::from_millis(20);

/// Calls `make` until there is memory for it, at most [`ATTEMPTS`] times.
fn patiently<T>(make: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..ATTEMPTS {
        match make() {
            Err(Errno::NOMEM) => std::thread::sleep(PAUSE),
            made => return made,
        }
    }
    make()
}

/// Creates an epoll instance that is readable when a socket has room, regardless of its other events.
fn poller_of(fd: Fd<'_>) -> Result<OwnedFd, Errno> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poller, fd, epoll::EventData::new_u64(0), epoll::EventFlags::OUT)?;
    Ok(poller)
}

pub(crate) struct Uring {
    tallies: &'static Tallies,
    ring: RefCell<IoUring>,
    wake_fd: Arc<WakeFd>,
    sources: RefCell<Slab<Source>>,
    buffers: RefCell<Buffers>,
    /// Operations that found no place in the submission queue.
    backlog: RefCell<VecDeque<squeue::Entry>>,
    completions: RefCell<Vec<Completion>>,
    /// True while the kernel has the operation on the wake-up descriptor.
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
        let (ring, buffers) = patiently(|| {
            let ring = Self::ring()?;
            let buffers = Buffers::new(&ring, buffers::ENTRIES)?;
            Ok((ring, buffers))
        })?;
        // Saves a look-up in each enter; the driver works without it.
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
        uring.watch_wake_fd();
        Ok(uring)
    }

    pub(crate) fn wake_fd(&self) -> Arc<WakeFd> {
        self.wake_fd.clone()
    }

    /// Begins to watch the wake-up descriptor: each wake-up is a completion, and no thread has to read the
    /// counter.
    fn watch_wake_fd(&self) {
        self.listening.set(true);
        let fd = types::Fd(self.wake_fd.fd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        self.push(poll.user_data(Op::WakeFd.bits()));
    }

    /// Returns the number of sources, including those that wait for their last operation.
    pub(crate) fn len(&self) -> usize {
        self.sources.borrow().len()
    }

    // ---- Operations to the kernel ----

    /// Queues an operation for the next enter.
    fn push(&self, entry: squeue::Entry) {
        let mut backlog = self.backlog.borrow_mut();
        backlog.push_back(entry); // keeps the order in every case
        self.hand_over(&mut self.ring.borrow_mut(), &mut backlog);
    }

    /// Moves as many operations as possible from the backlog into the queue.
    fn hand_over(&self, ring: &mut IoUring, backlog: &mut VecDeque<squeue::Entry>) {
        while let Some(entry) = backlog.front() {
            // SAFETY: rule 1: the memory that the operation uses belongs to the source and lives until the
            // completion.
            if unsafe { ring.submission().push(entry) }.is_ok() {
                backlog.pop_front();
            } else {
                self.tallies.waits.add(1);
                if ring.submit().is_err() {
                    return; // the kernel requires that its completions are taken first
                }
            }
        }
    }

    /// Begins an operation of a source.
    fn begin(&self, source: &mut Source, key: Key, op: Op, entry: squeue::Entry) {
        source.ops += 1;
        if matches!(op, Op::Receive | Op::Send | Op::Accept | Op::Connect) {
            self.tallies.in_ring.add(1); // the caller has counted it by its kind
        }
        self.push(entry.user_data(op.of(key)));
    }

    /// Requests the end of an operation; its completion comes all the same.
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

    pub(crate) fn add(&self, _: FdKind) -> Key {
        self.sources.borrow_mut().insert(Source::new())
    }

    /// Releases a source (rule 2).
    pub(crate) fn release(&self, core: &Core, key: Key, fd: OwnedFd) {
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return };
        core.clusters.forget(key, std::mem::take(&mut source.turn));
        self.cancel_all_of(source, key);
        self.tallies.in_ring.add(1); // the core has counted a close
        source.closing = Some(fd);
        // Nobody waits any more: the last completions must wake no task that has ended.
        let waited = (source.reader.take(), source.writer.take(), source.detacher.take());
        drop(sources);
        drop(waited); // rule 2 of the core
        self.end_if_idle(core, key);
    }

    /// Closes a released source without operations.
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

    /// Closes a descriptor with the next enter.
    fn close(&self, fd: OwnedFd) {
        let close = opcode::Close::new(types::Fd(fd.into_raw_fd())).build();
        self.push(close.flags(squeue::Flags::SKIP_SUCCESS).user_data(Op::Ignored.bits()));
    }

    /// Gives up a descriptor that stays open, after its operations have ended.
    pub(crate) async fn detach(&self, core: &Core, key: Key, _: Fd<'_>) -> Result<PrefetchedData, Error> {
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
        let Some(mut source) = self.sources.borrow_mut().remove(key) else {
            return Ok(PrefetchedData::default());
        };
        // The kernel reports an error once: without this the stream would seem to have ended well.
        if let Some(Err(errno)) = source.ended {
            return Err(Error::system(Call::Receive, errno));
        }
        Ok(PrefetchedData {
            received: source.arrived.take(),
            accepted: source.accepted.take().map_or_else(Vec::new, |accepted| (*accepted).into()),
        })
    }

    pub(crate) fn leave(&self, key: Key, direction: Direction) {
        if let Some(source) = self.sources.borrow_mut().get(key) {
            source.waiter(direction).leave();
        }
    }

    /// Returns the number of clusters whose room the kernel has and has not filled.
    pub(crate) fn idle_clusters(&self) -> usize {
        self.buffers.borrow().len()
    }

    /// Returns the waker of the task that waits for clusters with this source, if one still does.
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
                return Poll::Ready(Err(Error::system(call, Errno::INVAL))); // as from an older kernel
            }
            match poller_of(fd) {
                Ok(poller) => source.poller = Some(poller),
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

    /// Requests an event for readiness.
    fn ask(&self, source: &mut Source, key: Key, fd: Fd<'_>, direction: Direction) {
        let (op, fd, events) = match (direction, &source.poller) {
            (Direction::Read, _) => (Op::Readable, fd.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP),
            (Direction::Write, None) => (Op::Writable, fd.as_raw_fd(), libc::POLLOUT),
            (Direction::Write, Some(poller)) => (Op::Writable, poller.as_raw_fd(), libc::POLLIN),
        };
        source.set_readiness(direction, Readiness::Requested);
        let poll = opcode::PollAdd::new(types::Fd(fd), events as u32).build();
        self.begin(source, key, op, poll);
    }

    // ---- The round ----

    /// Returns true if operations wait for submission, or completions for handling.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let queue = ring.submission();
        let waits = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        waits || !ring.completion().is_empty() || !self.backlog.borrow().is_empty()
    }

    /// Returns true if a completion of this operation waits, as far as is known: always true if some found no
    /// place in the queue. Reads all completions that a round has left, which are none except under load.
    fn has_completion(&self, data: u64) -> bool {
        let mut ring = self.ring.borrow_mut();
        if ring.submission().cq_overflow() {
            return true;
        }
        let mut queue = ring.completion();
        let found = queue.any(|entry| entry.user_data() == data);
        std::mem::forget(queue); // its drop would consume the entries that were read
        found
    }

    /// Checks the kernel for completions, and wakes the tasks that wait for them.
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
        let immediate =
            timeout == Some(Duration::ZERO) || !backlog.is_empty() || !ring.completion().is_empty();
        if immediate && to_submit == 0 && !runs && !overflown {
            return Ok(()); // there is nothing to submit or take
        }
        core.tallies.waits.add(1);
        let wanted = u32::from(!immediate);
        let submitter = ring.submitter();
        let outcome = match timeout.filter(|_| !immediate) {
            None => {
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: no argument; the memory that the operations use lives (rule 1).
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
            // Busy, again: the kernel requires that its completions are taken first; the next round tries
            // again.
            Ok(_) | Err(Errno::INTR | Errno::TIME | Errno::BUSY | Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Ends the driver (rule 6). All handles are gone.
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
        // Submits the closes that are still queued.
        let _ = self.enter(core, Some(Duration::ZERO));
        if !idle() {
            std::mem::forget(self.buffers.replace(Buffers::none()));
            std::mem::forget(self.sources.replace(Slab::new()));
        }
    }

    /// Stops receiving ahead of requests. Returns at most `limit` bytes of those received; the rest stays for
    /// the next call.
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
