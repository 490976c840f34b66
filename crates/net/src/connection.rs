//! A connection, whatever it goes through: the system's sockets, a socket inside of the process (R-A8), or
//! TLS over either.

use crate::tls::{TlsStream, Under};
use manylane_buf::{Chain, MAX_CLUSTER, Segment};
use manylane_io::{Accepted, Error, Io, Shutdown, Stream, options};
use manylane_local::Socket;
use manylane_pool::{AllocError, Pool, Pooled};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::net;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

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
    /// Through either, encrypted.
    Tls(Pooled<TlsStream>),
}

/// One end of a stream inside of the process.
pub struct LocalStream {
    socket: Socket,
    /// Segments that came with the one that was asked for. Kept elsewhere, so that a connection is small to
    /// move, which the system's are all the time.
    received: Cell<Option<Pooled<Chain>>>,
}

manylane_sync::lazy_static! {
    static RECEIVED: Pool<Chain> = Pool::new("net received").expect("the size is a constant below the bound");
}

manylane_sync::lazy_static! {
    static TLS: Pool<TlsStream> = Pool::new("net tls").expect("the size is a constant below the bound");
}

impl fmt::Debug for LocalStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl LocalStream {
    /// `socket` as a lane's stream.
    pub fn new(socket: Socket) -> Self {
        Self { socket, received: Cell::new(None) }
    }

    /// The socket itself.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) async fn recv(&self) -> Result<Option<Segment>, manylane_local::Error> {
        if let Some(segment) = self.next_received() {
            return Ok(Some(segment));
        }
        let mut chain = self.socket.recv_chain_async(MAX_CLUSTER).await?;
        let first = chain.pop_front();
        if !chain.is_empty() {
            let kept =
                RECEIVED.alloc(chain).map_err(|error| manylane_local::Error::NoBuffers(error.into()))?;
            self.received.set(Some(kept));
        }
        Ok(first)
    }

    pub(crate) async fn recv_chain(&self, into: &mut Chain) -> Result<bool, manylane_local::Error> {
        let mut chain = match self.received.take() {
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

    pub(crate) async fn send(&self, chain: &mut Chain) -> Result<(), manylane_local::Error> {
        self.socket.send_chain_async(chain).await.map(|_| ())
    }

    fn next_received(&self) -> Option<Segment> {
        let mut received = self.received.take()?;
        let segment = received.pop_front();
        if !received.is_empty() {
            self.received.set(Some(received));
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
            Self::Tls(tls) => tls.recv(false).await,
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
            Self::Tls(tls) => tls.recv(true).await,
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
            Self::Tls(tls) => tls.recv_chain(into, most, true).await,
        }
    }

    /// Whether the end that was received may be another's work: TLS was spoken, and the peer did not say that
    /// it ends. What has its length within is whole all the same.
    pub fn is_truncated(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_truncated)
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
            Self::Tls(tls) => tls.recv_chain(into, most, false).await,
        }
    }

    /// [`recv`](Self::recv), or [`recv_within_limit`](Self::recv_within_limit), for futures that are written
    /// manually. None: it is of the process, where one can only be awaited.
    pub fn poll_recv(
        &self,
        within_limit: bool,
        context: &mut Context<'_>,
    ) -> Option<Poll<Result<Option<Segment>, TransferError>>> {
        Some(match self {
            Self::Socket(stream) if within_limit => {
                stream.poll_recv_within_limit(context).map_err(TransferError::Socket)
            }
            Self::Socket(stream) => stream.poll_recv(context).map_err(TransferError::Socket),
            Self::Tls(tls) => tls.poll_recv(tls.socket()?, within_limit, context),
            Self::Local(_) => return None,
        })
    }

    /// Whether [`poll_recv`](Self::poll_recv) is for it.
    pub fn is_pollable(&self) -> bool {
        self.socket().is_some()
    }

    /// Whether a [`recv`](Self::recv) may have something to give at once; if not, it would wait. An idle
    /// connection without news is still open, as far as anybody knows. Asks nothing of the kernel.
    pub fn has_news(&self) -> bool {
        match self {
            Self::Socket(stream) => stream.has_news(),
            Self::Local(_) => true, // whoever asks has it from the socket
            Self::Tls(tls) => tls.has_news(),
        }
    }

    /// Whether nothing has come and the connection goes on, as the kernel has it now: one system call. None:
    /// it is inside of the process, or speaks TLS, of which more may come than data: a [`recv`](Self::recv)
    /// tells.
    pub fn is_silent(&self) -> Option<bool> {
        match self {
            Self::Socket(stream) => Some(stream.is_silent()),
            Self::Local(_) => None,
            // What the driver knows of may be no data.
            Self::Tls(tls) if tls.has_news() => None,
            Self::Tls(tls) => tls.socket().map(Stream::is_silent),
        }
    }

    /// Hands over all of `chain`, and waits while there is no room for it.
    ///
    /// # Errors
    /// [`TransferError`]; how much arrived is not known then.
    pub async fn send(&self, chain: &mut Chain) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.send(chain).await.map_err(TransferError::Socket),
            Self::Local(local) => local.send(chain).await.map_err(TransferError::Local),
            Self::Tls(tls) => tls.send(chain).await,
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
            Self::Tls(tls) => tls.send_last(chain).await,
        }
    }

    /// Bytes that were handed over and not taken yet. Who waits in [`send`](Self::send) is woken when there
    /// are fewer. Inside of the process it is always 0.
    #[inline]
    pub fn unsent(&self) -> usize {
        match self {
            Self::Socket(stream) => stream.unsent(),
            Self::Local(_) => 0,
            Self::Tls(tls) => tls.socket().map_or(0, Stream::unsent),
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
            Self::Tls(tls) => match tls.socket() {
                Some(stream) => stream.flush().await.map_err(TransferError::Socket),
                None => Ok(()),
            },
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
            Self::Tls(tls) => tls.finish().await,
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
            Self::Tls(tls) => tls.close().await,
        }
    }

    /// Dropping it resets it: the other side learns that what it got may not be all.
    pub fn reset_on_close(&self) {
        if let Some(stream) = self.socket() {
            let _ = options::set_reset_on_close(stream.as_fd()); // else it is closed as usual
        }
        let local = match self {
            Self::Socket(_) => None,
            Self::Local(local) => Some(local),
            Self::Tls(tls) => tls.local(),
        };
        if let Some(local) = local {
            local.socket.abort();
        }
    }

    /// The system's stream, if its bytes are what is received and sent.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Socket(stream) => Some(stream),
            Self::Local(_) | Self::Tls(_) => None,
        }
    }

    /// The system's stream that it goes through, if there is one: for its addresses and options.
    pub fn socket(&self) -> Option<&Stream> {
        match self {
            Self::Socket(stream) => Some(stream),
            Self::Local(_) => None,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// TLS, if it is spoken.
    pub fn tls(&self) -> Option<&TlsStream> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Socket(_) | Self::Local(_) => None,
        }
    }

    /// The connection with TLS over it; `early` was received of it already. What comes next is the
    /// [handshake](TlsStream::handshake).
    ///
    /// # Errors
    /// No memory: the connection is closed then.
    pub fn encrypt(self, tls: manylane_tls::Connection, early: Chain) -> Result<Self, AllocError> {
        let under = match self {
            Self::Socket(stream) => Under::Socket(stream),
            Self::Local(local) => Under::Local(local),
            Self::Tls(_) => return Ok(self), // it is
        };
        TLS.alloc_with(|| TlsStream::new(under, tls, early)).map(Self::Tls)
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
    /// What TLS says.
    Tls(manylane_tls::Error),
}

impl TransferError {
    /// Whether it is this side that failed, for want of memory: the other one has done nothing wrong.
    pub fn is_memory(&self) -> bool {
        match self {
            Self::Socket(error) => error.kind() == io::ErrorKind::OutOfMemory,
            Self::Local(error) => matches!(error, manylane_local::Error::NoBuffers(_)),
            Self::Tls(error) => matches!(error, manylane_tls::Error::Memory(_)),
        }
    }

    /// Whether nothing is said of the peer and the network: there is no memory, or another task waits for the
    /// same.
    pub fn is_own(&self) -> bool {
        match self {
            Self::Socket(error) => error.errno().is_none(),
            Self::Local(_) | Self::Tls(_) => self.is_memory(),
        }
    }

    /// The same in std's terms.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Socket(error) => error.kind(),
            Self::Local(error) => io::Error::from_raw_os_error(error.raw_os_error()).kind(),
            Self::Tls(manylane_tls::Error::Memory(_)) => io::ErrorKind::OutOfMemory,
            Self::Tls(manylane_tls::Error::Ended) => io::ErrorKind::UnexpectedEof,
            Self::Tls(_) => io::ErrorKind::InvalidData,
        }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => error.fmt(f),
            Self::Local(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TransferError {}
