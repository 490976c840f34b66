//! Socket options of `bind` and `server` lines.
//!
//! This is plain data: nothing here touches a socket. Sections 5.1 and 5.2 of HAProxy's configuration manual
//! describe each keyword; differences are noted at the field. On Linux, a connection starts with its
//! listener's options, so a listener's options are set once and cost nothing for each connection.

use manylane_io::options::{SocketOption, set_option};
use manylane_io::socket::{AddressFamily, Shape};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Default backlog: number of connections that may wait to be accepted. The system bounds it by
/// `net.core.somaxconn`.
pub const BACKLOG: u32 = 4096;

/// Default number of connections that may send data before their handshake is complete (`tfo`).
pub const FAST_OPEN_QUEUE: u32 = 4096;

/// Options of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// `backlog`: number of connections that may wait to be accepted. Default [`BACKLOG`].
    pub backlog: u32,
    /// `defer-accept`: a connection is accepted when its first bytes are there, or after this time, which the
    /// kernel rounds up to its next retransmission. TCP only. HAProxy uses one second.
    pub defer_accept: Option<Duration>,
    /// `interface`: connections through this network device only. Not for inherited descriptors.
    pub interface: Option<Box<str>>,
    /// `mss`: largest segment, in bytes, announced to the clients. HAProxy's negative numbers, which reduce
    /// the negotiated size, are not supported: on an existing connection, Linux accepts the option and
    /// ignores it.
    pub mss: Option<u16>,
    /// `tfo`: data may come with the handshake, for this many connections at once. TCP only.
    pub fast_open: Option<u32>,
    /// `option tcp-smart-accept`, when off: the client's first bytes are acknowledged at once, and not with
    /// the answer to them. TCP only. Default on, as in the system.
    pub quick_ack: bool,
    /// `transparent`: the address may be one that this machine does not have. Not for inherited descriptors.
    pub transparent: bool,
    /// `v4v6`, `v6only`. Not for inherited descriptors.
    pub v6: V6,
    /// Other sockets may listen at the same address, and the system distributes connections among them.
    /// Shards need it, and so does a process that takes over from another without a gap. Default on, as in
    /// HAProxy (`noreuseport` disables it). A second program of the same user is then not refused either.
    pub reuse_port: bool,
    /// `namespace`: network namespace to listen in. Not for inherited descriptors.
    pub namespace: Option<Box<str>>,
    /// `mode`, `user`, `group` and their numbers: owner and permissions of a unix socket's file.
    pub unix: UnixOptions,
    /// Options that both kinds of sockets have.
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
    /// `source`: address that the server sees.
    pub source: Option<Source>,
    /// `interface` of `source`: through this network device only.
    pub interface: Option<Box<str>>,
    /// Largest segment, in bytes.
    pub mss: Option<u16>,
    /// `tfo`: the first bytes go with the handshake, if the server allowed that before. Connecting then
    /// completes at once, and sending the first bytes reports a refusal.
    pub fast_open: bool,
    /// `option tcp-smart-connect`: if bytes wait to be sent
    /// ([`ConnPurpose::speaks_first`](crate::ConnPurpose::speaks_first)), they carry the acknowledgement of
    /// the handshake, and no separate packet does. TCP only.
    pub late_ack: bool,
    /// `namespace`: network namespace to connect from.
    pub namespace: Option<Box<str>>,
    /// Options that both kinds of sockets have.
    pub common: CommonOptions,
}

/// Options of both listening and connecting sockets. They are for TCP; other sockets ignore them, except for
/// [`mark`](Self::mark).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonOptions {
    /// `tcp-md5sig`: key that all segments are signed with (RFC 2385).
    pub signature: Option<Box<[u8]>>,
    /// `mptcp@`: connections may have several paths (RFC 8684). The system must support it. Not for inherited
    /// descriptors.
    pub multipath: bool,
    /// `tcp-ut`: time without an acknowledgement of sent bytes after which the connection ends. Millisecond
    /// precision.
    pub user_timeout: Option<Duration>,
    /// `option clitcpka`, `option srvtcpka` and their parameters: probes that check whether a silent peer is
    /// still there.
    pub keep_alive: Option<KeepAlive>,
    /// Sends small segments at once. Default on: answers are written as a whole.
    pub no_delay: bool,
    /// `option nolinger`: closing resets the connection, and drops unsent bytes. Default off.
    pub no_linger: bool,
    /// `cc`: congestion control algorithm, by the system's name: `cubic`, `bbr`. Defaults to the system's own
    /// (`net.ipv4.tcp_congestion_control`).
    pub congestion_control: Option<Box<str>>,
    /// Mark for rules of routing and filters. Needs the capability `CAP_NET_ADMIN` or `CAP_NET_RAW`.
    pub mark: Option<u32>,
    /// Type of service, or the traffic class of IPv6.
    pub tos: Option<u8>,
    /// `tune.rcvbuf.client`, `.server`: size of the kernel's receive buffer, in bytes. `None` lets the kernel
    /// adapt it to each connection.
    pub receive_buffer: Option<u32>,
    /// `tune.sndbuf.client`, `.server`: size of the kernel's send buffer, in bytes.
    pub send_buffer: Option<u32>,
    /// `tune.notsent-lowat.client`, `.server`: number of unsent bytes in the kernel below which a connection
    /// counts as writable.
    pub unsent: Option<u32>,
}

impl CommonOptions {
    /// The kind of socket to open where the caller wants one of this shape.
    pub(crate) fn shape(&self, family: AddressFamily, shape: Shape) -> Shape {
        let is_ip = [AddressFamily::INET, AddressFamily::INET6].contains(&family);
        if self.multipath && is_ip && shape == Shape::Stream { Shape::Multipath } else { shape }
    }
}

impl Default for CommonOptions {
    fn default() -> Self {
        Self {
            signature: None,
            multipath: false,
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

/// Marks of one connection's packets from some moment on: `set-fc-mark` and the like. `None` leaves a value
/// unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Packets {
    /// See [`CommonOptions::mark`].
    pub mark: Option<u32>,
    /// See [`CommonOptions::tos`].
    pub tos: Option<u8>,
}

impl Packets {
    /// Marks the packets that `socket` sends from now on. Errors are ignored: a process that may not set
    /// marks has none. Takes one system call for the mark and two for the type of service; none for `None`.
    pub fn mark(self, socket: BorrowedFd<'_>) {
        if let Some(mark) = self.mark {
            let _ = set_option(socket, SocketOption::Mark, mark.cast_signed());
        }
        if let Some(tos) = self.tos {
            // A socket accepts the option of its own family; an IPv6 socket may carry IPv4, too.
            let _ = set_option(socket, SocketOption::Tos, tos.into());
            let _ = set_option(socket, SocketOption::TrafficClass, tos.into());
        }
    }
}

/// Probes of silent connections. `None` keeps the system's value (`net.ipv4.tcp_keepalive_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// `clitcpka-cnt`, `srvtcpka-cnt`: number of unanswered probes that end the connection; 1 to 127.
    pub count: Option<u8>,
    /// `clitcpka-idle`, `srvtcpka-idle`: silence before the first probe; 1 to 32767 s, rounded up to whole
    /// seconds.
    pub idle: Option<Duration>,
    /// `clitcpka-intvl`, `srvtcpka-intvl`: time between probes; 1 to 32767 s, rounded up to whole seconds.
    pub interval: Option<Duration>,
}

/// Whether an IPv6 socket accepts IPv4, too. Other sockets ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum V6 {
    /// The system's default (`net.ipv6.bindv6only`).
    #[default]
    System,
    /// `v4v6`: both.
    Both,
    /// `v6only`: IPv6 only.
    Only,
}

/// Owner and permissions of a unix socket's file. `None` keeps the process's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixOptions {
    /// `mode`: permissions; connecting needs the right to write.
    pub mode: Option<u32>,
    /// `uid`, `user`: number of the owner.
    pub user: Option<u32>,
    /// `gid`, `group`: number of the group.
    pub group: Option<u32>,
}

/// Address that a server sees as its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Address of this machine to connect from. `0.0.0.0` and `::` leave it to the system, for servers of
    /// both families.
    pub address: IpAddr,
    /// Ports to connect from; `None` leaves them to the system, which then lets several destinations share
    /// one.
    pub ports: Option<RangeInclusive<u16>>,
    /// `usesrc`: an address that this machine need not have. Needs the capability `CAP_NET_ADMIN` or
    /// `CAP_NET_RAW`.
    pub present: Option<UseSource>,
}

impl Source {
    /// Creates a source at `address`, with a port that the system chooses.
    pub fn new(address: IpAddr) -> Self {
        Self { address, ports: None, present: None }
    }
}

/// `usesrc`: address that the server sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseSource {
    /// This address; port 0 leaves the port to the system.
    Address(SocketAddr),
    /// `client`: the client's address and port.
    Client,
    /// `clientip`: the client's address, with a port that the system chooses.
    ClientIp,
}
