//! What `bind` and `server` lines say about their sockets.
//!
//! Plain data: nothing here touches a socket. Sections 5.1 and 5.2 of HAProxy's configuration manual have the
//! meaning of each keyword; differences are said at the field. On Linux a connection starts with its
//! listener's options, so those of a listener are set once and cost nothing for each connection.

use manylane_io::options::{SocketOption, set_option};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Connections that may wait to be accepted, if nothing else is said. The system bounds it by
/// `net.core.somaxconn`.
pub const BACKLOG: u32 = 4096;

/// Connections that may send before their handshake is complete, if nothing else is said (`tfo`).
pub const FAST_OPEN_QUEUE: u32 = 4096;

/// Options of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// `backlog`: connections that may wait to be accepted. Default [`BACKLOG`].
    pub backlog: u32,
    /// `defer-accept`: a connection is accepted when its first bytes are there, or when this time has
    /// passed; the kernel rounds up to its next retransmission. TCP only. HAProxy has it at one second.
    pub defer_accept: Option<Duration>,
    /// `interface`: connections through this network device only. Not for descriptors that were inherited.
    pub interface: Option<Box<str>>,
    /// `mss`: the largest segment, in bytes; it is told to the clients. HAProxy's negative numbers, so many
    /// less than was agreed on, are not here: on a connection that exists Linux takes the option and
    /// goes on as before.
    pub mss: Option<u16>,
    /// `tfo`: bytes may come with the handshake, for so many connections at once. TCP only.
    pub fast_open: Option<u32>,
    /// `option tcp-smart-accept`, when off: what clients send first is acknowledged at once, and not with
    /// the answer to it. TCP only. Default on, as the system has it.
    pub quick_ack: bool,
    /// `transparent`: the address may be one that this machine does not have. Not for descriptors that were
    /// inherited.
    pub transparent: bool,
    /// `v4v6`, `v6only`. Not for descriptors that were inherited.
    pub v6: V6,
    /// Others may listen at the same address; the system shares connections between the sockets. It is how
    /// one process takes over from the next without a gap, and what shards need. Default on, as HAProxy
    /// has it (`noreuseport` takes it back); then a second program of the same user is not refused
    /// either.
    pub reuse_port: bool,
    /// `namespace`: the network namespace to listen in. Not for descriptors that were inherited.
    pub namespace: Option<Box<str>>,
    /// `mode`, `user`, `group` and their numbers: whom the file of a unix socket belongs to.
    pub unix: UnixOptions,
    /// What both kinds of sockets have.
    pub common: CommonOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: BACKLOG,
            defer_accept: None,
            interface: None,
            mss: None,
            fast_open: None,
            quick_ack: true,
            transparent: false,
            v6: V6::System,
            reuse_port: true,
            namespace: None,
            unix: UnixOptions::default(),
            common: CommonOptions::default(),
        }
    }
}

/// Options of a socket that connects to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// `source`: whom the server shall see.
    pub source: Option<Source>,
    /// `interface` of `source`: through this network device only.
    pub interface: Option<Box<str>>,
    /// The largest segment, in bytes.
    pub mss: Option<u16>,
    /// `tfo`: the first bytes go with the handshake, if the server allowed that before. Connecting is done
    /// at once then, and what the server refuses is told by the first bytes.
    pub fast_open: bool,
    /// `option tcp-smart-connect`: where bytes wait to be sent
    /// ([`Served::speaks_first`](crate::Served::speaks_first)), the acknowledgement of the handshake
    /// goes with them, and not in a packet of its own. TCP only.
    pub late_ack: bool,
    /// `namespace`: the network namespace to connect from.
    pub namespace: Option<Box<str>>,
    /// What both kinds of sockets have.
    pub common: CommonOptions,
}

/// Options that both listening and connecting sockets have. They are for TCP and ignored by others,
/// [`mark`](Self::mark) apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonOptions {
    /// `tcp-ut`: sent bytes that stay without an answer for so long end the connection. To a millisecond.
    pub user_timeout: Option<Duration>,
    /// `option clitcpka`, `option srvtcpka` and what belongs to them: probes whether a silent peer is still
    /// there.
    pub keep_alive: Option<KeepAlive>,
    /// Sends small segments at once. Default on: answers are written whole.
    pub no_delay: bool,
    /// `option nolinger`: closing resets the connection, and bytes that were not sent are dropped. Default
    /// off.
    pub no_linger: bool,
    /// `cc`: the algorithm of congestion control, by the system's name: `cubic`, `bbr`. Default the system's
    /// own (`net.ipv4.tcp_congestion_control`).
    pub congestion_control: Option<Box<str>>,
    /// A number for the rules of routing and filters. Needs the capability `CAP_NET_ADMIN` or `CAP_NET_RAW`.
    pub mark: Option<u32>,
    /// The type of service, or the traffic class of IPv6.
    pub tos: Option<u8>,
    /// `tune.rcvbuf.client`, `.server`: bytes of the kernel's buffer of what came. What is not said the
    /// kernel adapts to each connection.
    pub receive_buffer: Option<u32>,
    /// `tune.sndbuf.client`, `.server`: bytes of the kernel's buffer of what is to be sent.
    pub send_buffer: Option<u32>,
    /// `tune.notsent-lowat.client`, `.server`: bytes that may wait in the kernel before a connection is
    /// written to again.
    pub unsent: Option<u32>,
}

impl Default for CommonOptions {
    fn default() -> Self {
        Self {
            user_timeout: None,
            keep_alive: None,
            no_delay: true,
            no_linger: false,
            congestion_control: None,
            mark: None,
            tos: None,
            receive_buffer: None,
            send_buffer: None,
            unsent: None,
        }
    }
}

/// How packets of one connection are marked from some moment on: `set-fc-mark` and its like. What is none
/// stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Packets {
    /// As [`CommonOptions::mark`].
    pub mark: Option<u32>,
    /// As [`CommonOptions::tos`].
    pub tos: Option<u8>,
}

impl Packets {
    /// Marks what `socket` sends from here on, as far as the system allows it: who may not set marks has
    /// none. A system call for the mark, two for the type of service; none for what is not said.
    pub fn mark(self, socket: BorrowedFd<'_>) {
        if let Some(mark) = self.mark {
            let _ = set_option(socket, SocketOption::Mark, mark.cast_signed());
        }
        if let Some(tos) = self.tos {
            // Of its own kind of packets a socket takes it; an IPv6 one may carry IPv4, too.
            let _ = set_option(socket, SocketOption::Tos, tos.into());
            let _ = set_option(socket, SocketOption::TrafficClass, tos.into());
        }
    }
}

/// Probes of connections that are silent. What is not said is the system's (`net.ipv4.tcp_keepalive_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// `clitcpka-cnt`, `srvtcpka-cnt`: probes without an answer that end the connection; 1 to 127.
    pub count: Option<u8>,
    /// `clitcpka-idle`, `srvtcpka-idle`: silence before the first probe; 1 to 32767 s. Parts of a second
    /// count as a whole one.
    pub idle: Option<Duration>,
    /// `clitcpka-intvl`, `srvtcpka-intvl`: time between probes; 1 to 32767 s. Parts of a second count as a
    /// whole one.
    pub interval: Option<Duration>,
}

/// Whether a socket for IPv6 takes IPv4 too. For other sockets it means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum V6 {
    /// As the system has it (`net.ipv6.bindv6only`).
    #[default]
    System,
    /// `v4v6`: both.
    Both,
    /// `v6only`: IPv6 only.
    Only,
}

/// Whom the file of a unix socket belongs to, and who may connect. What is not said is as the process has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixOptions {
    /// `mode`: the permissions, as an octal number; to connect one needs to be allowed to write.
    pub mode: Option<u32>,
    /// `uid`, `user`: the owner's number.
    pub user: Option<u32>,
    /// `gid`, `group`: the group's number.
    pub group: Option<u32>,
}

/// Whom a server sees as its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address of this machine to connect from. `0.0.0.0` and `::` leave it to the system, for servers
    /// of both families.
    pub address: IpAddr,
    /// The ports to connect from; none leaves it to the system, which then lets several destinations share
    /// one.
    pub ports: Option<RangeInclusive<u16>>,
    /// `usesrc`: an address that this machine need not have. Needs the capability `CAP_NET_ADMIN` or
    /// `CAP_NET_RAW`.
    pub present: Option<Present>,
}

impl Source {
    /// From `address`, with a port of the system's choice.
    pub fn new(address: IpAddr) -> Self {
        Self { address, ports: None, present: None }
    }
}

/// `usesrc`: the address that the server sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// This one; port 0 leaves the port to the system.
    Address(SocketAddr),
    /// `client`: the client's, and its port.
    Client,
    /// `clientip`: the client's, and a port of the system's choice.
    ClientIp,
}
