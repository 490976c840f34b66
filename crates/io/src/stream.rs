//! Connected byte streams: TCP, local sockets, socket pairs.

use crate::core::{Core, Direction, FdKind, backend};
use crate::driver::Io;
use crate::error::{Call, Error};
use crate::limits::{LARGE_READ, SENT_AHEAD};
use crate::listener::PrefetchedData;
use crate::receive::Destination;
use crate::slab::Key;
use crate::waiter::Waiting;
use manylane_buf::{Chain, Segment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketType, recv, sockopt};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::Context;
use std::task::Poll;

/// A connected stream that belongs to a lane's driver. It stays on its lane.
///
/// One task may receive and another send at the same time; a second task in the same direction gets an error.
/// Every future may be dropped at any time:
/// - of [`recv`](Self::recv): received bytes stay for the next call;
/// - of [`send`](Self::send): bytes handed over are sent all the same.
///
/// Dropping the stream closes it at once, and loses bytes that were handed over but that the kernel has not
/// accepted; [`close`](Self::close) waits for that first.
pub struct Stream {
    core: Rc<Core>,
    key: Key,
    fd: ManuallyDrop<OwnedFd>,
}

/// A stream's descriptor that the driver has given up.
#[derive(Debug)]
pub struct Detached {
    /// The descriptor, non-blocking.
    pub fd: OwnedFd,
    /// Bytes received from it ahead of requests. Always empty with epoll.
    pub received: Chain,
}

impl Io {
    /// Takes over a connected stream socket, and makes it non-blocking.
    ///
    /// For an accepted connection, [`Accepted::into_stream`](crate::Accepted::into_stream) needs no system
    /// call.
    ///
    /// # Errors
    /// If it is not a stream socket.
    pub fn stream(&self, fd: impl Into<OwnedFd>) -> Result<Stream, Error> {
        let fd = fd.into();
        let core = self.core();
        let kind = sockopt::socket_type(&fd).map_err(|errno| Error::system(Call::Register, errno))?;
        if kind != SocketType::STREAM {
            return Err(Error::system(Call::Register, rustix::io::Errno::PROTOTYPE));
        }
        set_nonblocking(core, fd.as_fd())?;
        let nature = if is_tcp(core, fd.as_fd())? { FdKind::Tcp } else { FdKind::Stream };
        Ok(Stream::new(core, fd, nature))
    }
}

/// Returns true for TCP over IP, for which rule 3 of the epoll driver holds.
pub(crate) fn is_tcp(core: &Core, fd: BorrowedFd<'_>) -> Result<bool, Error> {
    core.tallies.others.add(2);
    let fail = |errno| Error::system(Call::Register, errno);
    let domain = sockopt::socket_domain(fd).map_err(fail)?;
    let protocol = sockopt::socket_protocol(fd).map_err(fail)?;
    let ip = domain == AddressFamily::INET || domain == AddressFamily::INET6;
    Ok(ip && protocol == Some(rustix::net::ipproto::TCP))
}

pub(crate) fn set_nonblocking(core: &Core, fd: BorrowedFd<'_>) -> Result<(), Error> {
    core.tallies.others.add(1);
    rustix::io::ioctl_fionbio(fd, true).map_err(|errno| Error::system(Call::Register, errno))
}

impl Stream {
    pub(crate) fn new(core: &Rc<Core>, fd: OwnedFd, nature: FdKind) -> Self {
        let key = core.add(nature);
        Self { core: core.clone(), key, fd: ManuallyDrop::new(fd) }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Receives the next bytes, in a cluster of the lane's pool that is allocated when they are there; `None`
    /// at the end of the stream.
    ///
    /// Returns up to 2 KiB at first, 16 KiB while full reads follow one another. A socket delivers at most
    /// [`READ_PER_ROUND`](crate::READ_PER_ROUND) in a round; then the others have their turn.
    ///
    /// Cost with epoll: one `recv`, which mostly finds bytes: an emptied socket is not read again before an
    /// event.
    ///
    /// # Errors
    /// The system's; no memory for a cluster; another task already waits for the same.
    #[inline]
    pub fn recv(&self) -> impl Future<Output = Result<Option<Segment>, Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Read, |context| self.poll_recv(context))
    }

    /// As [`recv`](Self::recv), but no more than `most` bytes, up to 2 KiB: what follows an answer of known
    /// length stays for the next receiver.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_at_most(&self, most: usize) -> impl Future<Output = Result<Option<Segment>, Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Read, move |context| {
            let mut segment = None;
            let mut destination = Destination::AtMost(&mut segment, most);
            self.poll_receive(&mut destination, true, context).map_ok(|_| segment)
        })
    }

    /// As [`recv`](Self::recv), for hand-written futures.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Result<Option<Segment>, Error>> {
        let mut segment = None;
        self.poll_receive(&mut Destination::Segment(&mut segment), true, context).map_ok(|_| segment)
    }

    /// Receives the next bytes behind those of `into`; returns false at the end of the stream. As
    /// [`recv`](Self::recv), but it takes all bytes that were received ahead, and with one call up to
    /// [`CLUSTERS_PER_READ`](crate::CLUSTERS_PER_READ) large clusters while full reads follow one another:
    /// for bulk, which then also goes out with one call.
    ///
    /// `most` is the requested number of bytes, up to [`READ_AT_ONCE`](crate::READ_AT_ONCE). The result may
    /// exceed it by less than a cluster of 2 KiB, and less than 16 KiB counts as 16 KiB.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). If there is no memory, bytes may be lost, and the stream is unusable.
    #[inline]
    pub fn recv_chain<'a>(
        &'a self,
        into: &'a mut Chain,
        most: usize,
    ) -> impl Future<Output = Result<bool, Error>> + 'a {
        let most = most.max(LARGE_READ);
        Waiting::new(&self.core, self.key, Direction::Read, move |context| {
            self.poll_receive(&mut Destination::Chain(into, most), true, context)
        })
    }

    /// Receives as [`recv`](Self::recv), for a connection that holds no clusters: while the lane's
    /// connections hold as many clusters as [the limit allows](crate::Io::set_most_clusters), it waits until
    /// some are released (R-D4). It does not wait if bytes handed over for sending are left: the peer may
    /// accept them only after its own bytes were received. The driver does not watch a connection that waits
    /// for clusters.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn recv_within_limit(&self) -> impl Future<Output = Result<Option<Segment>, Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Read, |context| self.poll_recv_within_limit(context))
    }

    /// As [`recv_within_limit`](Self::recv_within_limit), for hand-written futures.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn poll_recv_within_limit(&self, context: &mut Context<'_>) -> Poll<Result<Option<Segment>, Error>> {
        let mut segment = None;
        self.poll_receive(&mut Destination::Segment(&mut segment), false, context).map_ok(|_| segment)
    }

    /// Receives as [`recv_chain`](Self::recv_chain), and waits as
    /// [`recv_within_limit`](Self::recv_within_limit) does.
    ///
    /// # Errors
    /// As [`recv_chain`](Self::recv_chain).
    #[inline]
    pub fn recv_chain_within_limit<'a>(
        &'a self,
        into: &'a mut Chain,
        most: usize,
    ) -> impl Future<Output = Result<bool, Error>> + 'a {
        let most = most.max(LARGE_READ);
        Waiting::new(&self.core, self.key, Direction::Read, move |context| {
            self.poll_receive(&mut Destination::Chain(into, most), false, context)
        })
    }

    #[inline]
    fn poll_receive(
        &self,
        destination: &mut Destination<'_>,
        holds: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, Error>> {
        let (core, fd) = (&self.core, self.fd.as_fd());
        backend!(core, driver => driver.poll_recv(core, self.key, fd, (destination, holds), context))
    }

    /// Returns true if [`recv`](Self::recv) may return something at once, the end of the stream included;
    /// otherwise it would wait. Makes no system call.
    #[inline]
    pub fn is_readable(&self) -> bool {
        backend!(self.core, driver => driver.is_readable(self.key))
    }

    /// Returns true if the kernel has received nothing and the stream goes on. For an idle connection before
    /// its use: bytes that came before a request are no response to it.
    ///
    /// Cost: one `recv` that takes nothing.
    pub fn is_silent(&self) -> bool {
        loop {
            return match recv(self.fd.as_fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => !backend!(self.core, driver => driver.has_arrived(self.key)),
                _ => false,
            };
        }
    }

    /// Returns whether the peer has closed both directions or reset the connection, as far as the kernel
    /// knows. A peer over TCP that has closed, and to which nothing was sent since, may still be reading.
    ///
    /// Cost: one `poll`.
    pub fn has_hung_up(&self) -> bool {
        let mut one = [PollFd::new(&*self.fd, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut one, Some(&now)).is_ok() && one[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Sends all of `chain` without copying: the chain is empty afterwards, and its clusters are held until
    /// the kernel has accepted their bytes. Waits until the kernel has all but
    /// [`SENT_AHEAD`](crate::SENT_AHEAD) bytes, or all if [clusters are
    /// limited](crate::Io::set_most_clusters); [`flush`](Self::flush) waits for these, too.
    ///
    /// The first poll hands the chain over. From then on its bytes go out in order, behind those of earlier
    /// calls, as fast as the socket accepts them, even if the future is dropped.
    ///
    /// Cost with epoll: one `send` or `sendmsg` unless the socket is full.
    ///
    /// # Errors
    /// The system's, at each call after the first failure; no memory for the queue; another task already
    /// waits for the same. Raises no signal.
    #[inline]
    pub fn send<'a>(&'a self, chain: &'a mut Chain) -> impl Future<Output = Result<(), Error>> + 'a {
        let mut chain = Some(chain);
        Waiting::new(&self.core, self.key, Direction::Write, move |context| {
            self.poll_out(chain.take(), self.ahead(), context)
        })
    }

    /// Returns how many bytes may still be unsent when a send completes.
    #[inline]
    fn ahead(&self) -> usize {
        if self.core.clusters.are_limited() { 0 } else { SENT_AHEAD }
    }

    /// Sends as [`send`](Self::send), then ends this direction: [`shutdown`](Self::shutdown). If the socket
    /// accepts all of `chain` at once, the end goes with its last bytes, in one packet.
    ///
    /// # Errors
    /// Those of both.
    pub async fn send_last(&self, chain: &mut Chain) -> Result<(), Error> {
        self.at_once(chain, true)?;
        if !chain.is_empty() {
            self.send(chain).await?;
        }
        match self.shutdown(Shutdown::Write).await {
            // The peer has received all of it, and then reset the connection.
            Err(error) if error.errno() == Some(rustix::io::Errno::NOTCONN) => Ok(()),
            outcome => outcome,
        }
    }

    /// Sends as many bytes of `chain` as the socket accepts at once, if no bytes are before them, and leaves
    /// the rest in the chain. Does not wait, so it does not disturb another task that sends.
    ///
    /// # Errors
    /// The system's, also at each later send.
    pub fn send_at_once(&self, chain: &mut Chain) -> Result<(), Error> {
        self.at_once(chain, false)
    }

    fn at_once(&self, chain: &mut Chain, last: bool) -> Result<(), Error> {
        let (core, fd) = (&self.core, self.fd.as_fd());
        backend!(self.core, driver => driver.send_at_once(core, self.key, fd, chain, last))
    }

    /// Returns the number of bytes that were handed over and that the kernel has not accepted. A task that
    /// waits in [`send`](Self::send) is woken whenever the number falls: so it can distinguish a slow peer
    /// from one that accepts nothing.
    #[inline]
    pub fn unsent(&self) -> usize {
        backend!(self.core, driver => driver.unsent(self.key))
    }

    /// Waits until the kernel has all bytes handed over.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&self) -> impl Future<Output = Result<(), Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Write, |context| self.poll_out(None, 0, context))
    }

    /// As [`send`](Self::send), for hand-written futures; without a chain as [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline]
    pub fn poll_send(&self, chain: Option<&mut Chain>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let ahead = if chain.is_some() { self.ahead() } else { 0 };
        self.poll_out(chain, ahead, context)
    }

    #[inline]
    fn poll_out(
        &self,
        chain: Option<&mut Chain>,
        ahead: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        backend!(self.core, driver => driver.poll_send(&self.core, self.key, self.fd.as_fd(), chain, ahead,
            context))
    }

    /// Shuts down one direction or both. Unless only reading ends, sends the bytes handed over first: that
    /// takes as long as the peer needs to read them, without limit if it never does, so use a timeout. A
    /// waiting receive does not delay it.
    ///
    /// # Errors
    /// As [`send`](Self::send), and `ENOTCONN` if the peer has disconnected.
    pub async fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        if how != Shutdown::Read {
            self.flush().await?;
        }
        self.core.tallies.others.add(1);
        rustix::net::shutdown(&*self.fd, how).map_err(|errno| Error::system(Call::Shutdown, errno))
    }

    /// Waits until the kernel has all bytes handed over, then closes. The stream is closed even if that fails
    /// or the future is dropped: for a peer that may not read, use a timeout, or drop the stream.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(self) -> Result<(), Error> {
        self.flush().await
    }

    /// Gives up the descriptor without closing it, for another lane, which takes it over with the bytes that
    /// were already received. Sends the bytes handed over first.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); the stream is then closed.
    pub async fn detach(self) -> Result<Detached, Error> {
        self.flush().await?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither dropped nor used again: both fields are moved out once.
        let (core, fd) = unsafe { (std::ptr::read(&this.core), std::ptr::read(&this.fd)) };
        let (fd, early) = detach(core, this.key, ManuallyDrop::into_inner(fd)).await?;
        Ok(Detached { fd, received: early.received })
    }
}

/// Makes the driver release a descriptor. Dropping the future earlier closes it.
pub(crate) async fn detach(
    core: Rc<Core>,
    key: Key,
    fd: OwnedFd,
) -> Result<(OwnedFd, PrefetchedData), Error> {
    /// Releases the source unless the descriptor was taken out.
    struct Closing(Rc<Core>, Key, Option<OwnedFd>);
    impl Drop for Closing {
        fn drop(&mut self) {
            if let Some(fd) = self.2.take() {
                self.0.release(self.1, fd);
            }
        }
    }
    let mut closing = Closing(core.clone(), key, Some(fd));
    let fd = closing.2.as_ref().map(OwnedFd::as_fd).expect("it was put there");
    let early = backend!(core, driver => driver.detach(&core, key, fd).await)?;
    core.tallies.released.add(1);
    Ok((closing.2.take().expect("it is still there"), early))
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: taken only here, at the end; `detach` does not run this.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        self.core.release(self.key, fd);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", *self.fd)
    }
}
