//! Connections to servers.

use crate::apply::{Options, SERVERS};
use crate::connection::{Connection, LocalStream};
use crate::endpoint::Endpoint;
use crate::error::{Purpose, Refused, SocketError, Step};
use crate::listen;
use crate::options::{ConnectOptions, Packets, Source, UseSource};
use crate::socks4;
use manylane_io::options::{SignedPeers, SocketOption};
use manylane_io::passing::send_descriptor;
use manylane_io::socket::{self, AddressFamily, Shape, SocketAddrAny};
use manylane_io::{Errno, Error, Io, Stream};
use manylane_local::{Kind, Name, Socket};
use manylane_sched::Time;
use manylane_sync::lane;
use std::cell::Cell;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// Number of ports of a range that one connection tries. If so many in a row are in use, the range is too
/// small.
pub const PORTS_TRIED: u32 = 16;

/// The connection's purpose: the client and the first bytes that it is made for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnPurpose<'a> {
    /// Address of the client, for `usesrc client` and `clientip`.
    pub client: Option<SocketAddr>,
    /// True if bytes wait to be sent as soon as the connection is established.
    pub speaks_first: bool,
    /// Marks of its packets, from the first on, where the system allows it.
    pub packets: Packets,
    /// Network namespace to connect from, in place of the one in the options.
    pub namespace: Option<&'a str>,
    /// `socks4`: address of the proxy that connects to the server.
    pub via: Option<SocketAddr>,
}

/// Connects again and again with the same options, on one lane.
#[derive(Debug)]
pub struct Connector {
    options: ConnectOptions,
    /// Position in the range of source ports for the next connection. Lanes start at different positions and
    /// share nothing: if another lane uses a port, the system refuses it and the next is tried.
    next_port: Cell<u16>,
}

impl Connector {
    /// Creates a connector with `options` for the calling lane.
    pub fn new(options: ConnectOptions) -> Self {
        // Steps of 61.8 % of the range keep lanes apart, however many there are.
        let start = (lane::current().index() as u32).wrapping_mul(40_503) as u16;
        Self { options, next_port: Cell::new(start) }
    }

    /// Connects to `to`, until `deadline` if there is one. `client` is the address of the client, for
    /// `usesrc client` and `clientip`.
    ///
    /// If the future is dropped earlier, the socket is closed and the attempt is over.
    ///
    /// # Errors
    /// [`SocketError`] with the address, the refused option, and the system's error; after the deadline with
    /// [`Step::Time`].
    pub async fn connect(
        &self,
        io: &Io,
        to: &Endpoint,
        client: Option<SocketAddr>,
        deadline: Option<Time>,
    ) -> Result<Connection, SocketError> {
        self.connect_for(io, to, ConnPurpose { client, ..ConnPurpose::default() }, deadline).await
    }

    /// Does what [`connect`](Self::connect) does, for the purpose in `served`.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn connect_for(
        &self,
        io: &Io,
        to: &Endpoint,
        served: ConnPurpose<'_>,
        deadline: Option<Time>,
    ) -> Result<Connection, SocketError> {
        let outcome = match served.via {
            None => within(io, deadline, self.attempts(io, to, served)).await,
            Some(proxy) => within(io, deadline, Box::pin(self.through(io, proxy, to, served))).await,
        };
        outcome.map_err(|refused| SocketError::new(Purpose::Connect, to, refused))
    }

    /// Returns whether the connector's sockets have no special options. Plain connectors can use each other's
    /// disconnected sockets.
    pub fn is_plain(&self) -> bool {
        self.options == ConnectOptions { late_ack: self.options.late_ack, ..ConnectOptions::default() }
    }

    /// Does what [`connect_for`](Self::connect_for) does, with the socket of an earlier connection. A
    /// [plain](Self::is_plain) connector has made that connection to the same family of addresses, and it was
    /// [disconnected](Stream::disconnect).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn connect_again(
        &self,
        io: &Io,
        stream: Stream,
        to: &Endpoint,
        served: ConnPurpose<'_>,
        deadline: Option<Time>,
    ) -> Result<Connection, SocketError> {
        let attempt = async {
            let Some((family, address)) = to.system()? else {
                return Err((
                    Step::Unsupported("only sockets of the system are connected again"),
                    Errno::OPNOTSUPP,
                ));
            };
            served.packets.mark(stream.as_fd());
            // an option of one connection, not of the socket
            self.late_ack(&Options { socket: stream.as_fd(), family }, &served)?;
            stream.connect_again(address).await.map_err(|error| (Step::Connect, errno(error)))?;
            Ok(Connection::Socket(stream))
        };
        within(io, deadline, attempt).await.map_err(|refused| SocketError::new(Purpose::Connect, to, refused))
    }

    /// Connects to a SOCKS4 proxy and has it connect to `to`.
    async fn through(
        &self,
        io: &Io,
        proxy: SocketAddr,
        to: &Endpoint,
        served: ConnPurpose<'_>,
    ) -> Result<Connection, Refused> {
        let to = socks4::target(to)?;
        let connection = self.attempts(io, &Endpoint::Ip(proxy), served).await?;
        if let Connection::Socket(stream) = &connection {
            socks4::ask(stream, to).await?;
        }
        Ok(connection)
    }

    async fn attempts(&self, io: &Io, to: &Endpoint, served: ConnPurpose<'_>) -> Result<Connection, Refused> {
        let (family, address) = match (to, to.system()?) {
            (_, Some(system)) => system,
            (Endpoint::SocketPair(number), None) => return pass(io, *number),
            (Endpoint::Local(name), None) => return local(name),
            (_, None) => {
                let why = "sockets of this kind cannot be connected to in this way";
                return Err((Step::Unsupported(why), Errno::OPNOTSUPP));
            }
        };
        let mut left = match &self.options.source {
            Some(Source { ports: Some(ports), present: None, .. }) if family != AddressFamily::UNIX => {
                u32::from(ports.end().saturating_sub(*ports.start())).saturating_add(1).min(PORTS_TRIED)
            }
            _ => 1,
        };
        loop {
            left -= 1;
            let attempt = async {
                let socket = self.socket(family, &served)?;
                if let (Some(key), Endpoint::Ip(peer)) = (&self.options.common.signature, to) {
                    Options { socket: socket.as_fd(), family }.sign(SignedPeers::Peer(*peer), key)?;
                }
                served.packets.mark(socket.as_fd());
                let is_tcp = family != AddressFamily::UNIX;
                let connected = io.connect_made(socket, is_tcp, address.clone()).await;
                connected.map(Connection::Socket).map_err(|error| (Step::Connect, errno(error)))
            };
            match attempt.await {
                // Another connection has the port: as its own address, or towards this destination.
                Err((Step::Source, Errno::ADDRINUSE) | (Step::Connect, Errno::ADDRNOTAVAIL)) if left > 0 => {}
                // With the port bound, the source address is wrong.
                Err((Step::Connect, errno @ Errno::ADDRNOTAVAIL)) if self.options.source.is_some() => {
                    return Err((Step::Source, errno));
                }
                outcome => return outcome,
            }
        }
    }

    /// Creates a socket with all options, not connected yet.
    fn socket(&self, family: AddressFamily, served: &ConnPurpose<'_>) -> Result<OwnedFd, Refused> {
        let options = &self.options;
        let namespace = served.namespace.or(options.namespace.as_deref());
        let socket = listen::open(family, options.common.shape(family, Shape::Stream), namespace)?;
        let on = Options { socket: socket.as_fd(), family };
        on.packets(&options.common)?;
        on.connection(&options.common, &SERVERS)?;
        if !on.is_ip() {
            return Ok(socket);
        }
        if let Some(bytes) = options.mss {
            on.set("mss", SocketOption::MaxSegment, bytes.into())?;
        }
        if options.fast_open {
            on.set("tfo", SocketOption::FastOpenConnect, 1)?;
        }
        self.late_ack(&on, served)?;
        if let Some(name) = &options.interface {
            on.interface(name)?;
        }
        if let Some(source) = &options.source {
            self.source(&on, source, served.client)?;
        }
        Ok(socket)
    }

    /// Delays the acknowledgement of the handshake until the first bytes, if there are some.
    fn late_ack(&self, on: &Options<'_>, served: &ConnPurpose<'_>) -> Result<(), Refused> {
        if self.options.late_ack && served.speaks_first && on.is_ip() {
            on.set("tcp-smart-connect", SocketOption::QuickAck, 0)?;
        }
        Ok(())
    }

    /// Binds the source address.
    fn source(&self, on: &Options<'_>, source: &Source, client: Option<SocketAddr>) -> Result<(), Refused> {
        let bind = |address: SocketAddr| {
            socket::bind(on.socket, &SocketAddrAny::from(address)).map_err(|errno| (Step::Source, errno))
        };
        if let Some(present) = source.present {
            let address = match (present, client) {
                (UseSource::Address(address), _) => address,
                (UseSource::Client, Some(client)) => client,
                (UseSource::ClientIp, Some(mut client)) => {
                    client.set_port(0); // the rest stays: a link-local address has its device with it
                    client
                }
                (UseSource::Client | UseSource::ClientIp, None) => {
                    let why = "'usesrc' expects the address of a client, found none; leave it out for checks";
                    return Err((Step::Unsupported(why), Errno::OPNOTSUPP));
                }
            };
            if address.ip().is_unspecified() && address.port() == 0 {
                return Ok(()); // no address: as if the option were not set
            }
            on.transparent("usesrc")?;
            if address.port() != 0 {
                on.set("usesrc", SocketOption::ReuseAddress, 1)?;
            }
            return bind(address);
        }
        if let Some(ports) = &source.ports {
            on.set("source", SocketOption::ReuseAddress, 1)?;
            // An unspecified address does not determine the family.
            let address = match source.address {
                ip if !ip.is_unspecified() => ip,
                _ if on.is_v6() => Ipv6Addr::UNSPECIFIED.into(),
                _ => Ipv4Addr::UNSPECIFIED.into(),
            };
            return bind(SocketAddr::new(address, self.port(*ports.start(), *ports.end())));
        }
        if source.address.is_unspecified() {
            return Ok(());
        }
        on.set("source", SocketOption::BindAddressNoPort, 1)?;
        bind(SocketAddr::new(source.address, 0))
    }

    /// Returns the next port of the range.
    fn port(&self, low: u16, high: u16) -> u16 {
        let turn = self.next_port.get();
        self.next_port.set(turn.wrapping_add(1));
        let count = u32::from(high.saturating_sub(low)) + 1;
        (u32::from(low) + u32::from(turn) % count) as u16
    }
}

/// Runs `attempt` until `deadline`, if there is one.
async fn within(
    io: &Io,
    deadline: Option<Time>,
    attempt: impl Future<Output = Result<Connection, Refused>>,
) -> Result<Connection, Refused> {
    let Some(deadline) = deadline else { return attempt.await };
    let here = io.here();
    here.timeout(deadline.since(here.now()), attempt).await.unwrap_or(Err((Step::Time, Errno::TIMEDOUT)))
}

/// Makes a pair of connected sockets, and sends one to the process at the other end of descriptor `number`.
fn pass(io: &Io, number: i32) -> Result<Connection, Refused> {
    let passage = listen::passage(number)?;
    let (ours, theirs) = socket::pair(Shape::Stream).map_err(|errno| (Step::Open, errno))?;
    send_descriptor(passage.as_fd(), theirs.as_fd()).map_err(|errno| (Step::Pass, errno))?;
    io.stream(ours).map(Connection::Socket).map_err(|error| (Step::Driver, errno(error)))
}

/// Connects inside of this process.
fn local(name: &str) -> Result<Connection, Refused> {
    let refused = |error: manylane_local::Error| (Step::Connect, listen::errno(&error));
    let socket = Socket::try_new(Kind::Stream).map_err(refused)?;
    socket.connect(&Name::new(name).map_err(refused)?).map_err(refused)?;
    Ok(Connection::Local(LocalStream::new(socket)))
}

/// Returns the system's error, or the nearest one.
fn errno(error: Error) -> Errno {
    error.errno().unwrap_or(Errno::NOMEM)
}
