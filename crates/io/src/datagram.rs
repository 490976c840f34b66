//! Datagrams, many with one system call.
//!
//! System calls: `recvmmsg` and `sendmmsg`, with either driver. io_uring has no operation for many datagrams
//! from many senders at once, so it only reports when the socket is ready, and the call is the same.

use crate::core::{Budget, Core, Direction, FdKind, backend};
use crate::driver::Io;
use crate::error::{Call, Error};
use crate::limits::{DATAGRAMS_PER_CALL, DATAGRAMS_PER_ROUND, SEGMENTS_PER_WRITE, SMALL_READ};
use crate::pieces;
use crate::slab::Key;
use crate::stream::set_nonblocking;
use crate::waiter::Waiting;
use manylane_buf::{Chain, Cluster, Segment};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrStorage;
use rustix::net::{SocketAddrAny, SocketType, sockopt};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// Its bytes.
    pub bytes: Segment,
    /// Address of the sender; none for an unnamed one.
    pub from: Option<SocketAddrAny>,
    /// True if the datagram was longer than its room; the rest is lost.
    pub truncated: bool,
}

/// A datagram to send.
#[derive(Debug)]
pub struct Outgoing {
    /// Its bytes, at most [`SEGMENTS_PER_WRITE`](crate::SEGMENTS_PER_WRITE) segments.
    pub bytes: Chain,
    /// Destination; none on a connected socket.
    pub to: Option<SocketAddrAny>,
}

/// A datagram socket, UDP or local, that belongs to a lane's driver. Closed when dropped.
pub struct Datagrams {
    core: Rc<Core>,
    key: Key,
    fd: ManuallyDrop<OwnedFd>,
    room: usize,
    received: Budget,
    sent: Budget,
    /// True if pieces may share a message; none while that is unknown.
    together: Cell<Option<bool>>,
}

impl Io {
    /// Takes over a datagram socket, and makes it non-blocking. A datagram has room for 2 KiB.
    ///
    /// # Errors
    /// If it is not a datagram socket.
    pub fn datagrams(&self, fd: impl Into<OwnedFd>) -> Result<Datagrams, Error> {
        let fd = fd.into();
        let kind = sockopt::socket_type(&fd).map_err(|errno| Error::system(Call::Register, errno))?;
        if kind != SocketType::DGRAM {
            return Err(Error::system(Call::Register, Errno::PROTOTYPE));
        }
        set_nonblocking(self.core(), fd.as_fd())?;
        let key = self.core().add(FdKind::Datagram);
        let (received, sent) = (Budget::new(), Budget::new());
        Ok(Datagrams {
            core: self.core().clone(),
            key,
            fd: ManuallyDrop::new(fd),
            room: SMALL_READ,
            received,
            sent,
            together: Cell::new(None),
        })
    }
}

impl Datagrams {
    /// Sets the room for each later datagram: 2 or 16 KiB, the smaller that holds `bytes`. Longer datagrams
    /// are truncated.
    pub fn set_room(&mut self, bytes: usize) {
        self.room = bytes.clamp(1, manylane_buf::MAX_CLUSTER);
    }

    /// Waits for datagrams, appends those that are there to `into`, at most
    /// [`DATAGRAMS_PER_CALL`](crate::DATAGRAMS_PER_CALL), and returns their number, at least one. If the
    /// future is dropped, it has taken none.
    ///
    /// Cost: one `recvmmsg`. It allocates its clusters when the socket is ready, and frees those without a
    /// datagram.
    ///
    /// # Errors
    /// The system's, including errors from the network for earlier datagrams; no memory; another task already
    /// waits for the same.
    pub fn recv_batch<'a>(
        &'a self,
        into: &'a mut Vec<Datagram>,
    ) -> impl Future<Output = Result<usize, Error>> + 'a {
        let call = (Direction::Read, Call::ReceiveDatagrams);
        self.retry(call, move || receive(self.fd.as_fd(), self.room, into, &self.core))
    }

    /// Appends datagrams that have arrived already to `into`, at most
    /// [`DATAGRAMS_PER_CALL`](crate::DATAGRAMS_PER_CALL), and returns their number; 0 if there are none. The
    /// call does not count as the socket's share of the round: 0 says that the socket is empty, and not that
    /// the share is used up.
    ///
    /// # Errors
    /// As [`recv_batch`](Self::recv_batch).
    pub fn recv_now(&self, into: &mut Vec<Datagram>) -> Result<usize, Error> {
        loop {
            return match receive(self.fd.as_fd(), self.room, into, &self.core) {
                Ok(n) => Ok(n),
                Err(Errno::AGAIN) => Ok(0),
                Err(Errno::INTR) => continue,
                Err(Errno::NOMEM) => Err(Error::memory(Call::ReceiveDatagrams)),
                Err(errno) => Err(Error::system(Call::ReceiveDatagrams, errno)),
            };
        }
    }

    /// Sends from the front of `datagrams`, removes the sent ones and returns their number: at least one, at
    /// most [`DATAGRAMS_PER_CALL`](crate::DATAGRAMS_PER_CALL). If the future is dropped while it waits, it
    /// has sent none.
    ///
    /// # Errors
    /// The system's for the first datagram, which stays in the queue: `EMSGSIZE` for one that is too long, or
    /// has too many segments.
    pub fn send_batch<'a>(
        &'a self,
        datagrams: &'a mut VecDeque<Outgoing>,
    ) -> impl Future<Output = Result<usize, Error>> + 'a {
        let call = (Direction::Write, Call::SendDatagrams);
        self.retry(call, move || {
            if datagrams.is_empty() {
                return Ok(0);
            }
            let sent = transmit(self.fd.as_fd(), datagrams, &self.core)?;
            datagrams.drain(..sent);
            Ok(sent)
        })
    }

    /// Sends pieces of `bytes`, each as a datagram to `to`: the pieces end at `ends`, and the first has the
    /// number `from`. Returns how many it sent, at least one. Uses one system call; over UDP neighbours of
    /// equal length go through the kernel together, as far as it supports that. If the future is dropped
    /// while it waits, it has sent none.
    ///
    /// # Errors
    /// As [`send_batch`](Self::send_batch), for the first piece.
    ///
    /// # Panics
    /// If there is no such piece, or if the ends are not in order within `bytes`.
    pub fn send_pieces<'a>(
        &'a self,
        (bytes, ends, from): (&'a [u8], &'a [usize], usize),
        to: Option<&'a SocketAddrAny>,
    ) -> impl Future<Output = Result<usize, Error>> + 'a {
        assert!(from < ends.len(), "there is a piece to be sent");
        let call = (Direction::Write, Call::SendDatagrams);
        self.retry(call, move || {
            let mut together = self.together.get().unwrap_or_else(|| pieces::may_share(self.fd.as_fd()));
            let sent = pieces::transmit(self.fd.as_fd(), (bytes, ends, from), to, &mut together, &self.core);
            self.together.set(Some(together));
            sent
        })
    }

    /// Repeats the attempt whenever the socket is ready.
    fn retry<'a>(
        &'a self,
        call: (Direction, Call),
        mut attempt: impl FnMut() -> Result<usize, Errno> + 'a,
    ) -> impl Future<Output = Result<usize, Error>> + 'a {
        let budget = if call.0 == Direction::Read { &self.received } else { &self.sent };
        Waiting::new(&self.core, self.key, call.0, move |context| {
            if !budget.is_left(&self.core, DATAGRAMS_PER_ROUND) {
                self.core.defer(self.key, call.0, context.waker());
                return Poll::Pending;
            }
            loop {
                match self.poll_ready(call, context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
                match attempt() {
                    Ok(n) => {
                        budget.take(n);
                        return Poll::Ready(Ok(n));
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => self.core.forget_readiness(self.key, call.0),
                    Err(Errno::NOMEM) => return Poll::Ready(Err(Error::memory(call.1))),
                    Err(errno) => return Poll::Ready(Err(Error::system(call.1, errno))),
                }
            }
        })
    }

    fn poll_ready(&self, call: (Direction, Call), context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let fd = self.fd.as_fd();
        backend!(self.core, driver => driver.poll_ready(&self.core, self.key, fd, call, context))
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        // SAFETY: taken only here, at the end.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        self.core.release(self.key, fd);
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Datagrams({:?})", *self.fd)
    }
}

/// Headers, addresses and vectors of one call. The kernel writes lengths and flags into the headers.
struct Table<const VECTORS: usize> {
    headers: [libc::mmsghdr; DATAGRAMS_PER_CALL],
    addresses: [MaybeUninit<SocketAddrStorage>; DATAGRAMS_PER_CALL],
    vectors: [libc::iovec; VECTORS],
}

impl<const VECTORS: usize> Table<VECTORS> {
    fn new() -> Self {
        // SAFETY: headers of zeros are valid: no address, no vectors, no control data.
        let headers = unsafe { std::mem::zeroed() };
        let vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; VECTORS];
        Self { headers, addresses: [const { MaybeUninit::uninit() }; DATAGRAMS_PER_CALL], vectors }
    }
}

/// Makes one `recvmmsg` call.
fn receive(fd: BorrowedFd<'_>, room: usize, into: &mut Vec<Datagram>, core: &Core) -> Result<usize, Errno> {
    let mut clusters: [Option<Cluster>; DATAGRAMS_PER_CALL] = [const { None }; DATAGRAMS_PER_CALL];
    let mut table = Table::<DATAGRAMS_PER_CALL>::new();
    let mut wanted = 0;
    for slot in &mut clusters {
        let Ok(cluster) = Cluster::alloc(room) else { break };
        let cluster = slot.insert(cluster);
        let spare = cluster.spare_mut();
        table.vectors[wanted] = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
        let header = &mut table.headers[wanted].msg_hdr;
        header.msg_name = table.addresses[wanted].as_mut_ptr().cast();
        header.msg_namelen = size_of::<SocketAddrStorage>() as u32;
        header.msg_iov = &raw mut table.vectors[wanted];
        header.msg_iovlen = 1;
        wanted += 1;
    }
    if wanted == 0 {
        return Err(Errno::NOMEM);
    }
    core.tallies.reads.add(1);
    // SAFETY: `wanted` headers are filled in, with rooms that live until after the call and that nothing else
    // uses.
    let n = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            table.headers.as_mut_ptr(),
            wanted as u32,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    let n = usize::try_from(n).map_err(|_| last_errno())?;
    for ((header, address), cluster) in table.headers.iter().zip(&table.addresses).zip(&mut clusters).take(n)
    {
        let Some(mut cluster) = cluster.take() else { break };
        let len = (header.msg_len as usize).min(cluster.spare_len());
        // SAFETY: the kernel has written this many bytes into the room.
        unsafe { cluster.commit(len) };
        core.tallies.bytes_in.add(len as u64);
        let name_len = header.msg_hdr.msg_namelen as usize;
        let from = (name_len >= size_of::<u16>() && name_len <= size_of::<SocketAddrStorage>()).then(|| {
            // SAFETY: the kernel has written an address of that length.
            unsafe { SocketAddrAny::read(address.as_ptr(), name_len as u32) }
        });
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        into.push(Datagram { bytes: cluster.into_segment(), from, truncated });
    }
    Ok(n)
}

/// Number of vectors of one `sendmmsg`: most datagrams are one segment.
const VECTORS: usize = 2 * SEGMENTS_PER_WRITE;

/// Makes one `sendmmsg` call, for datagrams from the front as long as there are vectors.
fn transmit(fd: BorrowedFd<'_>, datagrams: &VecDeque<Outgoing>, core: &Core) -> Result<usize, Errno> {
    let mut table = Table::<VECTORS>::new();
    let (mut wanted, mut used, mut slices) = (0, 0, [IoSlice::new(&[]); SEGMENTS_PER_WRITE]);
    for datagram in datagrams.iter().take(DATAGRAMS_PER_CALL) {
        let count = datagram.bytes.segment_count();
        if count > SEGMENTS_PER_WRITE && wanted == 0 {
            return Err(Errno::MSGSIZE);
        }
        if count > VECTORS - used || count > SEGMENTS_PER_WRITE {
            break;
        }
        let n = datagram.bytes.io_slices(&mut slices);
        let first = used;
        for slice in &slices[..n] {
            let base = slice.as_ptr().cast_mut().cast();
            table.vectors[used] = libc::iovec { iov_base: base, iov_len: slice.len() };
            used += 1;
        }
        let header = &mut table.headers[wanted].msg_hdr;
        header.msg_iov = &raw mut table.vectors[first.min(VECTORS - 1)];
        header.msg_iovlen = n;
        if let Some(to) = &datagram.to {
            header.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_namelen = to.addr_len();
        }
        wanted += 1;
    }
    core.tallies.writes.add(1);
    // SAFETY: `wanted` headers are filled in; names and bytes are borrowed from `datagrams`, and only read.
    let n = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            table.headers.as_mut_ptr(),
            wanted as u32,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    let n = usize::try_from(n).map_err(|_| last_errno())?;
    let bytes: usize = datagrams.iter().take(n).map(|datagram| datagram.bytes.len()).sum();
    core.tallies.bytes_out.add(bytes as u64);
    Ok(n)
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
