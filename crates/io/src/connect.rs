//! Outgoing connections.

use crate::core::{Direction, FdKind, backend};
use crate::driver::Io;
use crate::error::{Call, Error};
use crate::stream::{Stream, is_tcp, set_nonblocking};
use crate::waiter::Waiting;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, connect_unspec, sockopt};
use std::os::fd::{AsFd, OwnedFd};

impl Io {
    /// Connects `socket`, whose options are set already, to `address`. After completion bytes can be sent.
    ///
    /// Dropping the future closes the socket and ends the attempt.
    ///
    /// # Errors
    /// The system's, without the address: [`Error::at`] adds it.
    pub async fn connect(
        &self,
        socket: impl Into<OwnedFd>,
        address: impl Into<SocketAddrAny>,
    ) -> Result<Stream, Error> {
        let socket = socket.into();
        let core = self.core();
        set_nonblocking(core, socket.as_fd())?;
        let nature = if is_tcp(core, socket.as_fd())? { FdKind::Tcp } else { FdKind::Stream };
        self.connect_as(socket, nature, address.into()).await
    }

    /// Connects as [`connect`](Self::connect), but saves three system calls: the caller asserts that the
    /// socket is non-blocking, and `is_tcp` says whether it is TCP over IP.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_made(
        &self,
        socket: impl Into<OwnedFd>,
        is_tcp: bool,
        address: impl Into<SocketAddrAny>,
    ) -> Result<Stream, Error> {
        let nature = if is_tcp { FdKind::Tcp } else { FdKind::Stream };
        self.connect_as(socket.into(), nature, address.into()).await
    }

    async fn connect_as(
        &self,
        socket: OwnedFd,
        nature: FdKind,
        address: SocketAddrAny,
    ) -> Result<Stream, Error> {
        let stream = Stream::new(self.core(), socket, nature);
        stream.connect_again(address).await?;
        Ok(stream)
    }
}

impl Stream {
    /// Ends a TCP connection with a reset, as a close may, and keeps the socket with all its options for
    /// another connection: [`connect_again`](Self::connect_again). For callers that make many connections
    /// without data: the socket is not opened, closed and registered for each.
    ///
    /// # Errors
    /// The system's, and `EBUSY` if bytes were sent or received. The stream is then unusable.
    pub fn disconnect(&self) -> Result<(), Error> {
        let core = self.core();
        let fail = |errno| Error::system(Call::Connect, errno);
        if !backend!(core, driver => driver.begins_anew(self.key())) {
            return Err(fail(Errno::BUSY));
        }
        core.tallies.others.add(2);
        connect_unspec(self).map_err(fail)?;
        // The system records the reset as the socket's error, which the next connection would return.
        let _ = sockopt::socket_error(self).map_err(fail)?;
        Ok(())
    }

    /// Connects a stream that was disconnected. Dropping the future ends the attempt; the stream can then
    /// only be dropped.
    ///
    /// # Errors
    /// As [`Io::connect`].
    pub async fn connect_again(&self, address: SocketAddrAny) -> Result<(), Error> {
        let (core, stream) = (self.core(), self);
        let mut begun = false;
        Waiting::new(core, stream.key(), Direction::Write, |context| {
            let fd = stream.as_fd();
            backend!(core, driver => driver.poll_connect(core, stream.key(), fd, (&address, &mut begun),
                context))
        })
        .await
        .map_err(|errno| Error::system(Call::Connect, errno))
    }
}
