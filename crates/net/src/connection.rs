//! A connection over any transport: a socket of the system, a socket inside of the process (R-A8), or TLS
//! over either.

use crate::tls::{InnerTransport, TlsStream};
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

/// A connection that was accepted and belongs to no lane: it may be sent to the lane that will serve it.
#[derive(Debug)]
pub enum Incoming {
    /// A socket of the system.
    Socket(Accepted),
    /// A socket of this process.
    Local(Socket),
}

impl Incoming {
    /// Makes this a connection of the lane of `io`. Makes no system call.
    pub fn into_connection(self, io: &Io) -> Connection {
        match self {
            Self::Socket(accepted) => Connection::Socket(accepted.into_stream(io)),
            Self::Local(socket) => Connection::Local(LocalStream::new(socket)),
        }
    }
}

/// A connection of a lane. One task may receive while another sends.
///
/// Dropping it closes it at once, and bytes that the system has not taken yet are lost;
/// [`close`](Self::close) waits for them.
#[derive(Debug)]
pub enum Connection {
    /// Over a socket of the system.
    Socket(Stream),
    /// Over a socket of this process, without system calls.
    Local(LocalStream),
    /// Over either, encrypted.
    Tls(Pooled<TlsStream>),
}

/// One end of a stream inside of the process.
pub struct LocalStream {
    socket: Socket,
    /// Segments that came with the last one. They are in a separate allocation to keep connections small,
    /// because connections over the system's sockets are moved all the time.
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
    /// Makes `socket` a stream of a lane.
    pub fn new(socket: Socket) -> Self {
        Self { socket, received: Cell::new(None) }
    }

    /// Returns the socket.
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

    /// Sends all of `chain`. What the peer has no room for waits there, in at most twice its memory and a
    /// cluster.
    pub(crate) async fn send(&self, chain: &mut Chain) -> Result<(), manylane_local::Error> {
        match self.socket.try_send_chain(chain) {
            Ok(_) | Err(manylane_local::Error::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        if chain.is_empty() {
            return Ok(());
        }
        let mut rest = std::mem::take(chain);
        chain.append_compact(&mut rest).map_err(manylane_local::Error::NoBuffers)?;
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
    /// Receives the next bytes; `None` at the end. From another lane of this process, these are the sender's
    /// own buffers (R-A7).
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

    /// Does what [`recv`](Self::recv) does, for a connection that holds no buffer: it waits while the
    /// connections of the lane hold as many buffers as they may ([`Stream::recv_within_limit`], R-D4). Inside
    /// of the process, bytes are in the sender's buffers already.
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

    /// Does what [`recv_chain`](Self::recv_chain) does, for a connection that holds no buffer, with the same
    /// limit.
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

    /// Returns whether an attacker may have ended the stream: TLS is in use, and the peer sent no
    /// `close_notify`. A message that states its own length is complete nevertheless.
    pub fn is_truncated(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_truncated)
    }

    /// Appends the available bytes to `into`, up to about `most` or 16 KiB, whichever is less. Returns false
    /// at the end. For bulk data.
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

    /// Does what [`recv`](Self::recv) or [`recv_within_limit`](Self::recv_within_limit) does, for
    /// hand-written futures. Returns `None` for a connection inside of the process, where these can only be
    /// awaited.
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

    /// Returns whether [`poll_recv`](Self::poll_recv) works for this connection.
    pub fn is_pollable(&self) -> bool {
        self.socket().is_some()
    }

    /// Returns whether a [`recv`](Self::recv) might return at once; if false, it would wait. An idle
    /// connection without unread events is still open as far as this process knows. Makes no system call.
    pub fn is_readable(&self) -> bool {
        match self {
            Self::Socket(stream) => stream.is_readable(),
            Self::Local(_) => true, // a local socket has its own events
            Self::Tls(tls) => tls.is_readable(),
        }
    }

    /// Returns whether nothing has come and the connection is still open, as the kernel knows it: one system
    /// call. Returns `None` inside of the process, and for TLS with unread events, which may be more than
    /// data: there, [`recv`](Self::recv) finds out.
    pub fn is_silent(&self) -> Option<bool> {
        match self {
            Self::Socket(stream) => Some(stream.is_silent()),
            Self::Local(_) => None,
            // The received bytes may carry no data.
            Self::Tls(tls) if tls.is_readable() => None,
            Self::Tls(tls) => tls.socket().map(Stream::is_silent),
        }
    }

    /// Returns whether the peer has closed both directions, as far as the kernel knows: one system call.
    /// False inside of the process.
    pub fn has_hung_up(&self) -> bool {
        let socket = match self {
            Self::Socket(stream) => Some(stream),
            Self::Local(_) => None,
            Self::Tls(tls) => tls.socket(),
        };
        socket.is_some_and(Stream::has_hung_up)
    }

    /// Sends all of `chain`, and waits while there is no room for it.
    ///
    /// # Errors
    /// [`TransferError`]; it is unknown how much arrived.
    pub async fn send(&self, chain: &mut Chain) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.send(chain).await.map_err(TransferError::Socket),
            Self::Local(local) => local.send(chain).await.map_err(TransferError::Local),
            Self::Tls(tls) => tls.send(chain).await,
        }
    }

    /// Does what [`send`](Self::send) and then [`finish`](Self::finish) do: if possible, the end goes with
    /// the last bytes.
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

    /// Returns the number of bytes that were handed over and that the system has not taken. A task that waits
    /// in [`send`](Self::send) is woken when this falls. Inside of the process the number is always 0.
    #[inline]
    pub fn unsent(&self) -> usize {
        match self {
            Self::Socket(stream) => stream.unsent(),
            Self::Local(_) => 0,
            Self::Tls(tls) => tls.socket().map_or(0, Stream::unsent),
        }
    }

    /// Waits until the system has taken all bytes that were handed over. A caller that closes without it may
    /// lose them.
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

    /// Ends the sending direction; the other direction goes on.
    ///
    /// # Errors
    /// [`TransferError`] if the connection is over already.
    pub async fn finish(&self) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.shutdown(Shutdown::Write).await.map_err(TransferError::Socket),
            Self::Local(local) => local.socket.shutdown(net::Shutdown::Write).map_err(TransferError::Local),
            Self::Tls(tls) => tls.finish().await,
        }
    }

    /// Closes the connection once the system has taken all sent bytes.
    ///
    /// # Errors
    /// [`TransferError`] if that failed.
    pub async fn close(self) -> Result<(), TransferError> {
        match self {
            Self::Socket(stream) => stream.close().await.map_err(TransferError::Socket),
            Self::Local(_) => Ok(()),
            Self::Tls(tls) => tls.close().await,
        }
    }

    /// Makes a later drop reset the connection: the peer learns that the received data may be incomplete.
    pub fn reset_on_close(&self) {
        if let Some(stream) = self.socket() {
            let _ = options::set_reset_on_close(stream.as_fd()); // if this fails, it is closed as usual
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

    /// Returns the system's stream if it carries the connection's bytes as they are: neither TLS nor
    /// `local@`.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Socket(stream) => Some(stream),
            Self::Local(_) | Self::Tls(_) => None,
        }
    }

    /// Returns the system's stream below, if there is one: for its addresses and options.
    pub fn socket(&self) -> Option<&Stream> {
        match self {
            Self::Socket(stream) => Some(stream),
            Self::Local(_) => None,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Returns the TLS stream, if TLS is in use.
    pub fn tls(&self) -> Option<&TlsStream> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Socket(_) | Self::Local(_) => None,
        }
    }

    /// Returns the connection with TLS over it. `early` holds bytes that were received already. Call the
    /// [handshake](TlsStream::handshake) next. `held` is dropped with the connection: for example, a guard of
    /// the limit on TLS connections.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory; the connection is then closed.
    pub fn encrypt(
        self,
        tls: manylane_tls::Connection,
        early: Chain,
        held: Option<Box<dyn fmt::Debug>>,
    ) -> Result<Self, AllocError> {
        let under = match self {
            Self::Socket(stream) => InnerTransport::Socket(stream),
            Self::Local(local) => InnerTransport::Local(local),
            Self::Tls(_) => return Ok(self), // TLS is in use already
        };
        TLS.alloc_with(|| TlsStream::new(under, tls, early, held)).map(Self::Tls)
    }
}

/// Bytes could not be received or sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// Error of the driver.
    Socket(Error),
    /// Error of the local socket.
    Local(manylane_local::Error),
    /// Error of TLS.
    Tls(manylane_tls::Error),
}

impl TransferError {
    /// Returns whether this side lacked memory: the peer has done nothing wrong.
    pub fn is_memory(&self) -> bool {
        match self {
            Self::Socket(error) => error.kind() == io::ErrorKind::OutOfMemory,
            Self::Local(error) => matches!(error, manylane_local::Error::NoBuffers(_)),
            Self::Tls(error) => matches!(error, manylane_tls::Error::Memory(_)),
        }
    }

    /// Returns whether the error says nothing about the peer or the network: there is no memory, or another
    /// task waits for the same.
    pub fn is_own(&self) -> bool {
        match self {
            Self::Socket(error) => error.errno().is_none(),
            Self::Local(_) | Self::Tls(_) => self.is_memory(),
        }
    }

    /// Returns the error kind of the standard library.
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
