//! Options of sockets: which the system has, and how they are set and read. What they are good for is decided
//! above.
//!
//! `setsockopt(2)`, `getsockopt(2)`; the meaning of each in `socket(7)`, `ip(7)`, `ipv6(7)`, `tcp(7)`.
//! Options that are set on a listener are copied by the kernel to each connection that it accepts, so they
//! cost nothing there.

use rustix::io::Errno;
use rustix::net::sockopt;
use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

macro_rules! options {
    ($($(#[$doc:meta])* $option:ident = $level:ident, $name:ident;)*) => {
        /// An option whose value is a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SocketOption {
            $($(#[$doc])* $option,)*
        }

        impl SocketOption {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$option),*];

            /// The system's name: `SO_REUSEADDR`.
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
    /// Binds although connections of the port linger; 0 or 1.
    ReuseAddress = SOL_SOCKET, SO_REUSEADDR;
    /// Several sockets at one address, between which the kernel shares what comes; 0 or 1.
    ReusePort = SOL_SOCKET, SO_REUSEPORT;
    /// Probes whether a silent peer is still there; 0 or 1.
    KeepAlive = SOL_SOCKET, SO_KEEPALIVE;
    /// Seconds of silence before the first probe; 1 to 32767.
    KeepAliveIdle = IPPROTO_TCP, TCP_KEEPIDLE;
    /// Seconds between probes; 1 to 32767.
    KeepAliveInterval = IPPROTO_TCP, TCP_KEEPINTVL;
    /// Probes without an answer that end the connection; 1 to 127.
    KeepAliveCount = IPPROTO_TCP, TCP_KEEPCNT;
    /// Sends small segments at once; 0 or 1.
    NoDelay = IPPROTO_TCP, TCP_NODELAY;
    /// Bytes in a segment at most; 88 to 32767. Of a connection, what was agreed on.
    MaxSegment = IPPROTO_TCP, TCP_MAXSEG;
    /// Of a listener: accepts a connection when its first bytes are there, or after so many seconds. The
    /// kernel rounds up to
    /// its next retransmission.
    DeferAccept = IPPROTO_TCP, TCP_DEFER_ACCEPT;
    /// Of a listener: how many connections may send before their handshake is complete.
    FastOpen = IPPROTO_TCP, TCP_FASTOPEN;
    /// Of a connection to be: its first bytes go with the handshake; 0 or 1.
    FastOpenConnect = IPPROTO_TCP, TCP_FASTOPEN_CONNECT;
    /// Acknowledges what comes at once; 0 holds that back for what is sent soon, until the first time that
    /// this was waited for in vain.
    /// Connections begin with their listener's.
    QuickAck = IPPROTO_TCP, TCP_QUICKACK;
    /// Milliseconds that sent bytes may stay without an answer; 0 leaves it to the system.
    UserTimeout = IPPROTO_TCP, TCP_USER_TIMEOUT;
    /// Addresses of other machines can be bound, IPv4; 0 or 1. Needs a privilege.
    TransparentV4 = IPPROTO_IP, IP_TRANSPARENT;
    /// The same, IPv6.
    TransparentV6 = IPPROTO_IPV6, IPV6_TRANSPARENT;
    /// An IPv6 socket takes no IPv4; 0 or 1.
    V6Only = IPPROTO_IPV6, IPV6_V6ONLY;
    /// A number for the rules of routing and filters. Needs a privilege.
    Mark = SOL_SOCKET, SO_MARK;
    /// The type of service of IPv4 packets; 0 to 255.
    Tos = IPPROTO_IP, IP_TOS;
    /// The traffic class of IPv6 packets; 0 to 255.
    TrafficClass = IPPROTO_IPV6, IPV6_TCLASS;
    /// The port of a bound address is chosen when the socket connects, so that several destinations can
    /// share it; 0 or 1.
    BindAddressNoPort = IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT;
    /// Bytes that the kernel keeps of what came; it doubles the number, and tells the double.
    ReceiveBuffer = SOL_SOCKET, SO_RCVBUF;
    /// Bytes that the kernel keeps of what is to be sent; doubled likewise.
    SendBuffer = SOL_SOCKET, SO_SNDBUF;
    /// Bytes not sent yet up to which a socket counts as writable.
    NotSentLowWater = IPPROTO_TCP, TCP_NOTSENT_LOWAT;
    /// Read only: whether the socket listens.
    Listening = SOL_SOCKET, SO_ACCEPTCONN;
    /// Read only: the error that is pending, which reading clears.
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

/// The value of `option` of `socket`.
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

/// Closing `socket` resets its connection: what was not sent is dropped, and no state of it lingers.
///
/// # Errors
/// The system's.
pub fn set_reset_on_close(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// Closing `socket` resets its connection, or leaves what was not sent to the system, as a new one does.
///
/// # Errors
/// The system's.
pub fn set_linger(socket: BorrowedFd<'_>, resets: bool) -> Result<(), Errno> {
    let linger = libc::linger { l_onoff: resets.into(), l_linger: 0 };
    set(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// Which buffers of `socket` have a size that was set, and are not adapted to their connection: 1 for
/// sending, 2 for receiving, or their sum.
///
/// # Errors
/// The system's: `ENOPROTOOPT` before Linux 5.14.
pub fn buffers_are_fixed(socket: BorrowedFd<'_>) -> Result<i32, Errno> {
    number(socket, libc::SOL_SOCKET, SO_BUF_LOCK)
}

/// Sets [which those are](buffers_are_fixed).
///
/// # Errors
/// The system's.
pub fn fix_buffers(socket: BorrowedFd<'_>, which: i32) -> Result<(), Errno> {
    set(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &which)
}

/// `asm-generic/socket.h`; libc does not name it.
const SO_BUF_LOCK: c_int = 72;

/// Closing `socket` tells its peer nothing, so that it goes on as if the connection were there. Without the
/// privilege for that, closing sends a reset that the first router drops.
///
/// # Errors
/// The system's, when neither can be.
pub fn set_silent_close(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // What came is acknowledged, or the peer repeats it, to a socket that is gone by then, and is told by a
    // reset.
    let (now, repair): (c_int, c_int) = (1, 1);
    // what is no TCP has nothing to acknowledge
    let _ = set(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &now);
    if set(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &repair).is_ok() {
        return Ok(());
    }
    set_reset_within(socket, 1)
}

/// Closing `socket` resets its connection, and the reset goes over so many hops.
///
/// # Errors
/// The system's.
pub fn set_reset_within(socket: BorrowedFd<'_>, hops: u8) -> Result<(), Errno> {
    let hops = c_int::from(hops);
    // A socket of IPv6 may have a peer of IPv4; one of IPv4 has no such limit.
    let v6 = set(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &hops);
    set(socket, libc::IPPROTO_IP, libc::IP_TTL, &hops).or(v6)?;
    set_reset_on_close(socket)
}

/// Whether closing `socket` resets its connection.
///
/// # Errors
/// The system's.
pub fn reset_on_close(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    sockopt::socket_linger(socket).map(|linger| linger.is_some_and(|time| time.is_zero()))
}

/// The algorithm by which a TCP connection, or those of a listener, avoid congestion: `cubic`, `bbr`.
///
/// # Errors
/// The system's: `ENOENT` when it has none of the name, `EPERM` when only the privileged may choose it.
pub fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    sockopt::set_tcp_congestion(socket, name)
}

/// The name of the algorithm by which `socket` avoids congestion.
///
/// # Errors
/// The system's: `EOPNOTSUPP` when it is not TCP's.
pub fn congestion_control(socket: BorrowedFd<'_>) -> Result<String, Errno> {
    sockopt::tcp_congestion(socket)
}

/// Packets come and go through the network device `name` only; an empty name takes that back.
///
/// # Errors
/// The system's: `ENODEV` when there is none of the name, `EPERM` without the privilege. A name longer than a
/// device's can be is `EINVAL`.
pub fn bind_to_device(socket: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let mut bytes = [0; libc::IFNAMSIZ];
    if name.len() >= bytes.len() || name.contains('\0') {
        return Err(Errno::INVAL); // the system would cut it, and might find another one
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    set(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &bytes)
}

/// The network device that `socket` is bound to; empty when it is none.
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
    // reads it only.
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

/// What a call of libc that answers 0 or -1 came to.
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
        // Before Linux 5.14 that cannot be asked.
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
