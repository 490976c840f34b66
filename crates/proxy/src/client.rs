//! Client side of a session.

use crate::flow::ClientEnd;
use manylane_buf::Chain;
use manylane_expr::Timestamp;
use manylane_http::{Head, List};
use manylane_io::{Io, SocketAddrAny, SocketId, socket};
use manylane_lanes::{Greeting, Peers};
use manylane_mux::h2;
use manylane_net::{Connection, Incoming, Packets, TlsStream};
use manylane_plan::clock::now;
use manylane_plan::generation::{DropMode, Server};
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
use std::time::Duration;

/// Most unread bytes of a client that are read and dropped before the connection closes, so that the client
/// sees an end of stream instead of a reset.
const SWALLOWED: usize = 1 << 16;

/// Source and destination of a client as another proxy or rules report them.
#[derive(Clone, Copy, Debug)]
struct ClientAddresses {
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

manylane_sync::lazy_static! {
    static GREETINGS: Pool<Greeting> = Pool::new("client \
        greeting").expect("the size is a constant below the bound");
}

manylane_sync::lazy_static! {
    static CLIENT_ADDRESSES: Pool<ClientAddresses> = Pool::new("client \
        addresses").expect("the size is a constant below the bound");
}

/// A client without a current request: the state that it needs for its next one, and no more.
#[derive(Debug)]
pub(crate) struct QuietClient {
    pub(crate) connection: Connection,
    addresses: Option<Pooled<ClientAddresses>>,
    link_source: Option<SocketAddr>,
    link_destination: OnceCell<Option<SocketAddr>>,
    greeting: Option<Pooled<Greeting>>,
    accepted: Timestamp,
}

/// Identity of a client whose connection has many streams.
#[derive(Debug)]
pub(crate) struct ClientOrigin {
    addresses: Option<ClientAddresses>,
    link_source: Option<SocketAddr>,
    link_destination: OnceCell<Option<SocketAddr>>,
    socket: Option<SocketId>,
    greeting: Option<Greeting>,
    accepted: Timestamp,
}

impl ClientOrigin {
    /// Returns the client's addresses as expressions see them outside of a stream.
    pub(crate) fn peers(&self, connection: &Connection) -> Peers {
        let addresses =
            |which: fn(&ClientAddresses) -> Option<SocketAddr>| self.addresses.as_ref().and_then(which);
        let link_destination = *self.link_destination.get_or_init(|| own_address(connection));
        Peers {
            source: addresses(|known| known.source).or(self.link_source),
            destination: addresses(|own| own.destination).or(link_destination),
            link_source: self.link_source,
            link_destination,
            socket: self.socket,
            proxied: self.greeting.is_some(),
            accepted: self.accepted,
            http2: true,
        }
    }

    /// Returns the PROXY header that the connection began with.
    pub(crate) fn greeting(&self) -> Option<&Greeting> {
        self.greeting.as_ref()
    }
}

/// Returns the local address of a connection. Costs a system call.
fn own_address(connection: &Connection) -> Option<SocketAddr> {
    let stream = connection.socket()?;
    socket::local_address(stream.as_fd()).ok().and_then(ip)
}

/// A client and its connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) end: ClientEnd,
    /// Source address of the client; `None` for connections without IP addresses.
    pub(crate) source: Option<SocketAddr>,
    /// Destination address that the proxy in front or a rule reports.
    destination: Option<SocketAddr>,
    /// Both addresses without those that rules of the current request set; `None` if they are the socket's.
    own: Option<Pooled<ClientAddresses>>,
    /// Addresses of the socket. The local one is read on its first use.
    link_source: Option<SocketAddr>,
    link_destination: OnceCell<Option<SocketAddr>>,
    socket: Option<SocketId>,
    /// The PROXY header that the connection began with.
    greeting: Option<Pooled<Greeting>>,
    accepted: Timestamp,
    /// Received bytes that are not consumed yet.
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
            destination: None,
            own: None,
            link_source: source,
            link_destination: OnceCell::new(),
            socket: None,
            greeting: None,
            accepted: now(),
            received: Chain::new(),
        }
    }

    /// Notes the identity of the socket, for samples of the kernel's numbers. Costs a system call.
    pub(crate) fn identify(&mut self) {
        self.socket = self.end.connection().socket().and_then(|stream| SocketId::of(stream.as_fd()));
    }

    /// Starts TLS on the client's connection. `None` if there is no memory.
    pub(crate) fn encrypt(self, context: &ServerContext, reader: &Reader) -> Option<Self> {
        let tls = manylane_tls::Connection::server(context, reader).ok()?;
        let ClientEnd::Http1(connection) = self.end else { return Some(self) };
        let connection = connection.encrypt(tls, self.received, None).ok()?;
        Some(Self { end: ClientEnd::Http1(connection), received: Chain::new(), ..self })
    }

    /// Returns true if the TLS handshake agreed on HTTP/2.
    pub(crate) fn has_agreed_on_h2(&self) -> bool {
        self.tls().is_some_and(|info| info.alpn.as_deref() == Some(b"h2"))
    }

    /// Returns the result of the TLS handshake, if there was one.
    pub(crate) fn tls(&self) -> Option<&Rc<Info>> {
        self.end.connection().tls()?.info()
    }

    /// Returns the time before the client could send a request: that of the PROXY header and of the TLS
    /// handshake.
    pub(crate) fn handshake(&self) -> Duration {
        let greeting = self.greeting().map_or(Duration::ZERO, |greeting| greeting.took);
        let tls = self.end.whole().and_then(Connection::tls);
        greeting + tls.map_or(Duration::ZERO, TlsStream::took)
    }

    /// Drops everything that belongs to a request; no received bytes may be left. `None` for a stream of
    /// HTTP/2.
    pub(crate) fn into_idle(self) -> Option<QuietClient> {
        debug_assert!(self.received.is_empty());
        let Self {
            end,
            source: _,
            destination: _,
            own,
            link_source,
            link_destination,
            socket: _, // `identify` asks the kernel again, so an idle client does not keep it
            greeting,
            accepted,
            received: _,
        } = self;
        let ClientEnd::Http1(connection) = end else { return None };
        Some(QuietClient { connection, addresses: own, link_source, link_destination, greeting, accepted })
    }

    /// Returns the client of an idle session, for its next request.
    pub(crate) fn wake(quiet: QuietClient) -> Self {
        let QuietClient { connection, addresses, link_source, link_destination, greeting, accepted } = quiet;
        let (source, destination) =
            addresses.as_deref().map_or((link_source, None), |known| (known.source, known.destination));
        let received = Chain::new();
        Self {
            end: ClientEnd::Http1(connection),
            source,
            destination,
            own: addresses,
            link_source,
            link_destination,
            socket: None,
            greeting,
            accepted,
            received,
        }
    }

    /// Returns the client `of` a connection, with one of its streams.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn with_stream(of: &ClientOrigin, end: ClientEnd) -> Result<Self, AllocError> {
        let ClientOrigin { addresses, link_source, link_destination, socket, greeting, accepted } = of;
        let own = addresses.map(|known| CLIENT_ADDRESSES.alloc(known)).transpose()?;
        let greeting = greeting.clone().map(|greeting| GREETINGS.alloc(greeting)).transpose()?;
        let (source, destination) =
            own.as_deref().map_or((*link_source, None), |own| (own.source, own.destination));
        Ok(Self {
            end,
            source,
            destination,
            own,
            link_source: *link_source,
            link_destination: link_destination.clone(),
            socket: *socket,
            greeting,
            accepted: *accepted,
            received: Chain::new(),
        })
    }

    /// Returns the connection, the received bytes, and the identity that all streams share. `None` for a
    /// stream.
    pub(crate) fn split(self) -> Option<(Connection, Chain, ClientOrigin)> {
        let Self { end, own, link_source, link_destination, socket, greeting, accepted, received, .. } = self;
        let ClientEnd::Http1(connection) = end else { return None };
        let addresses = own.map(Pooled::into_inner);
        let greeting = greeting.map(Pooled::into_inner);
        let origin = ClientOrigin { addresses, link_source, link_destination, socket, greeting, accepted };
        Some((connection, received, origin))
    }

    /// Returns the address that the client connected to. The first call costs a system call, unless the PROXY
    /// protocol reported the address.
    pub(crate) fn destination(&self) -> Option<SocketAddr> {
        self.destination.or_else(|| self.link_destination())
    }

    /// Returns those of the client's addresses that can differ between its requests: the source, and the
    /// destination that a rule or the proxy in front reports. Costs no system call.
    pub(crate) fn request_addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.source, self.destination)
    }

    fn link_destination(&self) -> Option<SocketAddr> {
        *self.link_destination.get_or_init(|| own_address(self.end.connection()))
    }

    /// Returns the client's addresses as expressions see them. The first call costs a system call.
    pub(crate) fn peers(&self) -> Peers {
        Peers {
            source: self.source,
            destination: self.destination(),
            link_source: self.link_source,
            link_destination: self.link_destination(),
            socket: self.socket,
            proxied: self.greeting.is_some(),
            accepted: self.accepted,
            http2: self.end.h2().is_some(),
        }
    }

    /// Sets the addresses that the proxy in front reports.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn is_between(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Result<(), AllocError> {
        self.set_addresses(Some(plain(source)), Some(plain(destination)))
    }

    /// Sets addresses for the rest of the connection. An address that is `None` stays as it is.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn set_addresses(
        &mut self,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) -> Result<(), AllocError> {
        self.is_said_to_be(source, destination);
        if source.is_some() || destination.is_some() {
            self.own = Some(
                CLIENT_ADDRESSES
                    .alloc(ClientAddresses { source: self.source, destination: self.destination })?,
            );
        }
        Ok(())
    }

    /// Replaces the socket's addresses by those that rules of the connection set. An address that is `None`
    /// stays as it is.
    pub(crate) fn is_linked(&mut self, source: Option<SocketAddr>, destination: Option<SocketAddr>) {
        if source.is_some() {
            (self.source, self.link_source) = (source, source);
        }
        if destination.is_some() {
            self.link_destination = OnceCell::from(destination);
        }
    }

    /// Sets addresses for the current request. An address that is `None` stays as it is.
    pub(crate) fn is_said_to_be(&mut self, source: Option<SocketAddr>, destination: Option<SocketAddr>) {
        self.source = source.or(self.source);
        self.destination = destination.or(self.destination);
    }

    /// Restores the addresses of the connection before the next request.
    pub(crate) fn is_itself(&mut self) {
        (self.source, self.destination) =
            self.own.as_deref().map_or((self.link_source, None), |own| (own.source, own.destination));
    }

    /// Sets the time of acceptance that the log shows for a further request of the connection: `idle` before
    /// `date`, when the request before it ended.
    pub(crate) fn is_new_since(&mut self, date: Timestamp, idle: Duration) {
        let idle = i64::try_from(idle.as_micros()).unwrap_or(i64::MAX);
        let micros =
            date.seconds.saturating_mul(1_000_000).saturating_add(date.micros.into()).saturating_sub(idle);
        let micros_of_second = micros.rem_euclid(1_000_000).unsigned_abs() as u32; // below a million
        self.accepted = Timestamp { seconds: micros.div_euclid(1_000_000), micros: micros_of_second };
    }

    /// Marks packets that are sent to the client from now on.
    pub(crate) fn mark(&self, packets: Packets) {
        if packets != Packets::default()
            && let Some(stream) = self.end.connection().socket()
        {
            packets.mark(stream.as_fd());
        }
    }

    /// Ends the connection without notifying the client, which keeps waiting. Without the privilege for that,
    /// the client's network gets a reset that no router forwards.
    pub(crate) fn vanish(&self, silence: DropMode) {
        if let Some(stream) = self.end.connection().socket() {
            // If the system refuses, the socket closes as usual.
            let _ = match silence {
                DropMode::Full => manylane_io::options::set_silent_close(stream.as_fd()),
                DropMode::ResetWithin(hops) => manylane_io::options::set_reset_within(stream.as_fd(), hops),
            };
        }
        if let Some(stream) = self.end.h2() {
            stream.conn().abort(h2::Reason::CANCEL);
        }
    }

    /// Reads and drops the bytes that the client has sent, up to [`SWALLOWED`], before the connection closes:
    /// closing a socket with unread bytes sends a reset. A connection of HTTP/2 ends with all its streams.
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

    /// Makes the closing of the connection send a reset: the client learns that its data was ignored or that
    /// the response is incomplete. A stream is reset at once.
    pub(crate) fn reset_on_close(&self) {
        match &self.end {
            ClientEnd::Http1(connection) => connection.reset_on_close(),
            ClientEnd::Http2(stream) => stream.reset(h2::Reason::INTERNAL_ERROR),
        }
    }

    /// Returns the source address that `server` may see for this client (`usesrc`). It is 0.0.0.0 if the
    /// configured field has no address.
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

    /// Stores the fields of the PROXY header.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn was_greeted(&mut self, greeting: Greeting) -> Result<(), AllocError> {
        self.greeting = Some(GREETINGS.alloc(greeting)?);
        Ok(())
    }

    /// Returns the fields of the PROXY header, if one arrived.
    pub(crate) fn greeting(&self) -> Option<&Greeting> {
        self.greeting.as_deref()
    }

    /// Returns the client's network namespace, if `server` is to be reached from it.
    pub(crate) fn namespace_for(&self, server: &Server) -> Option<&Arc<str>> {
        self.greeting()?.namespace.as_ref().filter(|_| server.namespace_of_client)
    }

    /// Returns the address that replaces the open parts (host or port) of the server's address.
    pub(crate) fn destination_of(&self, server: &Server) -> SocketAddr {
        // The system call is only worth it if the server's address has open parts.
        let destination = if server.addr.is_of_client() { self.destination() } else { None };
        destination.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
    }
}

fn ip(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok().map(plain)
}

/// Turns an IPv4-mapped IPv6 address into the IPv4 address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
