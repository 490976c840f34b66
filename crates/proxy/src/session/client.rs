//! The client's side of a session.

use crate::flow::ClientEnd;
use crate::generation::{Server, Silence};
use manylane_buf::Chain;
use manylane_expr::Timestamp;
use manylane_http::{Head, List};
use manylane_io::{Io, SocketAddrAny, socket};
use manylane_mux::h2;
use manylane_net::{Connection, Incoming, Packets, TlsStream};
use manylane_pool::{AllocError, Pool, Pooled};
use manylane_sync::qsbr::Reader;
use manylane_tls::{Info, ServerContext};
use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a client that nobody will read are taken up to here, so that it sees an end and no reset.
const SWALLOWED: usize = 1 << 16;

/// Between whom a client's connection is, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peers {
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    /// Without what the PROXY protocol told.
    pub(crate) link_source: Option<SocketAddr>,
    pub(crate) link_destination: Option<SocketAddr>,
    /// A header of the PROXY protocol came first.
    pub(crate) proxied: bool,
    pub(crate) accepted: Timestamp,
    /// It speaks HTTP/2, if it speaks HTTP.
    pub(crate) http2: bool,
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: wall.as_secs().cast_signed(), micros: wall.subsec_micros() }
}

/// Who a client is, and whom it connected to, where that was told by another proxy or by rules.
#[derive(Clone, Copy, Debug)]
struct ClientAddresses {
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

/// What a header of the PROXY protocol told beside addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting {
    /// The host name that the client asked for.
    pub(crate) authority: Option<Box<[u8]>>,
    /// An identifier of the connection.
    pub(crate) unique_id: Option<Box<[u8]>>,
    /// The network namespace, if the configuration names it, too.
    pub(crate) namespace: Option<Arc<str>>,
    /// How long it was waited for.
    pub(crate) took: Duration,
}

manylane_sync::lazy_static! {
    static GREETINGS: Pool<Greeting> = Pool::new("client \
        greeting").expect("the size is a constant below the bound");
}

manylane_sync::lazy_static! {
    static CLIENT_ADDRESSES: Pool<ClientAddresses> = Pool::new("client \
        addresses").expect("the size is a constant below the bound");
}

/// A client that asks for nothing at the moment: what has to be there when it does, and no more.
#[derive(Debug)]
pub(crate) struct QuietClient {
    pub(crate) connection: Connection,
    told: Option<Pooled<ClientAddresses>>,
    link_source: Option<SocketAddr>,
    link_destination: OnceCell<Option<SocketAddr>>,
    greeting: Option<Pooled<Greeting>>,
    accepted: Timestamp,
}

/// Who a client is whose connection has many streams.
#[derive(Debug)]
pub(crate) struct ClientOrigin {
    told: Option<ClientAddresses>,
    link_source: Option<SocketAddr>,
    link_destination: OnceCell<Option<SocketAddr>>,
    greeting: Option<Greeting>,
    accepted: Timestamp,
}

impl ClientOrigin {
    /// What expressions see of it where there is no stream.
    pub(crate) fn peers(&self, connection: &Connection) -> Peers {
        let told = |which: fn(&ClientAddresses) -> Option<SocketAddr>| self.told.as_ref().and_then(which);
        let link_destination = *self.link_destination.get_or_init(|| own_address(connection));
        Peers {
            source: told(|told| told.source).or(self.link_source),
            destination: told(|told| told.destination).or(link_destination),
            link_source: self.link_source,
            link_destination,
            proxied: self.greeting.is_some(),
            accepted: self.accepted,
            http2: true,
        }
    }

    /// The header of the PROXY protocol that came first.
    pub(crate) fn greeting(&self) -> Option<&Greeting> {
        self.greeting.as_ref()
    }
}

/// The address of our end of a connection: a system call.
fn own_address(connection: &Connection) -> Option<SocketAddr> {
    let stream = connection.socket()?;
    socket::local_address(stream.as_fd()).ok().and_then(ip)
}

/// A client and its connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) end: ClientEnd,
    /// Who it is; none for connections that have no IP address.
    pub(crate) source: Option<SocketAddr>,
    /// Whom it connected to, as the proxy before this one tells.
    told: Option<SocketAddr>,
    /// Both without what rules of the request at work say; none: as the connection says.
    own: Option<Pooled<ClientAddresses>>,
    /// The connection's own ends; ours is asked for when somebody wants to know.
    link_source: Option<SocketAddr>,
    link_destination: OnceCell<Option<SocketAddr>>,
    /// The header of the PROXY protocol that came first.
    greeting: Option<Pooled<Greeting>>,
    accepted: Timestamp,
    /// Bytes that were received and belong to what follows.
    pub(crate) received: Chain,
}

impl Client {
    pub(crate) fn new(incoming: Incoming, io: &Io) -> Self {
        let source = match &incoming {
            Incoming::Socket(accepted) => accepted.peer().ok().flatten().and_then(ip),
            Incoming::Local(_) => None,
        };
        Self {
            end: ClientEnd::Http1(incoming.into_connection(io)),
            source,
            told: None,
            own: None,
            link_source: source,
            link_destination: OnceCell::new(),
            greeting: None,
            accepted: now(),
            received: Chain::new(),
        }
    }

    /// The same client, with TLS over its connection. None: there is no memory for that.
    pub(crate) fn encrypt(self, context: &ServerContext, reader: &Reader) -> Option<Self> {
        let tls = manylane_tls::Connection::server(context, reader).ok()?;
        let ClientEnd::Http1(connection) = self.end else { return Some(self) };
        let connection = connection.encrypt(tls, self.received).ok()?;
        Some(Self { end: ClientEnd::Http1(connection), received: Chain::new(), ..self })
    }

    /// Whether TLS has agreed on HTTP/2.
    pub(crate) fn has_agreed_on_h2(&self) -> bool {
        self.tls().is_some_and(|info| info.alpn.as_deref() == Some(b"h2"))
    }

    /// What TLS has agreed on, if it is spoken.
    pub(crate) fn tls(&self) -> Option<&Rc<Info>> {
        self.end.connection().tls()?.info()
    }

    /// How long it took until it could ask for something: another proxy's word, and the handshake of TLS.
    pub(crate) fn handshake(&self) -> Duration {
        let greeting = self.greeting().map_or(Duration::ZERO, |greeting| greeting.took);
        let tls = self.end.whole().and_then(Connection::tls);
        greeting + tls.map_or(Duration::ZERO, TlsStream::took)
    }

    /// Goes on without what belongs to a request, of which nothing may be left. None: it is a stream.
    pub(crate) fn into_idle(self) -> Option<QuietClient> {
        debug_assert!(self.received.is_empty());
        let Self {
            end,
            source: _,
            told: _,
            own,
            link_source,
            link_destination,
            greeting,
            accepted,
            received: _,
        } = self;
        let ClientEnd::Http1(connection) = end else { return None };
        Some(QuietClient { connection, told: own, link_source, link_destination, greeting, accepted })
    }

    /// It asks for something again.
    pub(crate) fn wake(quiet: QuietClient) -> Self {
        let QuietClient { connection, told, link_source, link_destination, greeting, accepted } = quiet;
        let (source, destination) =
            told.as_deref().map_or((link_source, None), |told| (told.source, told.destination));
        let received = Chain::new();
        Self {
            end: ClientEnd::Http1(connection),
            source,
            told: destination,
            own: told,
            link_source,
            link_destination,
            greeting,
            accepted,
            received,
        }
    }

    /// The same client as `of`, with one of the streams of its connection.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn with_stream(of: &ClientOrigin, end: ClientEnd) -> Result<Self, AllocError> {
        let ClientOrigin { told, link_source, link_destination, greeting, accepted } = of;
        let own = told.map(|told| CLIENT_ADDRESSES.alloc(told)).transpose()?;
        let greeting = greeting.clone().map(|greeting| GREETINGS.alloc(greeting)).transpose()?;
        let (source, told) = own.as_deref().map_or((*link_source, None), |own| (own.source, own.destination));
        Ok(Self {
            end,
            source,
            told,
            own,
            link_source: *link_source,
            link_destination: link_destination.clone(),
            greeting,
            accepted: *accepted,
            received: Chain::new(),
        })
    }

    /// Its connection, what came, and what all streams have of it. None: it is a stream.
    pub(crate) fn split(self) -> Option<(Connection, Chain, ClientOrigin)> {
        let Self { end, own, link_source, link_destination, greeting, accepted, received, .. } = self;
        let ClientEnd::Http1(connection) = end else { return None };
        let told = own.map(Pooled::into_inner);
        let greeting = greeting.map(Pooled::into_inner);
        Some((connection, received, ClientOrigin { told, link_source, link_destination, greeting, accepted }))
    }

    /// Whom it connected to. The first call costs a system call, unless the PROXY protocol told it.
    pub(crate) fn destination(&self) -> Option<SocketAddr> {
        self.told.or_else(|| self.link_destination())
    }

    fn link_destination(&self) -> Option<SocketAddr> {
        *self.link_destination.get_or_init(|| own_address(self.end.connection()))
    }

    /// What expressions see of it. The first call costs a system call.
    pub(crate) fn peers(&self) -> Peers {
        Peers {
            source: self.source,
            destination: self.destination(),
            link_source: self.link_source,
            link_destination: self.link_destination(),
            proxied: self.greeting.is_some(),
            accepted: self.accepted,
            http2: self.end.h2().is_some(),
        }
    }

    /// Between whom the connection is, as the proxy before this one tells.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn is_between(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Result<(), AllocError> {
        self.is_told(Some(plain(source)), Some(plain(destination)))
    }

    /// Rules say who it is, as long as it is there.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn is_told(
        &mut self,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) -> Result<(), AllocError> {
        self.is_said_to_be(source, destination);
        if source.is_some() || destination.is_some() {
            self.own = Some(
                CLIENT_ADDRESSES.alloc(ClientAddresses { source: self.source, destination: self.told })?,
            );
        }
        Ok(())
    }

    /// Rules of the connection say between whom it is, as if the system had: addresses that are `None` stay.
    pub(crate) fn is_linked(&mut self, source: Option<SocketAddr>, destination: Option<SocketAddr>) {
        if source.is_some() {
            (self.source, self.link_source) = (source, source);
        }
        if destination.is_some() {
            self.link_destination = OnceCell::from(destination);
        }
    }

    /// Rules say who it is, for the request at work: addresses that are `None` stay.
    pub(crate) fn is_said_to_be(&mut self, source: Option<SocketAddr>, destination: Option<SocketAddr>) {
        self.source = source.or(self.source);
        self.told = destination.or(self.told);
    }

    /// The next request begins: it is who it was.
    pub(crate) fn is_itself(&mut self) {
        (self.source, self.told) =
            self.own.as_deref().map_or((self.link_source, None), |own| (own.source, own.destination));
    }

    /// For the log, a connection that serves one more request was accepted when the one before had ended:
    /// that long before `date`.
    pub(crate) fn is_new_since(&mut self, date: Timestamp, idle: Duration) {
        let idle = i64::try_from(idle.as_micros()).unwrap_or(i64::MAX);
        let micros =
            date.seconds.saturating_mul(1_000_000).saturating_add(date.micros.into()).saturating_sub(idle);
        let micros_of_second = micros.rem_euclid(1_000_000).unsigned_abs() as u32; // below a million
        self.accepted = Timestamp { seconds: micros.div_euclid(1_000_000), micros: micros_of_second };
    }

    /// Marks what is sent to it from here on.
    pub(crate) fn mark(&self, packets: Packets) {
        if packets != Packets::default()
            && let Some(stream) = self.end.connection().socket()
        {
            packets.mark(stream.as_fd());
        }
    }

    /// The connection is over, and the client is not told: it goes on waiting. Without the privilege for that
    /// it gets a reset that no router passes on.
    pub(crate) fn vanish(&self, silence: Silence) {
        if let Some(stream) = self.end.connection().socket() {
            // What the system refuses is closed as usual.
            let _ = match silence {
                Silence::Full => manylane_io::options::set_silent_close(stream.as_fd()),
                Silence::ResetWithin(hops) => manylane_io::options::set_reset_within(stream.as_fd(), hops),
            };
        }
        if let Some(stream) = self.end.h2() {
            stream.conn().abort(h2::Reason::CANCEL);
        }
    }

    /// The connection is closed: takes what the client has sent already, at most [`SWALLOWED`] bytes, since
    /// closing with bytes unread would be a reset. One of HTTP/2 ends with all its streams.
    pub(crate) fn swallow(&self) {
        let connection = match &self.end {
            ClientEnd::Http1(connection) => connection,
            ClientEnd::Http2(stream) => return stream.conn().abort(h2::Reason::ENHANCE_YOUR_CALM),
        };
        let mut read = 0;
        let mut context = Context::from_waker(Waker::noop());
        while read < SWALLOWED {
            let receiving = pin!(connection.recv());
            match receiving.poll(&mut context) {
                Poll::Ready(Ok(Some(segment))) => read += segment.len(),
                _ => return,
            }
        }
    }

    /// Closing the connection resets it: the client learns that nobody cared for what it sent, or that what
    /// it got is not all. A stream is reset at once.
    pub(crate) fn reset_on_close(&self) {
        match &self.end {
            ClientEnd::Http1(connection) => connection.reset_on_close(),
            ClientEnd::Http2(stream) => stream.reset(h2::Reason::INTERNAL_ERROR),
        }
    }

    /// Whom a server may be shown as its client, where `usesrc` asks for one. No address where the field has
    /// none.
    pub(crate) fn source_for(&self, server: &Server, head: Option<&Head>) -> Option<SocketAddr> {
        let Some((name, occurrence)) = &server.source_field else { return self.source };
        let values = || head.into_iter().flat_map(|head| head.values(&**name)).flat_map(List::new);
        let nth = match *occurrence {
            n if n > 0 => (n - 1).unsigned_abs() as usize,
            n => {
                let back = n.unsigned_abs() as usize;
                values().count().checked_sub(back).unwrap_or(usize::MAX)
            }
        };
        let address =
            values().nth(nth).and_then(|value| std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok());
        Some(SocketAddr::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), 0))
    }

    /// The header of the PROXY protocol that came first told this.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn was_greeted(&mut self, greeting: Greeting) -> Result<(), AllocError> {
        self.greeting = Some(GREETINGS.alloc(greeting)?);
        Ok(())
    }

    /// What the header of the PROXY protocol told beside addresses, if one came.
    pub(crate) fn greeting(&self) -> Option<&Greeting> {
        self.greeting.as_deref()
    }

    /// The network namespace to reach `server` from, where that is the client's.
    pub(crate) fn namespace_for(&self, server: &Server) -> Option<&Arc<str>> {
        self.greeting()?.namespace.as_ref().filter(|_| server.namespace_of_client)
    }

    /// What takes the place of the server's host or port, where its address leaves one open.
    pub(crate) fn destination_of(&self, server: &Server) -> SocketAddr {
        // not worth a system call
        let asked = if server.addr.is_of_client() { self.destination() } else { None };
        asked.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
    }
}

fn ip(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok().map(plain)
}

/// An IPv4 client of an IPv6 socket is an IPv4 client.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
