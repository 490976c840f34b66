//! Accepting, with a bound for each round, and with a pause when there are no descriptors.

use crate::core::{Core, Direction, FdKind, backend};
use crate::driver::Io;
use crate::error::{Call, Error};
use crate::limits::{ACCEPT_CHECK, ACCEPT_PAUSE};
use crate::slab::Key;
use crate::stream::Stream;
use crate::waiter::Waiting;
use manylane_buf::Chain;
use manylane_sched::Time;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, acceptfrom_with};
use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Origin of an error of `accept`, which decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection failed; the next may succeed.
    Connection,
    /// There are no descriptors, or no memory, at the moment.
    Starved,
    /// The listener failed.
    Listener,
}

/// Classifies an error. Linux reports network errors of a connection as errors of `accept`.
pub(crate) fn fault(errno: Errno) -> Fault {
    match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Fault::Starved,
        Errno::INTR
        | Errno::CONNABORTED
        | Errno::PROTO
        | Errno::NOPROTOOPT
        | Errno::NETDOWN
        | Errno::NETUNREACH
        | Errno::HOSTDOWN
        | Errno::HOSTUNREACH
        | Errno::NONET
        | Errno::PERM
        | Errno::TIMEDOUT => Fault::Connection,
        _ => Fault::Listener,
    }
}

/// A listening socket that belongs to a lane's driver. Closed when dropped; if no other descriptor of the
/// socket is left, the connections in its backlog are then refused.
///
/// With io_uring, up to about [`ACCEPTED_AHEAD`](crate::ACCEPTED_AHEAD) connections may have been accepted
/// ahead of requests. Dropping the listener closes them; [`detach`](Self::detach) returns them.
pub struct Listener {
    core: Rc<Core>,
    key: Key,
    fd: ManuallyDrop<OwnedFd>,
    tcp: bool,
    /// When to look for connections that no event reported; see [`ACCEPT_CHECK`].
    next_check: Cell<Option<Time>>,
}

impl Io {
    /// Takes over a listening socket, and makes it non-blocking.
    ///
    /// Several lanes may accept from the same socket, each with a duplicate of the descriptor: a connection
    /// wakes one of them.
    ///
    /// # Errors
    /// If it is not a socket.
    pub fn listener(&self, fd: impl Into<OwnedFd>) -> Result<Listener, Error> {
        let fd = fd.into();
        let tcp = crate::stream::is_tcp(self.core(), fd.as_fd())?;
        crate::stream::set_nonblocking(self.core(), fd.as_fd())?;
        let key = self.core().add(FdKind::Listener);
        let next_check = Cell::new(Some(self.here().now() + ACCEPT_CHECK));
        Ok(Listener { core: self.core().clone(), key, fd: ManuallyDrop::new(fd), tcp, next_check })
    }
}

impl Listener {
    /// Accepts the next connection. A listener accepts at most [`Io::accepts_per_round`] in a round (R-F5); a
    /// call beyond that is ready in the next round.
    ///
    /// If the process or the system has no descriptors left, it pauses until this lane closes one or
    /// [`ACCEPT_PAUSE`](crate::ACCEPT_PAUSE) has passed. Connections wait in the kernel meanwhile.
    ///
    /// If the future is dropped, it has taken nothing: the next call gets the same connection.
    ///
    /// # Errors
    /// Errors of the listener itself. Connections that failed before they were accepted are skipped.
    pub async fn accept(&self) -> Result<Accepted, Error> {
        loop {
            let accepted = match self.next_check.get() {
                None => self.accept_once().await,
                Some(time) => self.accept_and_check(time).await,
            };
            match accepted {
                Ok((fd, peer)) => {
                    self.core.tallies.accepted.add(1);
                    return Ok(Accepted { fd, peer, tcp: self.tcp });
                }
                Err(error) if error.errno().map(fault) == Some(Fault::Starved) => self.pause().await,
                Err(error) => return Err(error),
            }
        }
    }

    fn accept_once(&self) -> impl Future<Output = Result<(OwnedFd, Option<SocketAddrAny>), Error>> + '_ {
        Waiting::new(&self.core, self.key, Direction::Read, |context| {
            backend!(self.core, driver => driver.poll_accept(&self.core, self.key, self.fd.as_fd(),
                context))
        })
    }

    /// Accepts, and looks at `time` for connections without an event; see [`ACCEPT_CHECK`].
    #[cold]
    async fn accept_and_check(&self, time: Time) -> Result<(OwnedFd, Option<SocketAddrAny>), Error> {
        let mut accepted = pin!(self.accept_once());
        let mut sleep = pin!(self.core.here.sleep_until(time));
        poll_fn(|context| {
            if self.next_check.get().is_some() && sleep.as_mut().poll(context).is_ready() {
                self.next_check.set(None);
                backend!(self.core, driver => driver.check_again(self.key));
            }
            accepted.as_mut().poll(context)
        })
        .await
    }

    /// Waits until a descriptor is closed, or for a while.
    #[cold]
    async fn pause(&self) {
        struct Starving<'a>(&'a Core, Option<u64>);
        impl Drop for Starving<'_> {
            fn drop(&mut self) {
                if let Some(number) = self.1 {
                    self.0.stop_starving(number);
                }
            }
        }
        self.core.tallies.pauses.add(1);
        let mut starving = Starving(&self.core, None);
        let mut sleep = pin!(self.core.here.sleep(ACCEPT_PAUSE));
        poll_fn(|context| match starving.1 {
            Some(number) if !self.core.is_starved(number) => Poll::Ready(()),
            number => {
                starving.1 = Some(self.core.starve(number, context.waker()));
                sleep.as_mut().poll(context)
            }
        })
        .await;
    }

    /// Gives up the descriptor without closing it, with the connections that the driver has accepted ahead of
    /// requests (none with epoll).
    ///
    /// A connection wakes one of the lanes that share a socket. If that was this one, no other lane knows of
    /// the connection, and it waits: so a lane that gives up a shared socket also takes its waiting
    /// connections, by [`accept_waiting`].
    ///
    /// # Errors
    /// If the driver cannot release it; it is then closed.
    pub async fn detach(self) -> Result<(OwnedFd, Vec<Accepted>), Error> {
        let tcp = self.tcp;
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped nor used again: both fields are moved out once.
        let (core, fd) = unsafe { (std::ptr::read(&this.core), std::ptr::read(&this.fd)) };
        let fd = ManuallyDrop::into_inner(fd);
        let (fd, early) = crate::stream::detach(core, this.key, fd).await?;
        Ok((fd, early.accepted.into_iter().map(|fd| Accepted { fd, peer: None, tcp }).collect()))
    }
}

/// Maximum number of connections in a row that failed before they were accepted and that [`accept_waiting`]
/// skips. A security policy may refuse every call with an error that a connection can have, too.
const MOST_SKIPPED: usize = 64;

/// Accepts a waiting connection from a non-blocking listening socket without a driver. None if there is no
/// connection, or no descriptor for it, or if many in a row failed.
pub fn accept_waiting(socket: impl AsFd) -> Option<Accepted> {
    for _ in 0..MOST_SKIPPED {
        match acceptfrom_with(&socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((fd, peer)) => {
                let tcp = matches!(
                    peer.as_ref().map(SocketAddrAny::address_family),
                    Some(AddressFamily::INET | AddressFamily::INET6)
                );
                return Some(Accepted { fd, peer, tcp });
            }
            Err(errno) if fault(errno) == Fault::Connection => {}
            Err(_) => return None,
        }
    }
    None
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: taken only here, at the end; `detach` does not run this.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        self.core.release(self.key, fd);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({:?})", *self.fd)
    }
}

/// A new connection without a lane: it may be sent to the lane that is to serve it.
#[derive(Debug)]
pub struct Accepted {
    fd: OwnedFd,
    peer: Option<SocketAddrAny>,
    tcp: bool,
}

impl Accepted {
    pub(crate) fn new(fd: OwnedFd, tcp: bool) -> Self {
        Self { fd, peer: None, tcp }
    }

    /// Converts the connection into a stream of this lane. Makes no system call.
    pub fn into_stream(self, io: &Io) -> Stream {
        Stream::new(io.core(), self.fd, if self.tcp { FdKind::Tcp } else { FdKind::Stream })
    }

    /// Returns the address of the peer; none for an unnamed peer. io_uring does not provide the address, so
    /// there this costs a system call.
    ///
    /// # Errors
    /// If the peer has disconnected before the call.
    pub fn peer(&self) -> Result<Option<SocketAddrAny>, Error> {
        match &self.peer {
            Some(peer) => Ok(Some(peer.clone())),
            None => rustix::net::getpeername(&self.fd).map_err(|errno| Error::system(Call::Accept, errno)),
        }
    }
}

impl AsFd for Accepted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Data that a driver has taken from a descriptor ahead of requests.
#[derive(Default)]
pub(crate) struct PrefetchedData {
    pub(crate) received: Chain,
    pub(crate) accepted: Vec<OwnedFd>,
}
