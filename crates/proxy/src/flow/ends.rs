//! The two ends of an exchange: sources and destinations of messages, whatever the version of HTTP.
//!
//! Code above this module does not depend on the version that an end speaks, with two exceptions: the decoder
//! and the encoder of a body (`http::pump`), and what is possible only with a connection of HTTP/1: splicing
//! and idle sessions.

use super::{Direction, Waits};
use manylane_buf::Chain;
use manylane_http::{CaseTable, Head, Known, List};
use manylane_mux::h2;
use manylane_net::{Connection, TransferError};
use manylane_pool::{AllocError, Pool, Pooled};
use manylane_sched::Here;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll};

/// The client's end.
#[derive(Debug)]
pub(crate) enum ClientEnd {
    /// A connection, with one request at a time.
    Http1(Connection),
    /// A stream of the connection.
    Http2(Pooled<H2End>),
}

/// The server's end, for one request.
#[derive(Debug)]
pub(crate) enum ServerEnd {
    /// A connection that only this request uses.
    Http1(Connection),
    /// A connection that requests share, and the stream, once it has begun.
    Http2(h2::Conn, OnceCell<Pooled<H2End>>),
}

/// Returns the protocol for an extended CONNECT: the first one that the request offers.
pub(crate) fn protocol(request: &Head) -> Option<&[u8]> {
    List::new(request.value(Known::UPGRADE)?).next()
}

/// One end of a body's transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyEnd<'a> {
    /// A connection, whose bytes are framed.
    Http1(&'a Connection),
    /// A stream, which has data and an end.
    Http2(&'a H2End),
}

/// A stream of HTTP/2. Both directions of an exchange may use it concurrently.
#[derive(Debug)]
pub(crate) struct H2End {
    conn: h2::Conn,
    /// Scheme of the request.
    scheme: h2::Scheme,
    stream: h2::Stream,
    /// Number of received bytes that were not forwarded yet.
    taken: Cell<usize>,
    /// The whole incoming message was received.
    over: Cell<bool>,
    trailers: RefCell<Option<Head>>,
}

manylane_sync::lazy_static! {
    static STREAMS: Pool<H2End> =
        Pool::new("h2 stream").expect("the size is a constant below the bound");
}

/// An end has failed: its connection or its stream.
#[derive(Debug, Default)]
pub(crate) struct EndFailed {
    /// The reason is lack of memory here, and not the peer.
    is_memory: bool,
}

impl EndFailed {
    pub(crate) fn is_memory(&self) -> bool {
        self.is_memory
    }
}

impl From<TransferError> for EndFailed {
    fn from(error: TransferError) -> Self {
        Self { is_memory: error.is_memory() }
    }
}

impl From<h2::StreamError> for EndFailed {
    fn from(error: h2::StreamError) -> Self {
        let is_memory =
            matches!(error, h2::StreamError::Memory | h2::StreamError::Send(h2::SendError::NoMemory));
        Self { is_memory }
    }
}

/// A head could not be sent.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// There is no memory for the head.
    Memory,
    /// The end has failed.
    Failed,
}

/// Fewest bytes to ask a stream for, even if the receiver has been slow lately: a frame of the usual size.
const LEAST: usize = 16_384;

impl H2End {
    /// Returns the end of a stream. `over` says that the incoming message consists of a head only.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(
        conn: h2::Conn,
        stream: h2::Stream,
        scheme: h2::Scheme,
        over: bool,
    ) -> Result<Pooled<Self>, AllocError> {
        STREAMS.alloc(Self {
            conn,
            scheme,
            stream,
            taken: Cell::new(0),
            over: Cell::new(over),
            trailers: RefCell::new(None),
        })
    }

    /// Returns the number of the stream on its connection.
    pub(crate) fn id(&self) -> u32 {
        self.stream.id()
    }

    /// Returns the code with which the peer has reset the stream, if it has.
    pub(crate) fn peer_reset(&self) -> Option<u32> {
        self.stream.peer_reset().map(h2::Reason::code)
    }

    /// Returns true if the stream was reset or its connection failed.
    pub(crate) fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }

    /// Returns the connection of the stream.
    pub(crate) fn conn(&self) -> &h2::Conn {
        &self.conn
    }

    /// Returns the scheme of the request.
    pub(crate) fn scheme(&self) -> &[u8] {
        self.scheme.as_bytes()
    }

    /// Receives data and appends it to `into`; false when the message is [over](Self::over).
    pub(crate) fn poll_receive(
        &self,
        context: &Context<'_>,
        into: &mut Chain,
        most: usize,
    ) -> Poll<Result<bool, EndFailed>> {
        let had = into.len();
        let polled = self.stream.poll_recv(context, into, most.max(LEAST));
        polled.map(|received| match received {
            Ok(h2::Received::Data) => {
                self.taken.set(self.taken.get() + into.len() - had);
                // The end of the message is forwarded with the last data.
                self.over.set(self.stream.is_received());
                Ok(true)
            }
            Ok(h2::Received::Trailers(trailers)) => {
                self.trailers.replace(Some(trailers));
                self.over.set(true);
                Ok(false)
            }
            Ok(h2::Received::End) => {
                self.over.set(true);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        })
    }

    /// Returns the trailers, if there are any, once the whole message was received. Later calls have no
    /// trailers.
    pub(crate) fn over(&self) -> Option<Option<Head>> {
        self.over.get().then(|| self.trailers.take())
    }

    /// Returns true if the whole message was received.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Opens the flow-control window by the received bytes, which were forwarded or dropped.
    pub(crate) fn gone_on(&self) {
        let taken = self.taken.take();
        if taken > 0 {
            self.stream.consume(taken);
        }
    }

    /// Waits for the head of a response.
    pub(crate) async fn head(&self) -> Result<h2::ResponseHead, h2::StreamError> {
        let head = poll_fn(|context| self.stream.poll_head(context)).await?;
        if let h2::ResponseHead::Final { end: true, .. } = head {
            self.over.set(true);
        }
        Ok(head)
    }

    /// Receives the available data without waiting.
    pub(crate) async fn receive_now(&self, into: &mut Chain) {
        poll_fn(|context| {
            while let Poll::Ready(Ok(true)) = self.poll_receive(context, into, LEAST) {}
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until the stream is reset or its connection fails.
    pub(crate) fn poll_gone(&self, context: &Context<'_>) -> Poll<()> {
        self.stream.poll_gone(context).map(drop)
    }

    /// Resets the stream.
    pub(crate) fn reset(&self, reason: h2::Reason) {
        self.stream.reset(reason);
    }

    fn sent(sent: Result<(), h2::StreamError>) -> Result<(), NotSent> {
        sent.map_err(|error| match error {
            h2::StreamError::Memory | h2::StreamError::Send(h2::SendError::NoMemory) => NotSent::Memory,
            _ => NotSent::Failed,
        })
    }

    fn send_interim(&self, head: &Head) -> Result<(), NotSent> {
        Self::sent(self.stream.send_interim(head))
    }

    fn send_head(&self, head: &Head, end: bool) -> Result<(), NotSent> {
        Self::sent(self.stream.send_head(head, end))
    }

    /// Sends the trailers and, with them, the end of the message.
    pub(crate) fn send_trailers(&self, trailers: &Head) -> Result<(), EndFailed> {
        Ok(self.stream.send_trailers(trailers)?)
    }

    /// Sends all of `data`, and with `end` the end of the message. Calls `took` when the peer has taken a
    /// part of the data while the rest waits.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn send(&self, data: &mut Chain, end: bool, took: impl Fn()) -> Result<(), EndFailed> {
        poll_fn(|context| {
            let before = data.len();
            let sent = self.stream.poll_send(context, data, end);
            if sent.is_pending() && data.len() < before {
                took();
            }
            sent.map_err(EndFailed::from)
        })
        .await
    }

    /// Waits until data could be sent. Returns the number of bytes that could be.
    async fn room(&self) -> Result<usize, EndFailed> {
        Ok(poll_fn(|context| self.stream.poll_room(context)).await?)
    }
}

impl ClientEnd {
    /// Returns the connection below this end, for its addresses and socket options. Messages are received and
    /// sent by the other methods.
    pub(crate) fn connection(&self) -> &Connection {
        match self {
            Self::Http1(connection) => connection,
            Self::Http2(stream) => stream.conn.connection(),
        }
    }

    /// Returns the connection if it carries nothing else, so that its bytes can be received and sent
    /// directly.
    pub(crate) fn whole(&self) -> Option<&Connection> {
        self.body().whole()
    }

    /// Returns the stream, if this is one.
    pub(crate) fn h2(&self) -> Option<&H2End> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(stream) => Some(stream),
        }
    }

    /// Returns this end as source or destination of a body.
    pub(crate) fn body(&self) -> BodyEnd<'_> {
        match self {
            Self::Http1(connection) => BodyEnd::Http1(connection),
            Self::Http2(stream) => BodyEnd::Http2(stream),
        }
    }

    /// Sends the head of an interim response, and records that in `direction`. Returns the length of the
    /// head.
    ///
    /// # Errors
    /// [`NotSent`]
    pub(crate) async fn send_interim(
        &self,
        direction: &Direction,
        here: Here,
        head: &mut Head,
    ) -> Result<u64, NotSent> {
        match self {
            Self::Http1(connection) => {
                let mut out = Chain::new();
                head.emit(&mut out, None).map_err(|_| NotSent::Memory)?;
                let length = out.len() as u64;
                direction.send(here, connection, &mut out).await.map_err(|_| NotSent::Failed)?;
                Ok(length)
            }
            Self::Http2(stream) => {
                // A server may send interim responses without end.
                direction.waits(Waits::Receiver, here.now());
                poll_fn(|context| stream.stream.poll_interim_room(context))
                    .await
                    .map_err(|_| NotSent::Failed)?;
                stream.send_interim(head).map(|()| head.size() as u64)
            }
        }
    }

    /// Sends the head of the final response at once (HTTP/2), or appends it to `out`, so that it leaves with
    /// the body (HTTP/1). `end` says that no body follows. Returns the number of bytes sent.
    ///
    /// # Errors
    /// [`NotSent`]
    pub(crate) fn send_head(
        &self,
        head: &mut Head,
        spellings: Option<&CaseTable>,
        end: bool,
        out: &mut Chain,
    ) -> Result<u64, NotSent> {
        match self {
            Self::Http1(_) => head.emit(out, spellings).map(|()| 0).map_err(|_| NotSent::Memory),
            Self::Http2(stream) => stream.send_head(head, end).map(|()| head.size() as u64),
        }
    }
}

impl<'a> BodyEnd<'a> {
    /// Receives available bytes of a message, up to about `most`, and appends them to `into`. Returns false
    /// if no more bytes will come: the connection or the message has ended.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn receive(self, into: &mut Chain, most: usize) -> Result<bool, EndFailed> {
        match self {
            Self::Http1(connection) => Ok(connection.recv_chain(into, most).await?),
            Self::Http2(stream) => poll_fn(|context| stream.poll_receive(context, into, most)).await,
        }
    }

    /// Does what [`receive`](Self::receive) does, for an end that holds no buffer
    /// ([`Connection::recv_chain_within_limit`]).
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn receive_within_limit(self, into: &mut Chain, most: usize) -> Result<bool, EndFailed> {
        match self {
            Self::Http1(connection) => Ok(connection.recv_chain_within_limit(into, most).await?),
            Self::Http2(stream) => poll_fn(|context| stream.poll_receive(context, into, most)).await,
        }
    }

    /// Returns true if the connection has ended without the peer's closing alert
    /// ([`Connection::is_truncated`]).
    pub(crate) fn is_truncated(self) -> bool {
        self.whole().is_some_and(Connection::is_truncated)
    }

    /// Sends all of `chain`, and with `end` the end of the message, if that is separate from the bytes.
    /// Records progress in `direction`.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn send(
        self,
        direction: &Direction,
        here: Here,
        chain: &mut Chain,
        end: bool,
    ) -> Result<(), EndFailed> {
        match self {
            Self::Http1(connection) => Ok(direction.send(here, connection, chain).await?),
            Self::Http2(stream) => {
                let bytes = chain.len() as u64;
                direction.waits(Waits::Receiver, here.now());
                stream.send(chain, end, || direction.took(0, here.now())).await?;
                direction.took(bytes, here.now());
                Ok(())
            }
        }
    }

    /// Waits until the kernel has taken everything that was sent.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn flush(self, direction: &Direction, here: Here) -> Result<(), EndFailed> {
        match self {
            Self::Http1(connection) => Ok(direction.flush(here, connection).await?),
            Self::Http2(_) => Ok(()), // a stream holds no such bytes
        }
    }

    /// Returns true if the receiver does not read: see [`Direction::is_stuck`].
    pub(crate) fn is_stuck(self, direction: &Direction, here: Here) -> bool {
        self.whole().is_some_and(|to| direction.is_stuck(here, to))
    }

    /// Ends the sending side.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn finish(self) -> Result<(), EndFailed> {
        match self {
            Self::Http1(connection) => Ok(connection.finish().await?),
            Self::Http2(stream) => stream.send(&mut Chain::new(), true, || ()).await,
        }
    }

    /// Waits until this end could take bytes. Returns how many bytes to read at once for it.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn room(self, direction: &Direction, here: Here) -> Result<usize, EndFailed> {
        match self {
            Self::Http1(_) => Ok(direction.room()),
            Self::Http2(stream) => {
                direction.waits(Waits::Receiver, here.now());
                stream.room().await
            }
        }
    }

    /// Returns the connection if it carries nothing else, so that its bytes can be spliced.
    pub(crate) fn whole(self) -> Option<&'a Connection> {
        match self {
            Self::Http1(connection) => Some(connection),
            Self::Http2(_) => None,
        }
    }

    /// Returns the stream, if this is one.
    pub(crate) fn h2(self) -> Option<&'a H2End> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(stream) => Some(stream),
        }
    }
}

/// A request could not be sent to a server.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// There is no memory for the request.
    Memory,
    /// The connection takes no more streams; a new one does.
    Refused,
    /// The server's version of HTTP cannot express the request.
    Invalid,
}

impl ServerEnd {
    /// Returns an end for a stream of `conn`; the stream begins with its request.
    pub(crate) fn stream_of(conn: h2::Conn) -> Self {
        Self::Http2(conn, OnceCell::new())
    }

    /// Returns the connection below this end, for its addresses and socket options.
    pub(crate) fn connection(&self) -> &Connection {
        match self {
            Self::Http1(connection) => connection,
            Self::Http2(conn, _) => conn.connection(),
        }
    }

    /// Returns true if this is a stream.
    pub(crate) fn is_h2(&self) -> bool {
        matches!(self, Self::Http2(..))
    }

    /// Returns this end as source or destination of a body; `None` for a stream whose head was not sent yet.
    pub(crate) fn body(&self) -> Option<BodyEnd<'_>> {
        match self {
            Self::Http1(connection) => Some(BodyEnd::Http1(connection)),
            Self::Http2(_, stream) => stream.get().map(|stream| BodyEnd::Http2(stream)),
        }
    }

    /// Sends the head of a request at once (HTTP/2), or appends it to `out`, so that it leaves with the body
    /// (HTTP/1). `end` says that no body follows. A stream asks for an upgrade's protocol by extended
    /// CONNECT. Returns the number of bytes sent.
    ///
    /// # Errors
    /// [`NotBegun`]
    pub(crate) fn send_head(
        &self,
        head: &mut Head,
        (scheme, upgrades): (&[u8], bool),
        spellings: Option<&CaseTable>,
        end: bool,
        out: &mut Chain,
    ) -> Result<u64, NotBegun> {
        match self {
            Self::Http1(_) => head.emit(out, spellings).map(|()| 0).map_err(|_| NotBegun::Memory),
            Self::Http2(conn, cell) => {
                let protocol = if upgrades { protocol(head) } else { None };
                let stream = conn.begin(head, scheme, protocol, end).map_err(|error| match error {
                    h2::SendError::NoMemory => NotBegun::Memory,
                    h2::SendError::Invalid(_) => NotBegun::Invalid,
                    _ => NotBegun::Refused,
                })?;
                let stream = H2End::new(conn.clone(), stream, h2::Scheme::None, false);
                let _ = cell.set(stream.map_err(|_| NotBegun::Memory)?); // the stream begins once
                Ok(head.size() as u64)
            }
        }
    }
}
