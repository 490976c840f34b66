//! Socket options: names, setters and getters. Higher layers decide on their use.
//!
//! `setsockopt(2)`, `getsockopt(2)`; `socket(7)`, `ip(7)`, `ipv6(7)`, `tcp(7)` explain each option. The
//! kernel copies options of a listener to each connection that it accepts, so they cost nothing there.

use rustix::io::Errno;
use rustix::net::sockopt;
use std::ffi::c_int;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

macro_rules! options {
    ($($(#[$doc:meta])* $option:ident = $level:ident, $name:ident;)*) => {
        /// An option whose value is a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SocketOption {
            $($(#[$doc])* $option,)*
        }

        impl SocketOption {
            /// All options.
            pub const ALL: &'static [Self] = &[$(Self::$option),*];

            /// Returns the system's name, such as `SO_REUSEADDR`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$option => stringify!($name),)*
                }
            }

            const fn number(self) -> (c_int, c_int) {
                match self {
                    $(Self::$option => (libc::$level, libc::$name),)*
                }
            }
        }
    };
}

options! {
    /// Allows binding although connections of the port linger; 0 or 1.
    ReuseAddress = SOL_SOCKET, SO_REUSEADDR;
    /// Allows several sockets at one address, among which the kernel distributes connections; 0 or 1.
    ReusePort = SOL_SOCKET, SO_REUSEPORT;
    /// Probes whether a silent peer is still reachable; 0 or 1.
    KeepAlive = SOL_SOCKET, SO_KEEPALIVE;
    /// Seconds of silence before the first probe; 1 to 32767.
    KeepAliveIdle = IPPROTO_TCP, TCP_KEEPIDLE;
    /// Seconds between probes; 1 to 32767.
    KeepAliveInterval = IPPROTO_TCP, TCP_KEEPINTVL;
    /// Number of unanswered probes that end the connection; 1 to 127.
    KeepAliveCount = IPPROTO_TCP, TCP_KEEPCNT;
    /// Sends small segments at once; 0 or 1.
    NoDelay = IPPROTO_TCP, TCP_NODELAY;
    /// Maximum number of bytes in a segment; 88 to 32767. For a connection, the negotiated value.
    MaxSegment = IPPROTO_TCP, TCP_MAXSEG;
    /// Listener: accepts a connection when its first bytes arrive, or after this many seconds. The kernel
    /// rounds up to its next retransmission.
    DeferAccept = IPPROTO_TCP, TCP_DEFER_ACCEPT;
    /// Listener: number of connections that may send before their handshake is complete.
    FastOpen = IPPROTO_TCP, TCP_FASTOPEN;
    /// Before connecting: sends the first bytes with the handshake; 0 or 1.
    FastOpenConnect = IPPROTO_TCP, TCP_FASTOPEN_CONNECT;
    /// Acknowledges data at once. 0 delays acknowledgements to combine them with data sent soon; the kernel
    /// stops delaying them after a delay without such data. Connections inherit the value of their listener.
    QuickAck = IPPROTO_TCP, TCP_QUICKACK;
    /// Milliseconds that sent bytes may stay unacknowledged; 0 leaves it to the system.
    UserTimeout = IPPROTO_TCP, TCP_USER_TIMEOUT;
    /// Allows binding addresses of other machines, IPv4; 0 or 1. Needs a privilege.
    TransparentV4 = IPPROTO_IP, IP_TRANSPARENT;
    /// Allows binding addresses of other machines, IPv6; 0 or 1. Needs a privilege.
    TransparentV6 = IPPROTO_IPV6, IPV6_TRANSPARENT;
    /// Refuses IPv4 on an IPv6 socket; 0 or 1.
    V6Only = IPPROTO_IPV6, IPV6_V6ONLY;
    /// Mark for routing rules and filters. Needs a privilege.
    Mark = SOL_SOCKET, SO_MARK;
    /// The type of service of IPv4 packets; 0 to 255.
    Tos = IPPROTO_IP, IP_TOS;
    /// The traffic class of IPv6 packets; 0 to 255.
    TrafficClass = IPPROTO_IPV6, IPV6_TCLASS;
    /// Chooses the port of a bound address at connect, so that several destinations can share it; 0 or 1.
    BindAddressNoPort = IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT;
    /// Bytes of the kernel's receive buffer; the kernel doubles the number, and returns the double.
    ReceiveBuffer = SOL_SOCKET, SO_RCVBUF;
    /// Bytes of the kernel's send buffer; doubled likewise.
    SendBuffer = SOL_SOCKET, SO_SNDBUF;
    /// Number of unsent bytes up to which a socket counts as writable.
    NotSentLowWater = IPPROTO_TCP, TCP_NOTSENT_LOWAT;
    /// Read only: 1 if the socket listens.
    Listening = SOL_SOCKET, SO_ACCEPTCONN;
    /// Read only: the pending error, which reading clears.
    PendingError = SOL_SOCKET, SO_ERROR;
}

impl fmt::Display for SocketOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Sets `option` of `socket`.
///
/// # Errors
/// The system's: `EPERM` without the privilege, `EINVAL` out of range, `ENOPROTOOPT` on the wrong kind of
/// socket.
pub fn set_option(socket: BorrowedFd<'_>, option: SocketOption, value: i32) -> Result<(), Errno> {
    let (level, name) = option.number();
    set(socket, level, name, &value)
}

/// Returns the value of `option` of `socket`.
///
/// # Errors
/// The system's.
pub fn option(socket: BorrowedFd<'_>, option: SocketOption) -> Result<i32, Errno> {
    let (level, name) = option.number();
    number(socket, level, name)
}

fn number(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> Result<i32, Errno> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open; value and length live through the call, and the length is the value's.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &mut length) };
    outcome(done).map(|()| value)
}

/// Makes closing `socket` reset its connection: the kernel drops unsent data and keeps no state.
///
/// # Errors
/// The system's.
pub fn set_reset_on_close(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// Sets whether closing `socket` resets its connection. If not, the system sends the rest, as for a new
/// socket.
///
/// # Errors
/// The system's.
pub fn set_linger(socket: BorrowedFd<'_>, resets: bool) -> Result<(), Errno> {
    let linger = libc::linger { l_onoff: resets.into(), l_linger: 0 };
    set(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// Returns which buffers of `socket` have a fixed size that the kernel does not adapt: 1 for sending, 2 for
/// receiving, or their sum.
///
/// # Errors
/// The system's: `ENOPROTOOPT` before Linux 5.14.
pub fn buffers_are_fixed(socket: BorrowedFd<'_>) -> Result<i32, Errno> {
    number(socket, libc::SOL_SOCKET, SO_BUF_LOCK)
}

/// Sets [which buffers have a fixed size](buffers_are_fixed).
///
/// # Errors
/// The system's.
pub fn fix_buffers(socket: BorrowedFd<'_>, which: i32) -> Result<(), Errno> {
    set(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &which)
}

/// `asm-generic/socket.h`; libc does not name it.
const SO_BUF_LOCK: c_int = 72;

/// Makes closing `socket` send nothing, so that the peer goes on as if the connection existed. Without the
/// privilege for that, closing sends a reset that the first router drops.
///
/// # Errors
/// The system's, if neither is possible.
pub fn set_silent_close(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // Acknowledges received data first. Otherwise the peer would repeat it to a socket that is gone by then,
    // and get a reset.
    let (now, repair): (c_int, c_int) = (1, 1);
    // A socket without TCP has nothing to acknowledge.
    let _ = set(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &now);
    if set(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &repair).is_ok() {
        return Ok(());
    }
    set_reset_within(socket, 1)
}

/// Makes closing `socket` reset its connection, with a reset that travels at most `hops` hops.
///
/// # Errors
/// The system's.
pub fn set_reset_within(socket: BorrowedFd<'_>, hops: u8) -> Result<(), Errno> {
    let hops = c_int::from(hops);
    // An IPv6 socket may have an IPv4 peer; an IPv4 socket has no IPv6 limit.
    let v6 = set(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &hops);
    set(socket, libc::IPPROTO_IP, libc::IP_TTL, &hops).or(v6)?;
    set_reset_on_close(socket)
}

/// Returns true if closing `socket` resets its connection.
///
/// # Errors
/// The system's.
pub fn reset_on_close(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    sockopt::socket_linger(socket).map(|linger| linger.is_some_and(|time| time.is_zero()))
}

/// Sets the congestion control algorithm of a TCP connection, or of those of a listener: `cubic`, `bbr`.
///
/// # Errors
/// The system's: `ENOENT` if it has none with this name, `EPERM` if it needs a privilege.
pub fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    sockopt::set_tcp_congestion(socket, name)
}

/// Returns the name of the congestion control algorithm of `socket`.
///
/// # Errors
/// The system's: `EOPNOTSUPP` if the socket is not TCP.
pub fn congestion_control(socket: BorrowedFd<'_>) -> Result<String, Errno> {
    sockopt::tcp_congestion(socket)
}

/// Maximum length of a [signature](sign) key, in bytes.
pub const LONGEST_KEY: usize = 80;

/// The peers whose segments are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedPeers {
    /// This peer, in both directions.
    Peer(SocketAddr),
    /// All peers of a listener. One whose socket is IPv6 may have IPv4 peers, too.
    Any {
        /// True if the listener's socket is IPv6.
        v6: bool,
    },
}

/// Makes the system sign all segments of `socket` with `key` (RFC 2385), and drop received segments without
/// that signature. Call it before the socket connects or listens.
///
/// # Errors
/// The system's: `ENOPROTOOPT` if it does not support signatures, `EINVAL` if the key is empty or longer than
/// [`LONGEST_KEY`].
pub fn sign(socket: BorrowedFd<'_>, with: SignedPeers, key: &[u8]) -> Result<(), Errno> {
    if key.is_empty() || key.len() > LONGEST_KEY {
        return Err(Errno::INVAL);
    }
    let mut peers = [None; 2];
    match with {
        SignedPeers::Peer(peer) => peers[0] = Some(peer.ip()),
        SignedPeers::Any { v6 } => {
            // An IPv6 socket expects an IPv4 address in its mapped form.
            peers[0] = Some(if v6 {
                Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().into()
            } else {
                Ipv4Addr::UNSPECIFIED.into()
            });
            peers[1] = v6.then_some(Ipv6Addr::UNSPECIFIED.into());
        }
    }
    let any = matches!(with, SignedPeers::Any { .. });
    for peer in peers.into_iter().flatten() {
        let mut own = Signature {
            address: [0; 128],
            flags: any.into(),
            prefix: 0,
            length: key.len() as u16,
            interface: 0,
            key: [0; LONGEST_KEY],
        };
        own.key[..key.len()].copy_from_slice(key);
        // The beginning of `sockaddr_in` and `sockaddr_in6`: family, port, and the address at 4 or 8.
        let (family, at) = if peer.is_ipv6() { (libc::AF_INET6, 8) } else { (libc::AF_INET, 4) };
        own.address[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        match peer {
            IpAddr::V4(ip) => own.address[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => own.address[at..at + 16].copy_from_slice(&ip.octets()),
        }
        let option = if any { TCP_MD5SIG_EXT } else { libc::TCP_MD5SIG };
        set(socket, libc::IPPROTO_TCP, option, &own)?;
    }
    Ok(())
}

/// Returns true if the system supports [signatures](sign).
pub fn has_signatures() -> bool {
    let peer = SignedPeers::Peer((Ipv4Addr::LOCALHOST, 1).into());
    crate::socket::open(crate::socket::AddressFamily::INET, crate::socket::Shape::Stream)
        .and_then(|socket| sign(socket.as_fd(), peer, b"key"))
        .is_ok()
}

/// `linux/tcp.h`; libc does not name it.
const TCP_MD5SIG_EXT: c_int = 32;

/// `struct tcp_md5sig` of `linux/tcp.h`.
#[repr(C, align(8))]
struct Signature {
    address: [u8; 128],
    flags: u8,
    prefix: u8,
    length: u16,
    interface: c_int,
    key: [u8; LONGEST_KEY],
}

/// Restricts packets of `socket` to the network device `name`; an empty name removes the restriction.
///
/// # Errors
/// The system's: `ENODEV` if there is no such device, `EPERM` without the privilege. `EINVAL` for a name
/// longer than a device's can be.
pub fn bind_to_device(socket: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let mut bytes = [0; libc::IFNAMSIZ];
    if name.len() >= bytes.len() || name.contains('\0') {
        return Err(Errno::INVAL); // the system would truncate it, and might find another device
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    set(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &bytes)
}

/// Returns the network device to which `socket` is bound; empty if none.
///
/// # Errors
/// The system's.
pub fn device(socket: BorrowedFd<'_>) -> Result<String, Errno> {
    let mut bytes = [0u8; libc::IFNAMSIZ];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open; bytes and length live through the call, and the length is that of the
    // bytes.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            bytes.as_mut_ptr().cast(),
            &mut length,
        )
    };
    outcome(done)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn set<T>(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> Result<(), Errno> {
    // SAFETY: the descriptor is open; the value lives through the call, and the length is its own. The kernel
    // only reads it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    outcome(done)
}

/// Converts the result of a libc call that returns 0 or -1.
fn outcome(done: c_int) -> Result<(), Errno> {
    if done == 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(errno.expect("it is the system's")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd;

    #[test]
    fn what_is_set_can_be_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = listener.as_fd();
        for (which, value) in [
            (SocketOption::ReusePort, 1),
            (SocketOption::KeepAlive, 1),
            (SocketOption::KeepAliveIdle, 11),
            (SocketOption::KeepAliveInterval, 12),
            (SocketOption::KeepAliveCount, 13),
            (SocketOption::NoDelay, 1),
            (SocketOption::FastOpen, 14),
            (SocketOption::UserTimeout, 15),
            (SocketOption::Tos, 16),
            (SocketOption::BindAddressNoPort, 1),
        ] {
            assert_ne!(option(socket, which), Ok(value), "{which} before");
            set_option(socket, which, value).unwrap();
            assert_eq!(option(socket, which), Ok(value), "{which}");
        }
        set_congestion_control(socket, "reno").unwrap(); // every kernel has it
        assert_eq!(congestion_control(socket).as_deref(), Ok("reno"));
        assert_eq!(option(socket, SocketOption::Listening), Ok(1));
        assert_eq!(reset_on_close(socket), Ok(false));
        set_reset_on_close(socket).unwrap();
        assert_eq!(reset_on_close(socket), Ok(true));
        set_linger(socket, false).unwrap();
        assert_eq!(reset_on_close(socket), Ok(false));
        // Before Linux 5.14 the option cannot be read.
        if let Ok(before) = buffers_are_fixed(socket) {
            set_option(socket, SocketOption::ReceiveBuffer, 20_000).unwrap();
            assert_eq!((before, buffers_are_fixed(socket)), (0, Ok(2)));
            fix_buffers(socket, 0).unwrap();
            assert_eq!(buffers_are_fixed(socket), Ok(0));
        }
    }

    #[test]
    fn the_systems_refusal_comes_back() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(option(socket.as_fd(), SocketOption::V6Only), Err(Errno::OPNOTSUPP));
        assert_eq!(set_option(socket.as_fd(), SocketOption::KeepAliveIdle, 1), Err(Errno::NOPROTOOPT));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(set_congestion_control(listener.as_fd(), "no such algorithm"), Err(Errno::NOENT));
        assert_eq!(bind_to_device(socket.as_fd(), "no such device"), Err(Errno::NODEV));
        assert_eq!(bind_to_device(socket.as_fd(), "a name that is too long"), Err(Errno::INVAL));
        assert_eq!(device(socket.as_fd()).as_deref(), Ok(""));
    }
}
