//! Transfers of streams.

use super::{Epoll, Source};
use crate::core::{Core, Direction, Fd};
use crate::error::{Call, Error};
use crate::limits::{READ_PER_ROUND, SMALL_READ};
use crate::receive::Destination;
use crate::slab::Key;
use crate::transmit::{Sent, transmit, transmit_last};
use manylane_buf::Chain;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::task::{Context, Poll};

impl Epoll {
    /// Receives the next bytes into `destination`; returns false at the end of the stream. Allocates clusters
    /// only if bytes are likely to be there. If the task `holds` nothing, it may have to wait for clusters
    /// (R-D4).
    #[inline]
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
        if source.readable {
            if !source.may_take(core.round.get(), READ_PER_ROUND as u32) {
                if source.reader.park(context.waker()).is_err() {
                    return Poll::Ready(Err(Error::busy(Call::Receive)));
                }
                core.defer(key, Direction::Read, context.waker());
                return Poll::Pending;
            }
            let holds = holds || !source.outbox.is_empty();
            let Some(clusters) = core.clusters.ask(key, &mut source.turn, holds, 0) else {
                return match source.reader.park(context.waker()) {
                    Ok(()) => Poll::Pending,
                    Err(_) => Poll::Ready(Err(Error::busy(Call::Receive))),
                };
            };
            source.reader.leave(); // it may have had its share of a round, and waited for the next
            loop {
                core.tallies.reads.add(1);
                match destination.read(fd, source.large, clusters) {
                    Ok(read) if read.bytes == 0 => return Poll::Ready(Ok(false)),
                    Ok(read) => {
                        let full = read.bytes == read.room;
                        source.readable = full || source.short_reads_lie; // rule 3
                        source.large = full || source.large && read.bytes > SMALL_READ;
                        source.taken += read.bytes as u32;
                        source.unread_events = 0;
                        core.tallies.bytes_in.add(read.bytes as u64);
                        return Poll::Ready(Ok(true));
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break source.readable = false,
                    Err(Errno::NOMEM) => return Poll::Ready(Err(Error::memory(Call::Receive))),
                    Err(errno) => return Poll::Ready(Err(Error::system(Call::Receive, errno))),
                }
            }
        }
        self.wait_for(core, source, key, fd, (Direction::Read, Call::Receive), context)
    }

    /// True if a read may find something. Of a source that was never registered, or ignores bytes, only a
    /// read can tell.
    #[inline]
    pub(crate) fn is_readable(&self, key: Key) -> bool {
        let may_be = |source: &mut Source| source.readable || !source.registered || source.ignores_bytes;
        self.sources.borrow_mut().get(key).is_some_and(may_be)
    }

    /// Always false: bytes that were not received, or the end, stay in the kernel.
    #[inline]
    pub(crate) fn has_arrived(&self, _: Key) -> bool {
        false
    }

    /// Returns the number of bytes in a source's outbox.
    pub(crate) fn unsent(&self, key: Key) -> usize {
        self.sources.borrow_mut().get(key).map_or(0, |source| source.outbox.len())
    }

    /// Sends `chain` by reference, behind bytes handed over earlier. Bytes that the socket does not accept
    /// now move into the source, and go out as the socket accepts them, even if the task no longer waits.
    /// Ready when nothing is left.
    #[inline]
    pub(crate) fn poll_send(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        chain: Option<&mut Chain>,
        _: usize, // the kernel keeps the bytes that it accepts
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut sources = self.sources.borrow_mut();
        let mut source = sources.get(key).expect("a source lives as long as its handle");
        if let Some(errno) = source.broken {
            return Poll::Ready(Err(Error::system(Call::Send, errno)));
        }
        if let Some(chain) = chain
            && !chain.is_empty()
        {
            if source.writer.is_anothers(context.waker()) {
                return Poll::Ready(Err(Error::busy(Call::Send))); // before anything is taken from the chain
            }
            source.fd = fd.as_raw_fd(); // before anything can be unfinished
            if source.outbox.is_empty() && source.writable {
                drop(sources); // rule 2 of the core
                let sent = transmit(fd, chain, core.tallies);
                if sent == Ok(Sent::All) {
                    return Poll::Ready(Ok(()));
                }
                sources = self.sources.borrow_mut();
                source = sources.get(key).expect("a source lives as long as its handle");
                self.stopped_at(source, key, sent);
                if let Err(errno) = sent {
                    return Poll::Ready(Err(Error::system(Call::Send, errno)));
                }
            }
            if source.outbox.append(chain).is_err() {
                return Poll::Ready(Err(Error::memory(Call::Send)));
            }
        }
        if source.outbox.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.wait_for(core, source, key, fd, (Direction::Write, Call::Send), context)
    }

    /// Sends as many bytes as the socket accepts at once, if no bytes are before them. The rest stays in the
    /// chain. `last`: the end of the stream follows.
    pub(crate) fn send_at_once(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        chain: &mut Chain,
        last: bool,
    ) -> Result<(), Error> {
        let may =
            |source: &mut Source| source.outbox.is_empty() && source.writable && source.broken.is_none();
        if !self.sources.borrow_mut().get(key).is_some_and(may) {
            return Ok(());
        }
        let transmit = if last { transmit_last } else { transmit };
        let sent = transmit(fd, chain, core.tallies); // rule 2 of the core
        match sent {
            Ok(Sent::All | Sent::Enough) => {} // the usual way of sending handles the rest
            Ok(Sent::Full) | Err(_) => {
                if let Some(source) = self.sources.borrow_mut().get(key) {
                    self.stopped_at(source, key, sent);
                }
            }
        }
        sent.map(drop).map_err(|errno| Error::system(Call::Send, errno))
    }

    /// Records why sending stopped.
    fn stopped_at(&self, source: &mut Source, key: Key, sent: Result<Sent, Errno>) {
        match sent {
            Ok(Sent::All) => {}
            Ok(Sent::Full) => source.writable = false,
            Ok(Sent::Enough) if source.unfinished => {}
            Ok(Sent::Enough) => {
                source.unfinished = true;
                self.unfinished.borrow_mut().push(key);
            }
            Err(errno) => source.broken = Some(errno),
        }
    }

    /// Sends bytes of a source's outbox after an edge, or in another round, even if no task waits.
    #[cold]
    pub(super) fn flush(&self, core: &Core, key: Key) {
        let taken =
            self.sources.borrow_mut().get(key).filter(|source| !source.outbox.is_empty()).map(|source| {
                // SAFETY: the source exists, so its handle does, which owns the descriptor for which the
                // bytes were handed over. The outbox has bytes, so the descriptor was stored.
                let fd = unsafe { BorrowedFd::borrow_raw(source.fd) };
                (fd, std::mem::take(&mut source.outbox))
            });
        let Some((fd, mut outbox)) = taken else { return };
        let before = outbox.len();
        // Rule 2 of the core. There are bytes, so there is a chain.
        let sent = outbox.change(|chain| transmit(fd, chain, core.tallies)).unwrap_or(Err(Errno::NOMEM));
        let some = outbox.len() < before;
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return };
        self.stopped_at(source, key, sent);
        let writer = match sent {
            Ok(Sent::Full | Sent::Enough) => {
                std::mem::swap(&mut source.outbox, &mut outbox);
                if some { source.writer.take() } else { None } // a task that waits for the rest waits again
            }
            Ok(Sent::All) | Err(_) => source.writer.take(),
        };
        drop(sources);
        drop(outbox);
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}
