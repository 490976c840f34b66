//! Sending bytes, and outgoing connections (rule 1 of the driver).

use super::Uring;
use super::source::{Op, Source, Vectors};
use crate::core::{Core, Fd};
use crate::error::{Call, Error};
use crate::limits::{SEGMENTS_PER_WRITE, SENT_AHEAD, SENT_AT_ONCE};
use crate::slab::Key;
use crate::transmit::{transmit, transmit_last};
use io_uring::{opcode, types};
use manylane_buf::Chain;
use manylane_pool::Pool;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::LazyLock;
use std::task::{Context, Poll};

static VECTORS: LazyLock<Pool<Vectors>> =
    LazyLock::new(|| Pool::new("io vectors").expect("the size is a constant above zero"));

impl Uring {
    /// Returns the number of bytes in a source's outbox, which keeps them until the operation that sends them
    /// completes.
    pub(crate) fn unsent(&self, key: Key) -> usize {
        self.sources.borrow_mut().get(key).map_or(0, |source| source.outbox.len())
    }

    /// Hands the chain over, and waits until at most `ahead` bytes are left. A large chain goes out at once,
    /// as far as the socket accepts it, if no bytes are before it ([`SENT_AT_ONCE`]).
    pub(crate) fn poll_send(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        chain: Option<&mut Chain>,
        ahead: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let mut sources = self.sources.borrow_mut();
        let mut source = sources.get(key).expect("a source lives as long as its handle");
        if let Some(errno) = source.broken {
            return Poll::Ready(Err(Error::system(Call::Send, errno)));
        }
        if source.writer.is_anothers(context.waker()) {
            return Poll::Ready(Err(Error::busy(Call::Send))); // before anything is taken from the chain
        }
        if let Some(chain) = chain {
            if chain.len() >= SENT_AT_ONCE && source.outbox.is_empty() {
                drop(sources); // rule 2 of the core
                let sent = transmit(fd, chain, core.tallies);
                sources = self.sources.borrow_mut();
                source = sources.get(key).expect("a source lives as long as its handle");
                if let Err(errno) = sent {
                    source.broken = Some(errno);
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
        if !source.sending
            && let Err(error) = self.send(core, source, key, fd.as_raw_fd())
        {
            return Poll::Ready(Err(error));
        }
        if source.outbox.len() <= ahead {
            return Poll::Ready(Ok(()));
        }
        match source.writer.park(context.waker()) {
            Ok(()) => Poll::Pending,
            Err(_) => Poll::Ready(Err(Error::busy(Call::Send))),
        }
    }

    /// Sends as many bytes as the socket accepts at once, if no bytes are before them. The rest stays in the
    /// chain. `last`: the end of the stream follows. This is a system call, since io_uring would hand the end
    /// of a stream to a thread.
    pub(crate) fn send_at_once(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        chain: &mut Chain,
        last: bool,
    ) -> Result<(), Error> {
        let may = |source: &mut Source| source.outbox.is_empty() && source.broken.is_none();
        if !self.sources.borrow_mut().get(key).is_some_and(may) {
            return Ok(());
        }
        let transmit = if last { transmit_last } else { transmit };
        let sent = transmit(fd, chain, core.tallies); // rule 2 of the core
        if let Err(errno) = sent
            && let Some(source) = self.sources.borrow_mut().get(key)
        {
            source.broken = Some(errno);
        }
        sent.map(drop).map_err(|errno| Error::system(Call::Send, errno))
    }

    /// Begins to send the outbox, which only grows at its end meanwhile.
    fn send(&self, core: &Core, source: &mut Source, key: Key, fd: RawFd) -> Result<(), Error> {
        // More than [`SENT_AHEAD`] bytes are sent in parts, so that the waiting task sees the progress.
        let whole = if source.outbox.len() <= SENT_AHEAD { libc::MSG_WAITALL } else { 0 };
        let flags = libc::MSG_NOSIGNAL | whole;
        source.fd = fd;
        let Some(outbox) = source.outbox.chain() else { return Ok(()) };
        let entry = match (outbox.segment_count(), outbox.front()) {
            (1, Some(segment)) => {
                let len = u32::try_from(segment.len()).unwrap_or(u32::MAX);
                opcode::Send::new(types::Fd(fd), segment.as_ptr(), len).flags(flags).build()
            }
            _ => {
                if source.vectors.is_none() {
                    // SAFETY: a header and vectors of zeros are valid: no bytes and no destination.
                    let empty = unsafe { std::mem::zeroed() };
                    source.vectors = Some(VECTORS.alloc(empty).map_err(|_| Error::memory(Call::Send))?);
                }
                let vectors = source.vectors.as_mut().expect("there are, as of just now");
                let mut slices = [IoSlice::new(&[]); SEGMENTS_PER_WRITE];
                let n = outbox.io_slices(&mut slices);
                for (vector, slice) in vectors.vectors.iter_mut().zip(&slices[..n]) {
                    *vector =
                        libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() };
                }
                vectors.header.msg_iov = vectors.vectors.as_mut_ptr();
                vectors.header.msg_iovlen = n;
                opcode::SendMsg::new(types::Fd(fd), &raw const vectors.header).flags(flags as u32).build()
            }
        };
        core.tallies.writes.add(1);
        source.sending = true;
        self.begin(source, key, Op::Send, entry);
        Ok(())
    }

    /// Handles a completion of the operation that sends.
    pub(super) fn sent(&self, core: &Core, key: Key, result: Result<usize, Errno>) {
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return };
        source.sending = false;
        source.vectors = None;
        let mut outbox = std::mem::take(&mut source.outbox);
        let closing = source.closing.as_ref().map(AsRawFd::as_raw_fd);
        drop(sources);
        // Rule 2 of the core: segments are dropped outside of the borrow. Bytes that came into the outbox
        // meanwhile go behind.
        match result {
            Ok(n) => {
                core.tallies.bytes_out.add(n as u64);
                let trimmed = outbox.change(|outbox| outbox.trim_front(n).is_ok());
                assert!(trimmed.unwrap_or(false), "no more is sent than there was");
            }
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => {}
            Err(_) => drop(outbox.take()),
        }
        if let Some(fd) = closing {
            // Bytes that were sent ahead go out as far as the socket has room, as they would have at once
            // with epoll. SAFETY: the source keeps the descriptor until its last operation is over, and this
            // one is not yet.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let _ = transmit(fd, &mut outbox.take(), core.tallies);
        }
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return };
        if let Err(errno) = result
            && !matches!(errno, Errno::INTR | Errno::AGAIN | Errno::CANCELED)
        {
            source.broken = Some(errno);
        }
        std::mem::swap(&mut source.outbox, &mut outbox);
        if source.outbox.append_held(outbox).is_err() {
            source.broken = Some(Errno::NOMEM);
        }
        if source.closing.is_none() && source.broken.is_none() && !source.outbox.is_empty() {
            let fd = source.fd;
            match self.send(core, source, key, fd) {
                Ok(()) => {} // a task that waits for the rest waits again
                Err(_) => source.broken = Some(Errno::NOMEM),
            }
        }
        let writer = source.writer.take();
        drop(sources);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Prepares a source for another connection of its socket; returns true if no state of the previous one
    /// is left here or in the kernel.
    pub(crate) fn begins_anew(&self, key: Key) -> bool {
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get(key) else { return false };
        source.connected = None;
        source.ops == 0
            && source.arrived.is_empty()
            && source.ended.is_none()
            && source.outbox.is_empty()
            && source.broken.is_none()
    }

    /// Begins to connect at the first poll, and waits for the outcome.
    pub(crate) fn poll_connect(
        &self,
        core: &Core,
        key: Key,
        fd: Fd<'_>,
        (address, begun): (&SocketAddrAny, &mut bool),
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Errno>> {
        let mut sources = self.sources.borrow_mut();
        let source = sources.get(key).expect("a source lives as long as its handle");
        if let Some(outcome) = source.connected {
            return Poll::Ready(outcome);
        }
        if source.writer.park(context.waker()).is_err() {
            return Poll::Ready(Err(Errno::ALREADY));
        }
        if !std::mem::replace(begun, true) {
            core.tallies.connects.add(1);
            let address: &SocketAddrAny = match &mut source.address {
                Some(before) => {
                    **before = address.clone(); // no operation reads the earlier one any more
                    before
                }
                none => none.insert(Box::new(address.clone())),
            };
            let (at, len) = (address.as_ptr().cast(), address.addr_len());
            source.connecting = true;
            let connect = opcode::Connect::new(types::Fd(fd.as_raw_fd()), at, len).build();
            self.begin(source, key, Op::Connect, connect);
        }
        Poll::Pending
    }
}
