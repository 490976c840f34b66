//! Receiving bytes (rule 3 of the driver).

use super::Uring;
use super::buffers::BUFFERS;
use super::source::{Op, Readiness, Source};
use crate::core::{Core, Direction, Fd};
use crate::error::{Call, Error};
use crate::limits::{READ_PER_ROUND, RECEIVED_AHEAD, SMALL_READ};
use crate::receive::Destination;
use crate::slab::Key;
use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

/// Number of consecutive reads that do not suit the present way of receiving before the driver changes to the
/// other: full reads, or reads that a small cluster would have held.
const MISFITS: u8 = 4;

impl Uring {
    pub(crate) fn poll_recv(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        (destination, holds): (&mut Destination<'_>, bool),
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, Error>> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key).expect("a source lives as long as its handle");
        if !source.arrived.is_empty() {
            let put = source.arrived.change(|arrived| destination.put(arrived));
            return Poll::Ready(match put {
                Ok(Ok(())) => Ok(true),
                _ => Err(Error::memory(Call::Receive)),
            });
        }
        match source.ended {
            Some(Ok(())) => return Poll::Ready(Ok(false)),
            Some(Err(Errno::NOMEM)) => return Poll::Ready(Err(Error::memory(Call::Receive))),
            Some(Err(errno)) => return Poll::Ready(Err(Error::system(Call::Receive, errno))),
            None => {}
        }
        if source.reader.park(context.waker()).is_err() {
            return Poll::Ready(Err(Error::busy(Call::Receive)));
        }
        let limited = core.clusters.are_limited();
        if source.receiving {
            if limited && !source.stopping {
                source.stopping = true;
                self.cancel(Op::Receive.of(key));
            }
            return Poll::Pending;
        }
        if source.large || limited {
            return self.poll_bulk(core, source, key, fd, (destination, holds), context);
        }
        if self.buffers.borrow_mut().is_dry() {
            source.reader.leave();
            return Poll::Ready(Err(Error::memory(Call::Receive)));
        }
        core.tallies.reads.add(1);
        source.receiving = true;
        source.stopping = false;
        source.misfits = 0;
        let receive = opcode::RecvMulti::new(types::Fd(fd.as_raw_fd()), BUFFERS).build();
        self.begin(source, key, Op::Receive, receive);
        Poll::Pending
    }

    /// Receives bulk, or all data if clusters are limited (rule 3 of the driver): with system calls while
    /// there are bytes, then waits for readiness.
    fn poll_bulk(
        &self,
        core: &Core,
        source: &mut Source,
        key: Key,
        fd: Fd<'_>,
        (destination, holds): (&mut Destination<'_>, bool),
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, Error>> {
        if source.readiness(Direction::Read) == Readiness::Ready {
            if !source.may_take(core.round.get(), READ_PER_ROUND as u32) {
                core.defer(key, Direction::Read, context.waker());
                return Poll::Pending;
            }
            let holds = holds || !source.outbox.is_empty();
            let idle = self.idle_clusters();
            let Some(clusters) = core.clusters.ask(key, &mut source.turn, holds, idle) else {
                return Poll::Pending;
            };
            match source.read_at_once(core, fd, destination, clusters) {
                Err(Errno::AGAIN) => source.set_readiness(Direction::Read, Readiness::Unknown),
                outcome => {
                    source.reader.leave();
                    if source.readiness(Direction::Read) == Readiness::Unknown {
                        // Asks at once, so that the driver learns when an idle connection ends.
                        self.ask(source, key, fd, Direction::Read);
                    }
                    return Poll::Ready(match outcome {
                        Ok(n) => Ok(n > 0),
                        Err(Errno::NOMEM) => Err(Error::memory(Call::Receive)),
                        Err(errno) => Err(Error::system(Call::Receive, errno)),
                    });
                }
            }
        }
        if source.readiness(Direction::Read) == Readiness::Unknown {
            self.ask(source, key, fd, Direction::Read);
        }
        Poll::Pending
    }

    /// Returns true if a read would find something, or has to be begun to find out.
    pub(crate) fn is_readable(&self, key: Key) -> bool {
        let mut sources = self.sources.borrow_mut();
        let quiet = |source: &mut Source| {
            let requested = source.readiness(Direction::Read) == Readiness::Requested;
            (source.receiving || requested) && source.arrived.is_empty() && source.ended.is_none()
        };
        !sources.get(key).is_some_and(quiet)
    }

    /// Returns true if bytes, or the end, have come that were not received. A round takes a bounded number of
    /// completions: the others may have brought some, too.
    pub(crate) fn has_arrived(&self, key: Key) -> bool {
        let mut sources = self.sources.borrow_mut();
        sources.get(key).is_none_or(|source| {
            !source.arrived.is_empty()
                || source.ended.is_some()
                || source.receiving && self.has_completion(Op::Receive.of(key))
        })
    }

    /// Handles a completion of the operation that receives. Returns true if a task is to be woken.
    pub(super) fn received(
        &self,
        core: &Core,
        source: &mut Source,
        key: Key,
        result: Result<usize, Errno>,
        flags: u32,
    ) -> bool {
        let last = !cqueue::more(flags);
        let segment = self.buffers.borrow_mut().take(flags, result.unwrap_or(0));
        match (result, segment) {
            (Ok(n), Some(segment)) if n > 0 => {
                core.tallies.bytes_in.add(n as u64);
                source.misfits = if n == SMALL_READ { source.misfits.saturating_add(1) } else { 0 };
                source.ahead = if source.arrived.is_empty() { 1 } else { source.ahead.saturating_add(1) };
                if !matches!(source.arrived.change(|arrived| arrived.push_compact(segment)), Ok(Ok(()))) {
                    source.ended = Some(Err(Errno::NOMEM)); // bytes are lost: the stream ends
                }
            }
            (Ok(_), _) => source.ended = source.ended.or(Some(Ok(()))),
            // Stopped by the driver, or out of buffers for now: the task's next call begins it again.
            (Err(Errno::CANCELED | Errno::NOBUFS | Errno::INTR | Errno::AGAIN), _) => {}
            (Err(errno), _) => source.ended = source.ended.or(Some(Err(errno))),
        }
        if last {
            source.receiving = false;
            if source.misfits >= MISFITS {
                source.large = true;
                source.misfits = 0;
            }
        } else if !source.stopping {
            // Reads before the end of the operation may be shorter, but belong to the bulk.
            source.large |= source.misfits >= MISFITS;
            if source.large || source.ahead >= RECEIVED_AHEAD {
                source.stopping = true;
                self.cancel(Op::Receive.of(key));
            }
        }
        true
    }
}

impl Source {
    /// Makes one read, into large clusters for bulk, and returns the number of bytes. Records the end of the
    /// stream and errors, except for `EAGAIN`.
    fn read_at_once(
        &mut self,
        core: &Core,
        fd: Fd<'_>,
        destination: &mut Destination<'_>,
        clusters: usize,
    ) -> Result<usize, Errno> {
        let large = self.large;
        let read = loop {
            core.tallies.reads.add(1);
            match destination.read(fd, large, clusters) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Errno::AGAIN),
                outcome => break outcome,
            }
        };
        match read {
            Ok(read) => {
                core.tallies.bytes_in.add(read.bytes as u64);
                self.taken += read.bytes as u32;
                self.misfits = if large && read.bytes <= SMALL_READ { self.misfits + 1 } else { 0 };
                self.large |= read.bytes == read.room;
                if read.bytes == 0 {
                    self.ended = Some(Ok(()));
                } else if self.misfits >= MISFITS {
                    self.large = false;
                } else if read.bytes < read.room {
                    self.set_readiness(Direction::Read, Readiness::Unknown); // it is empty, or soon will be
                }
                Ok(read.bytes)
            }
            Err(errno) => {
                self.ended = Some(Err(errno));
                Err(errno)
            }
        }
    }
}
