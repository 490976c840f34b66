//! A connection, whatever it goes through: the system's sockets, or a socket inside of the process (R-A8).

use manylane_buf::{Chain, MAX_CLUSTER, Segment};
use manylane_io::{Accepted, Error, Io, Shutdown, Stream, options};
use manylane_local::Socket;
use manylane_pool::{Pool, Pooled};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net;
use std::os::fd::AsFd;

/// A connection that was accepted, of no lane yet: it may be sent to the one that is to serve it.
#[derive(Debug)]
pub enum Incoming {
    /// Of the system.
    Socket(Accepted),
    /// Of this process.
    Local(Socket),
}

impl Incoming {
    /// The connection as one of the lane of `io`. Asks nothing of the kernel.
    pub fn into_connection(self, io: &Io) -> Connection {
        match self {
            Self::Socket(accepted) => Connection::Socket(accepted.into_stream(io)),
            Self::Local(socket) => Connection::Local(LocalStream::new(socket)),
        }
    }
}

/// A connection of a lane. One task may receive and another send at the same time.
///
/// Dropped, it is closed at once, and what the system did not take yet is lost; [`close`](Self::close) waits
/// for that.
#[derive(Debug)]
pub enum Connection {
    /// Through a socket of the system.
    Socket(Stream),
    /// Through a socket of this process, without system calls.
    Local(LocalStream),
}

/// One end of a stream inside of the process.
#[derive(Debug)]
pub struct LocalStream {
    socket: Socket,
    /// Segments that came with the one that was asked for. Only borrowed between two awaits. Kept elsewhere,
    /// so that a connection is small to move, which the system's are all the time.
    received: RefCell<Option<Pooled<Chain>>>,
}

manylane_sync::lazy_static! {
    static RECEIVED: Pool<Chain> = Pool::new("net received").expect("the size is a constant below the bound");
}

impl LocalStream {
    /// `socket` as a lane's stream.
    pub fn new(socket: Socket) -> Self {
        Self { socket, received: RefCell::new(None) }
    }

    /// The socket itself.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    async fn recv(&self) -> Result<Option<Segment>, manylane_local::Error> {
        if let Some(segment) = self.next_received() {
            return Ok(Some(segment));
        }
        let mut chain = self.socket.recv_chain_async(MAX_CLUSTER).await?;
        let first = chain.pop_front();
        if !chain.is_empty() {
            let kept =
                RECEIVED.alloc(chain).map_err(|error| manylane_local::Error::NoBuffers(error.into()))?;
            *self.received.borrow_mut() = Some(kept);
        }
        Ok(first)
    }

    async fn recv_chain(&self, into: &mut Chain) -> Result<bool, manylane_local::Error> {
        let mut chain = match self.received.borrow_mut().take() {
            Some(mut kept) => std::mem::take(&mut *kept),
            None => Chain::new(),
        };
        if chain.is_empty() {
            chain = self.socket.recv_chain_async(MAX_CLUSTER).await?;
        }
        let some = !chain.is_empty();
        into.append_compact(&mut chain).map_err(manylane_local::Error::NoBuffers)?;
        Ok(some)
    }

    fn next_received(&self) -> Option<Segment> {
        let mut received = self.received.borrow_mut();
        let segment = received.as_mut()?.pop_front();
        if received.as_ref().is_some_and(|chain| chain.is_empty()) {
            *received = None;
        }
        segment
    }
}

impl Connection {
    /// The next bytes; `None` at the end. From another lane of this process they are the very bytes that were
    /// sent (R-A7).
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn recv(&self) -> Result<Option<Segment>, TransferError> {
        match self {
            Self::Socket(stream) => stream.recv().await.map_err(TransferError::Socket),
            Self::Local(local) => local.recv().await.map_err(TransferError::Local),
        }
    }

    /// [`recv`](Self::recv) for a connection of which nothing is held: it waits while connections of the lane
    /// hold as many buffers as they may ([`Stream::recv_within_limit`], R-D4). Inside of the process bytes
    /// are in the sender's buffers already.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn recv_within_limit(&self) -> Result<Option<Segment>, TransferError> {
        match self {
            Self::Socket(stream) => stream.recv_within_limit().await.map_err(TransferError::Socket),
            Self::Local(local) => local.recv().await.map_err(TransferError::Local),
        }
    }

    /// [`recv_chain`](Self::recv_chain) for a connection of which nothing is held, likewise.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn recv_chain_within_limit(
        &self,
        into: &mut Chain,
        most: usize,
    ) -> Result<bool, TransferError> {
        match self {
            Self::Socket(stream) => {
                stream.recv_chain_within_limit(into, most).await.map_err(TransferError::Socket)
            }
            Self::Local(local) => local.recv_chain(into).await.map_err(TransferError::Local),
        }
    }

    /// Puts the next bytes behind `into`, as many as are there, up to about `most`, or 16 KiB if that is
    /// less; false at the end. For bulk.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn recv_chain(&self, into: &mut Chain, most: usize) -> Result<bool, TransferError> {
        match self {
            Self::Socket(stream) => stream.recv_chain(into, most).await.map_err(TransferError::Socket),
            Self::Local(local) => local.recv_chain(into).await.map_err(TransferError::Local),
        }
    }

    /// Whether a [`recv`](Self::recv) may have something to give at once; if not, it would wait. An idle
    /// connection without news is still open, as far as anybody knows. Asks nothing of the kernel.
    pub fn has_news(&self) -> bool {
        match self {
            Self::Socket(stream) => stream.has_news(),
            Self::Local(_) => true, // whoever asks has it from the socket
        }
    }

    /// Whether nothing has come and the connection goes on, as the kernel has it now: one system call. None:
    /// it is inside of the process, where a [`recv`](Self::recv) tells.
    pub fn is_silent(&self) -> Option<bool> {
        match self {
            Self::Socket(stream) => Some(stream.is_silent()),
            Self::Local(_) => None,
        }
    }

    /// Hands over all of `chain`, and waits while there is no room for it.
    ///
    /// # Errors
    /// [`TransferError`]; how much arrived is not known then.
    pub async fn send(&self, chain: &mut Chain) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.send(chain).await.map_err(TransferError::Socket),
            Self::Local(local) => {
                let sent = local.socket.send_chain_async(chain).await;
                sent.map(|_| ()).map_err(TransferError::Local)
            }
        }
    }

    /// [`send`](Self::send), and [`finish`](Self::finish) with it: the end goes with the last bytes where
    /// that can be.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn send_last(&self, chain: &mut Chain) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.send_last(chain).await.map_err(TransferError::Socket),
            Self::Local(_) => {
                self.send(chain).await?;
                self.finish().await
            }
        }
    }

    /// Bytes that were handed over and not taken yet. Who waits in [`send`](Self::send) is woken when there
    /// are fewer. Inside of the process it is always 0.
    #[inline]
    pub fn unsent(&self) -> usize {
        match self {
            Self::Socket(stream) => stream.unsent(),
            Self::Local(_) => 0,
        }
    }

    /// Waits until the system has taken all that was handed over. Who closes at once may lose it otherwise.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn flush(&self) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.flush().await.map_err(TransferError::Socket),
            Self::Local(_) => Ok(()),
        }
    }

    /// Says that nothing more will be sent; the other direction goes on.
    ///
    /// # Errors
    /// [`TransferError`], when the connection is over already.
    pub async fn finish(&self) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.shutdown(Shutdown::Write).await.map_err(TransferError::Socket),
            Self::Local(local) => local.socket.shutdown(net::Shutdown::Write).map_err(TransferError::Local),
        }
    }

    /// Closes it, when the system has taken all that was sent.
    ///
    /// # Errors
    /// [`TransferError`], when that could not be.
    pub async fn close(self) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.close().await.map_err(TransferError::Socket),
            Self::Local(_) => Ok(()),
        }
    }

    /// Dropping it resets it: the other side learns that what it got may not be all.
    pub fn reset_on_close(&self) {
        match self {
            Self::Socket(stream) => {
                let _ = options::set_reset_on_close(stream.as_fd()); // else it is closed as usual
            }
            Self::Local(local) => local.socket.abort(),
        }
    }

    /// The system's stream, if it is one.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Socket(stream) => Some(stream),
            Self::Local(_) => None,
        }
    }
}

/// Bytes could not be received or sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// What the driver says.
    Socket(Error),
    /// What the local socket says.
    Local(manylane_local::Error),
}

impl TransferError {
    /// Whether it is this side that failed, for want of memory: the other one has done nothing wrong.
    pub fn is_memory(&self) -> bool {
        match self {
            Self::Socket(error) => error.kind() == io::ErrorKind::OutOfMemory,
            Self::Local(error) => matches!(error, manylane_local::Error::NoBuffers(_)),
        }
    }

    /// The same in std's terms.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Socket(error) => error.kind(),
            Self::Local(error) => io::Error::from_raw_os_error(error.raw_os_error()).kind(),
        }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => error.fmt(f),
            Self::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TransferError {}
