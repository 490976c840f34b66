//! Connected byte streams: TCP, local ones, socket pairs.

use crate::core::{Core, Direction, Nature, backend};
use crate::driver::Io;
use crate::error::{Call, Error};
use crate::limits::{LARGE_READ, SENT_AHEAD};
use crate::listener::Early;
use crate::receive::Destination;
use crate::slab::Key;
use crate::waiter::Waiting;
use manylane_buf::{Chain, Segment};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketType, recv, sockopt};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::Context;
use std::task::Poll;

/// A connected stream in the hands of a lane's driver. It stays on its lane.
///
/// One task may receive and another send at the same time; a second one in the same direction gets an error.
/// Every future may be dropped at any time:
/// - of [`recv`](Self::recv): what has arrived is there for the next;
/// - of [`send`](Self::send): what was handed over is sent all the same.
///
/// Dropped, the stream is closed at once, and what was handed over but not taken by the kernel yet is lost;
/// [`close`](Self::close) waits for that first.
pub struct Stream {
    core: Rc<Core>,
    key: Key,
    fd: ManuallyDrop<OwnedFd>,
}

/// A stream's descriptor, given up by the driver.
#[derive(Debug)]
pub struct Detached {
    /// The descriptor, non-blocking.
    pub fd: OwnedFd,
    /// What was received from it and not asked for yet. Always empty with epoll.
    pub received: Chain,
}

impl Io {
    /// Takes over a connected stream socket, made non-blocking if it is not.
    ///
    /// For one that was accepted, [`Accepted::into_stream`](crate::Accepted::into_stream) costs no call.
    ///
    /// # Errors
    /// When it is not a stream socket.
    pub fn stream(&self, fd: impl Into<OwnedFd>) -> Result<Stream, Error> {
        let fd = fd.into();
        let core = self.core();
        let kind = sockopt::socket_type(&fd).map_err(|errno| Error::system(Call::Register, errno))?;
        if kind != SocketType::STREAM {
            return Err(Error::system(Call::Register, rustix::io::Errno::PROTOTYPE));
        }
        set_nonblocking(core, fd.as_fd())?;
        let nature = if is_tcp(core, fd.as_fd())? { Nature::Tcp } else { Nature::Stream };
        Ok(Stream::new(core, fd, nature))
    }
}

/// Whether a socket is one of TCP over IP, for which rule 3 of the epoll driver holds.
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
    pub(crate) fn new(core: &Rc<Core>, fd: OwnedFd, nature: Nature) -> Self {
        let key = core.add(nature);
        Self { core: core.clone(), key, fd: ManuallyDrop::new(fd) }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The next bytes, in a cluster of the lane's pool that is taken when they are there; `None` at the end
    /// of the stream.
    ///
    /// Up to 2 KiB at first, 16 KiB while full reads follow one another. A socket gives at most
    /// [`READ_PER_ROUND`](crate::READ_PER_ROUND) in a round; then the others have their turn.
    ///
    /// Cost with epoll: one `recv`, which mostly finds something: a socket that was emptied is not asked
    /// again before an event.
    ///
    /// # Errors
    /// What the system says; no memory for a cluster; another task waits for the same.
    #[inline]
    pub fn recv(&self) -> impl Future<Output = Result<Option<Segment>, Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Read, |context| self.poll_recv(context))
    }

    /// [`recv`](Self::recv) for futures that are written manually.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Result<Option<Segment>, Error>> {
        let mut segment = None;
        self.poll_receive(&mut Destination::Segment(&mut segment), true, context).map_ok(|_| segment)
    }

    /// Puts the next bytes behind `into`; false at the end of the stream. As [`recv`](Self::recv), but it
    /// takes what arrived already, and with one call up to
    /// [`CLUSTERS_PER_READ`](crate::CLUSTERS_PER_READ) large clusters while full reads follow one another:
    /// for bulk, which then goes out with one call, too.
    ///
    /// `most` is how many bytes are wanted, up to [`READ_AT_ONCE`](crate::READ_AT_ONCE). It is kept to within
    /// a cluster of 2 KiB, and counts as 16 KiB if it is less.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). When there is no memory, bytes may be lost, and the stream is of no more use.
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

    /// [`recv`](Self::recv) for a connection of which nothing is held: while the lane's connections hold as
    /// many clusters as [they may](crate::Io::set_most_clusters), it waits until some are released (R-D4),
    /// unless bytes that were handed over for sending are left: the peer may take them only after what it
    /// sent was received. A connection that waits is not watched.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn recv_within_limit(&self) -> impl Future<Output = Result<Option<Segment>, Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Read, |context| self.poll_recv_within_limit(context))
    }

    /// [`recv_within_limit`](Self::recv_within_limit) for futures that are written manually.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn poll_recv_within_limit(&self, context: &mut Context<'_>) -> Poll<Result<Option<Segment>, Error>> {
        let mut segment = None;
        self.poll_receive(&mut Destination::Segment(&mut segment), false, context).map_ok(|_| segment)
    }

    /// [`recv_chain`](Self::recv_chain), which waits as [`recv_within_limit`](Self::recv_within_limit) does.
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
        place: &mut Destination<'_>,
        holds: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, Error>> {
        let (core, fd) = (&self.core, self.fd.as_fd());
        backend!(core, driver => driver.poll_recv(core, self.key, fd, (place, holds), context))
    }

    /// Whether [`recv`](Self::recv) may have something to give at once, the end of the stream included; if
    /// not, it would wait. Asks nothing of the kernel.
    #[inline]
    pub fn has_news(&self) -> bool {
        backend!(self.core, driver => driver.has_news(self.key))
    }

    /// Whether nothing has come and the stream goes on, as the kernel has it now. For an idle connection that
    /// is to be used: what came before a request is no answer to it.
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

    /// Sends all of `chain`, without copying: it is empty when this is done, and its clusters are held until
    /// the kernel has taken their bytes. It waits until all but [`SENT_AHEAD`](crate::SENT_AHEAD) bytes
    /// are in the kernel's hands, or all where [clusters are limited](crate::Io::set_most_clusters);
    /// [`flush`](Self::flush) waits for these, too.
    ///
    /// The first poll hands the chain over. From there on its bytes go out in order, behind those of earlier
    /// calls, as fast as the socket takes them, also when the future is dropped.
    ///
    /// Cost with epoll: one `send` or `sendmsg` unless the socket is full.
    ///
    /// # Errors
    /// What the system says, from the first failure on at each call; no memory for the queue; another task
    /// waits for the same. Never a signal.
    #[inline]
    pub fn send<'a>(&'a self, chain: &'a mut Chain) -> impl Future<Output = Result<(), Error>> + 'a {
        let mut chain = Some(chain);
        Waiting::new(&self.core, self.key, Direction::Write, move |context| {
            self.poll_out(chain.take(), self.ahead(), context)
        })
    }

    /// Bytes that need not be in the kernel's hands when a send is done.
    #[inline]
    fn ahead(&self) -> usize {
        if self.core.clusters.are_limited() { 0 } else { SENT_AHEAD }
    }

    /// [`send`](Self::send), and the end of this direction behind it: [`shutdown`](Self::shutdown). Where the
    /// socket takes all of `chain` at once, the end goes with its last bytes, in one packet.
    ///
    /// # Errors
    /// As of both.
    pub async fn send_last(&self, chain: &mut Chain) -> Result<(), Error> {
        backend!(self.core, driver => driver.send_at_once(&self.core, self.key, self.fd.as_fd(), chain))?;
        if !chain.is_empty() {
            self.send(chain).await?;
        }
        match self.shutdown(Shutdown::Write).await {
            // The peer has taken all of it, and reset the connection behind that.
            Err(error) if error.errno() == Some(rustix::io::Errno::NOTCONN) => Ok(()),
            outcome => outcome,
        }
    }

    /// Bytes that were handed over and are not the kernel's yet. While a task waits in [`send`](Self::send),
    /// it is woken whenever there are fewer: so it can tell a partner that takes little from one that
    /// takes nothing.
    #[inline]
    pub fn unsent(&self) -> usize {
        backend!(self.core, driver => driver.unsent(self.key))
    }

    /// Waits until all that was handed over is the kernel's.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&self) -> impl Future<Output = Result<(), Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Write, |context| self.poll_out(None, 0, context))
    }

    /// [`send`](Self::send) for futures that are written manually; with none it is [`flush`](Self::flush).
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

    /// Ends one direction or both. What was handed over goes out first, unless only reading ends: that takes
    /// as long as the partner does to read it, for ever if it never does, so give it a limit of time. A
    /// receive that waits meanwhile does not hold it up.
    ///
    /// # Errors
    /// As [`send`](Self::send), and `ENOTCONN` when the peer has gone.
    pub async fn shutdown(&self, how: Shutdown) -> Result<(), Error> {
        if how != Shutdown::Read {
            self.flush().await?;
        }
        self.core.tallies.others.add(1);
        rustix::net::shutdown(&*self.fd, how).map_err(|errno| Error::system(Call::Shutdown, errno))
    }

    /// Waits until all that was handed over is the kernel's, then closes. It is closed also when that fails,
    /// and when the future is dropped: whoever will not wait for a partner that does not read gives it a
    /// limit of time, or drops the stream.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn close(self) -> Result<(), Error> {
        self.flush().await
    }

    /// Gives the descriptor up without closing it: to another lane, which takes it over with what was
    /// received already. What was handed over goes out first.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); the stream is closed then.
    pub async fn detach(self) -> Result<Detached, Error> {
        self.flush().await?;
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped nor used again: both fields are moved out once.
        let (core, fd) = unsafe { (std::ptr::read(&this.core), std::ptr::read(&this.fd)) };
        let (fd, early) = detach(core, this.key, ManuallyDrop::into_inner(fd)).await?;
        Ok(Detached { fd, received: early.received })
    }
}

/// The driver lets go of a descriptor. Dropped before that is done, it closes it.
pub(crate) async fn detach(core: Rc<Core>, key: Key, fd: OwnedFd) -> Result<(OwnedFd, Early), Error> {
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
        // SAFETY: taken once: here is the end, and `detach` does not come here.
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
