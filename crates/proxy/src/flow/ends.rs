//! The two ends of an exchange: where messages come from and go to, whatever the version of HTTP.
//!
//! Nothing above asks which version an end speaks, but the source and the sink of a body (`http::pump`) and
//! what is only done with a connection of HTTP/1: splicing, tunnels, waiting at rest.

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
    /// Its connection, with one request at a time.
    Http1(Connection),
    /// One of the streams of its connection.
    Http2(Pooled<H2End>),
}

/// The server's end, for one request.
#[derive(Debug)]
pub(crate) enum ServerEnd {
    /// A connection that this request has for itself.
    Http1(Connection),
    /// A stream of a connection that requests share, once it has begun.
    Http2(h2::Conn, OnceCell<Pooled<H2End>>),
}

/// The protocol that an extended CONNECT asks for: the first of those that the request offers.
pub(crate) fn protocol(request: &Head) -> Option<&[u8]> {
    List::new(request.value(Known::UPGRADE)?).next()
}

/// One end of a body's way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyEnd<'a> {
    /// A connection, whose bytes are framed.
    Http1(&'a Connection),
    /// A stream, which has data and an end.
    Http2(&'a H2End),
}

/// A stream of HTTP/2, as both ways of an exchange use it at a time.
#[derive(Debug)]
pub(crate) struct H2End {
    conn: h2::Conn,
    /// That of the request.
    scheme: h2::Scheme,
    stream: h2::Stream,
    /// Bytes that were taken and have not gone on.
    taken: Cell<usize>,
    /// The message that comes is over.
    over: Cell<bool>,
    trailers: RefCell<Option<Head>>,
}

manylane_sync::lazy_static! {
    static STREAMS: Pool<H2End> =
        Pool::new("h2 stream").expect("the size is a constant below the bound");
}

/// An end has failed: its connection, or its stream.
#[derive(Debug, Default)]
pub(crate) struct EndFailed {
    /// For want of memory on this side: the peer has done nothing wrong.
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
        Self { is_memory: matches!(error, h2::StreamError::Memory) }
    }
}

/// A head could not be sent.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// There is no memory for it.
    Memory,
    /// The end has failed.
    Failed,
}

/// Bytes that are asked of a stream at least, where the receiver has not taken as many at once lately: a
/// frame of the usual size.
const LEAST: usize = 16_384;

impl H2End {
    /// `over`: the message has nothing but its head.
    ///
    /// # Errors
    /// No memory.
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

    /// Its number on its connection.
    pub(crate) fn id(&self) -> u32 {
        self.stream.id()
    }

    /// The code with which the peer has reset it, if it has.
    pub(crate) fn peer_reset(&self) -> Option<u32> {
        self.stream.peer_reset().map(h2::Reason::code)
    }

    /// Whether it can go on no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }

    /// The connection that it is a stream of.
    pub(crate) fn conn(&self) -> &h2::Conn {
        &self.conn
    }

    /// The scheme of the request.
    pub(crate) fn scheme(&self) -> &[u8] {
        self.scheme.as_bytes()
    }

    /// Receives data behind what `into` has; false when the message is [over](Self::over).
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
                // So the end goes on with the last of the data.
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

    /// Whether all of the message was received: then its trailers, once, if it has any.
    pub(crate) fn over(&self) -> Option<Option<Head>> {
        self.over.get().then(|| self.trailers.take())
    }

    /// Whether it is.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// What was received has gone on, or is not wanted: as much may come.
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

    /// Receives what is there without waiting.
    pub(crate) async fn receive_now(&self, into: &mut Chain) {
        poll_fn(|context| {
            while let Poll::Ready(Ok(true)) = self.poll_receive(context, into, LEAST) {}
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until it can go on no more.
    pub(crate) fn poll_gone(&self, context: &Context<'_>) -> Poll<()> {
        self.stream.poll_gone(context).map(drop)
    }

    /// Ends it at once.
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

    /// Sends trailers, and the end of the message with them.
    pub(crate) fn send_trailers(&self, trailers: &Head) -> Result<(), EndFailed> {
        Ok(self.stream.send_trailers(trailers)?)
    }

    /// Sends all of `data`, and the end of the message behind it where it is `end`. `took` is told when some
    /// of it has gone while the rest waits.
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

    /// Waits until data could be sent: how many bytes.
    async fn room(&self) -> Result<usize, EndFailed> {
        Ok(poll_fn(|context| self.stream.poll_room(context)).await?)
    }
}

impl ClientEnd {
    /// The connection that carries it, for what is known of that: addresses, options of its socket. What is
    /// received and sent of messages goes by the other methods.
    pub(crate) fn connection(&self) -> &Connection {
        match self {
            Self::Http1(connection) => connection,
            Self::Http2(stream) => stream.conn.connection(),
        }
    }

    /// The connection where it carries nothing else, and bytes of it may be taken and sent as they are.
    pub(crate) fn whole(&self) -> Option<&Connection> {
        self.body().whole()
    }

    /// The stream, where it is one.
    pub(crate) fn h2(&self) -> Option<&H2End> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(stream) => Some(stream),
        }
    }

    /// Where a body comes from, or goes to.
    pub(crate) fn body(&self) -> BodyEnd<'_> {
        match self {
            Self::Http1(connection) => BodyEnd::Http1(connection),
            Self::Http2(stream) => BodyEnd::Http2(stream),
        }
    }

    /// Sends the head of an interim response, which `way` is told of: how many bytes it has.
    ///
    /// # Errors
    /// [`NotSent`]
    pub(crate) async fn send_interim(
        &self,
        way: &Direction,
        here: Here,
        head: &mut Head,
    ) -> Result<u64, NotSent> {
        match self {
            Self::Http1(connection) => {
                let mut out = Chain::new();
                head.emit(&mut out, None).map_err(|_| NotSent::Memory)?;
                let length = out.len() as u64;
                way.send(here, connection, &mut out).await.map_err(|_| NotSent::Failed)?;
                Ok(length)
            }
            Self::Http2(stream) => {
                // Windows do not bound heads, and a server may send interim responses without end.
                self.body().room(way, here).await.map_err(|_| NotSent::Failed)?;
                stream.send_interim(head).map(|()| head.size() as u64)
            }
        }
    }

    /// Sends the head of the final response, behind which nothing comes if it is the `end`; or puts it behind
    /// `out`, so that it leaves with the body. How many bytes were sent.
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
    /// Receives what is there of a message behind what `into` has, up to about `most` bytes; false where
    /// nothing more will come: the connection has ended, or the message.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn receive(self, into: &mut Chain, most: usize) -> Result<bool, EndFailed> {
        match self {
            Self::Http1(connection) => Ok(connection.recv_chain(into, most).await?),
            Self::Http2(stream) => poll_fn(|context| stream.poll_receive(context, into, most)).await,
        }
    }

    /// Whether the connection has ended in a way that its peer may not know of
    /// ([`Connection::is_truncated`]).
    pub(crate) fn is_truncated(self) -> bool {
        self.whole().is_some_and(Connection::is_truncated)
    }

    /// Sends all of `chain`, and the end of the message with it where it is `end` and that is told apart.
    /// `way` is told of it.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn send(
        self,
        way: &Direction,
        here: Here,
        chain: &mut Chain,
        end: bool,
    ) -> Result<(), EndFailed> {
        match self {
            Self::Http1(connection) => Ok(way.send(here, connection, chain).await?),
            Self::Http2(stream) => {
                let bytes = chain.len() as u64;
                way.waits(Waits::Receiver, here.now());
                stream.send(chain, end, || way.took(0, here.now())).await?;
                way.took(bytes, here.now());
                Ok(())
            }
        }
    }

    /// How many bytes are worth being read at once for it. Waits until it could take some.
    ///
    /// # Errors
    /// [`EndFailed`]
    pub(crate) async fn room(self, way: &Direction, here: Here) -> Result<usize, EndFailed> {
        match self {
            Self::Http1(_) => Ok(way.room()),
            Self::Http2(stream) => {
                way.waits(Waits::Receiver, here.now());
                stream.room().await
            }
        }
    }

    /// The connection, where it carries nothing else and its bytes may be spliced.
    pub(crate) fn whole(self) -> Option<&'a Connection> {
        match self {
            Self::Http1(connection) => Some(connection),
            Self::Http2(_) => None,
        }
    }

    /// The stream, where it is one.
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
    /// There is no memory for it.
    Memory,
    /// The connection takes no streams any more: another one does.
    Refused,
    /// The request cannot be said in the server's version of HTTP.
    Invalid,
}

impl ServerEnd {
    /// A stream of `conn`, which begins with its request.
    pub(crate) fn stream_of(conn: h2::Conn) -> Self {
        Self::Http2(conn, OnceCell::new())
    }

    /// The connection that carries it, for what is known of that.
    pub(crate) fn connection(&self) -> &Connection {
        match self {
            Self::Http1(connection) => connection,
            Self::Http2(conn, _) => conn.connection(),
        }
    }

    /// Whether it is a stream.
    pub(crate) fn is_h2(&self) -> bool {
        matches!(self, Self::Http2(..))
    }

    /// Where a body comes from, or goes to. None of a stream before its head was sent.
    pub(crate) fn body(&self) -> Option<BodyEnd<'_>> {
        match self {
            Self::Http1(connection) => Some(BodyEnd::Http1(connection)),
            Self::Http2(_, stream) => stream.get().map(|stream| BodyEnd::Http2(stream)),
        }
    }

    /// Sends the head of a request, behind which nothing comes if it is the `end`; or puts it behind `out`,
    /// so that it leaves with the body. A stream asks for the protocol of an upgrade by extended CONNECT. How
    /// many bytes were sent.
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
            Self::Http2(conn, place) => {
                let protocol = if upgrades { protocol(head) } else { None };
                let stream = conn.begin(head, scheme, protocol, end).map_err(|error| match error {
                    h2::SendError::NoMemory => NotBegun::Memory,
                    h2::SendError::Invalid(_) => NotBegun::Invalid,
                    _ => NotBegun::Refused,
                })?;
                let stream = H2End::new(conn.clone(), stream, h2::Scheme::None, false);
                let _ = place.set(stream.map_err(|_| NotBegun::Memory)?); // it is begun once
                Ok(head.size() as u64)
            }
        }
    }
}
