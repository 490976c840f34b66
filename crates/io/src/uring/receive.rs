//! Bytes in (rule 3 of the driver).

use super::Uring;
use super::source::{Op, Source};
use crate::core::{Core, Fd};
use crate::error::{Call, Error};
use crate::limits::{RECEIVED_AHEAD, SMALL_READ};
use crate::slab::Key;
use io_uring::{cqueue, opcode, types};
use manylane_buf::Segment;
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

/// Reads in a row that did not suit the size of the buffers, before the other size is taken.
const MISFITS: u8 = 4;

impl Uring {
    pub(crate) fn poll_recv(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Segment>, Error>> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key).expect("a source lives as long as its handle");
        if let Some(segment) = source.arrived.pop_front() {
            return Poll::Ready(Ok(Some(segment)));
        }
        match source.ended {
            Some(Ok(())) => return Poll::Ready(Ok(None)),
            Some(Err(Errno::NOMEM)) => return Poll::Ready(Err(Error::memory(Call::Receive))),
            Some(Err(errno)) => return Poll::Ready(Err(Error::system(Call::Receive, errno))),
            None => {}
        }
        if source.reader.park(context.waker()).is_err() {
            return Poll::Ready(Err(Error::busy(Call::Receive)));
        }
        if !source.receiving {
            let mut buffers = self.buffers.borrow_mut();
            let group = buffers.group(source.large);
            if buffers.is_dry(source.large) {
                source.reader.leave();
                return Poll::Ready(Err(Error::memory(Call::Receive)));
            }
            core.tallies.reads.add(1);
            source.receiving = true;
            source.stopping = false;
            source.misfits = 0;
            let receive = opcode::RecvMulti::new(types::Fd(fd.as_raw_fd()), group).build();
            self.begin(source, key, Op::Receive, receive);
        }
        Poll::Pending
    }

    /// Whether a read would find something, or has to be begun to tell.
    pub(crate) fn has_news(&self, key: Key) -> bool {
        let mut sources = self.sources.borrow_mut();
        let quiet =
            |source: &mut Source| source.receiving && source.arrived.is_empty() && source.ended.is_none();
        !sources.get(key).is_some_and(quiet)
    }

    /// A completion of the operation that receives. Whether a task is to be woken.
    pub(super) fn received(
        &self,
        core: &Core,
        source: &mut Source,
        key: Key,
        result: Result<usize, Errno>,
        flags: u32,
    ) -> bool {
        let last = !cqueue::more(flags);
        let segment = self.buffers.borrow_mut().take(source.large, flags, result.unwrap_or(0));
        match (result, segment) {
            (Ok(n), Some(segment)) if n > 0 => {
                core.tallies.bytes_in.add(n as u64);
                // For sizes: a full small one, or a large one that a small one would have held.
                let misfit = if source.large { n <= SMALL_READ } else { n == SMALL_READ };
                source.misfits = if misfit { source.misfits.saturating_add(1) } else { 0 };
                if source.arrived.push_back(segment).is_err() {
                    source.ended = Some(Err(Errno::NOMEM)); // bytes are lost: the stream is over
                }
            }
            (Ok(_), _) => source.ended = source.ended.or(Some(Ok(()))),
            // Stopped by us, or out of buffers for now: the task's next call begins it again.
            (Err(Errno::CANCELED | Errno::NOBUFS | Errno::INTR | Errno::AGAIN), _) => {}
            (Err(errno), _) => source.ended = source.ended.or(Some(Err(errno))),
        }
        if last {
            source.receiving = false;
            if source.misfits >= MISFITS {
                source.large = !source.large;
            }
        } else if !source.stopping
            && (source.arrived.segment_count() >= RECEIVED_AHEAD || source.misfits >= MISFITS)
        {
            source.stopping = true;
            self.cancel(Op::Receive.of(key));
        }
        true
    }
}
