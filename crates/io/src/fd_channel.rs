//! Connections passed as descriptors over a unix socket, in place of a listener.
//!
//! System calls: `recvmsg`, when the driver reports that the socket is ready.

use crate::core::{Budget, Core, Direction, FdKind, backend};
use crate::driver::Io;
use crate::error::{Call, Error};
use crate::listener::Accepted;
use crate::passing::{Received, receive_descriptor};
use crate::slab::Key;
use crate::stream::{is_tcp, set_nonblocking};
use crate::waiter::Waiting;
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// A unix socket over which connected sockets are passed; it belongs to a lane's driver. Closed when dropped.
pub struct FdChannel {
    core: Rc<Core>,
    key: Key,
    fd: ManuallyDrop<OwnedFd>,
    budget: Budget,
}

impl Io {
    /// Takes over a connected unix socket, and makes it non-blocking.
    ///
    /// # Errors
    /// If it is not a socket.
    pub fn passage(&self, fd: impl Into<OwnedFd>) -> Result<FdChannel, Error> {
        let fd = fd.into();
        sockopt::socket_type(&fd).map_err(|errno| Error::system(Call::Register, errno))?;
        set_nonblocking(self.core(), fd.as_fd())?;
        let key = self.core().add(FdKind::Datagram);
        Ok(FdChannel { core: self.core().clone(), key, fd: ManuallyDrop::new(fd), budget: Budget::new() })
    }
}

impl FdChannel {
    /// Receives the next connection, at most [`Io::accepts_per_round`] in a round; none once the other end is
    /// closed. Closes and skips sockets other than streams. If the future is dropped, it has received
    /// nothing.
    ///
    /// # Errors
    /// The system's. `EMFILE` if there are no descriptors left: this connection is lost, since the system
    /// removes it from the queue all the same; the next may succeed.
    pub fn accept(&self) -> impl Future<Output = Result<Option<Accepted>, Error>> + '_ {
        const CALL: (Direction, Call) = (Direction::Read, Call::Accept);
        Waiting::new(&self.core, self.key, CALL.0, |context: &mut Context<'_>| {
            loop {
                if !self.budget.is_left(&self.core, self.core.accepts.get() as usize) {
                    self.core.defer(self.key, CALL.0, context.waker());
                    return Poll::Pending;
                }
                let fd = self.fd.as_fd();
                match backend!(self.core, driver => driver.poll_ready(&self.core, self.key, fd, CALL,
                    context))
                {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
                self.core.tallies.accepts.add(1);
                match receive_descriptor(fd) {
                    Ok(Received::Descriptor(passed)) => {
                        self.budget.take(1);
                        if let Ok(accepted) = self.accepted(passed) {
                            self.core.tallies.accepted.add(1);
                            return Poll::Ready(Ok(Some(accepted)));
                        }
                    }
                    Ok(Received::Nothing) => self.budget.take(1),
                    Ok(Received::End) => return Poll::Ready(Ok(None)),
                    Err(Errno::AGAIN) => self.core.forget_readiness(self.key, CALL.0),
                    Err(errno) => {
                        self.budget.take(1); // a connection came, and was lost
                        return Poll::Ready(Err(Error::system(CALL.1, errno)));
                    }
                }
            }
        })
    }

    /// Checks that `passed` is a stream socket.
    fn accepted(&self, passed: OwnedFd) -> Result<Accepted, Error> {
        let kind = sockopt::socket_type(&passed).map_err(|errno| Error::system(Call::Accept, errno))?;
        if kind != SocketType::STREAM {
            return Err(Error::system(Call::Accept, Errno::PROTOTYPE));
        }
        set_nonblocking(&self.core, passed.as_fd())?;
        let tcp = is_tcp(&self.core, passed.as_fd())?;
        Ok(Accepted::new(passed, tcp))
    }
}

impl Drop for FdChannel {
    fn drop(&mut self) {
        // SAFETY: taken only here, at the end.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        self.core.release(self.key, fd);
    }
}

impl AsFd for FdChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for FdChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FdChannel({:?})", *self.fd)
    }
}
