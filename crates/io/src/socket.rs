//! Sockets, new or inherited: creating, binding, listening. One system call for each function, no policy.

use rustix::fs::OFlags;
use rustix::io::Errno;
pub use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use rustix::net::{SocketFlags, SocketType, ipproto};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A byte stream.
    Stream,
    /// A byte stream of MPTCP (RFC 8684).
    Multipath,
    /// Messages.
    Datagram,
    /// Ordered messages over a connection.
    SeqPacket,
}

impl Shape {
    fn system(self) -> SocketType {
        match self {
            Self::Stream | Self::Multipath => SocketType::STREAM,
            Self::Datagram => SocketType::DGRAM,
            Self::SeqPacket => SocketType::SEQPACKET,
        }
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Creates a non-blocking socket that programs started by this one do not inherit.
///
/// # Errors
/// The system's: `EMFILE` and `ENFILE` if there are no descriptors left.
pub fn open(family: AddressFamily, shape: Shape) -> Result<OwnedFd, Errno> {
    let protocol = (shape == Shape::Multipath).then_some(ipproto::MPTCP);
    rustix::net::socket_with(family, shape.system(), FLAGS, protocol)
}

/// Creates two connected unix sockets with the properties of [`open`].
///
/// # Errors
/// As [`open`].
pub fn pair(shape: Shape) -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, shape.system(), FLAGS, None)
}

/// Binds `socket` to an address.
///
/// # Errors
/// The system's: `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`.
pub fn bind(socket: BorrowedFd<'_>, address: &SocketAddrAny) -> Result<(), Errno> {
    rustix::net::bind(socket, address)
}

/// Makes `socket` listen; `backlog` connections may wait for `accept`. The system bounds that by
/// `net.core.somaxconn`.
///
/// # Errors
/// The system's: `EADDRINUSE` if another socket listens there.
pub fn listen(socket: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno> {
    rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))
}

/// Makes a listening TCP socket refuse connections, until it [listens](listen) again. Does nothing to a
/// socket that does not listen: a second shutdown would end each connection that it accepts after it listens
/// again.
///
/// # Errors
/// The system's.
pub fn refuse(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    if listens(socket)? { rustix::net::shutdown(socket, rustix::net::Shutdown::Read) } else { Ok(()) }
}

/// Returns true if `socket` listens.
///
/// # Errors
/// The system's.
pub fn listens(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    rustix::net::sockopt::socket_acceptconn(socket)
}

/// Returns the address to which `socket` is bound; an unnamed one if there is none.
///
/// # Errors
/// The system's.
pub fn local_address(socket: BorrowedFd<'_>) -> Result<SocketAddrAny, Errno> {
    rustix::net::getsockname(socket)
}

/// Returns the address to which `socket` is connected.
///
/// # Errors
/// The system's: `ENOTCONN`.
pub fn peer_address(socket: BorrowedFd<'_>) -> Result<SocketAddrAny, Errno> {
    rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)
}

/// Returns the type of `socket`.
///
/// # Errors
/// `ENOTSOCK` if it is no socket, `ESOCKTNOSUPPORT` for types that [`Shape`] lacks.
pub fn shape(socket: BorrowedFd<'_>) -> Result<Shape, Errno> {
    match rustix::net::sockopt::socket_type(socket)? {
        SocketType::STREAM => Ok(Shape::Stream),
        SocketType::DGRAM => Ok(Shape::Datagram),
        SocketType::SEQPACKET => Ok(Shape::SeqPacket),
        _ => Err(Errno::SOCKTNOSUPPORT),
    }
}

/// Returns the address family of `socket`.
///
/// # Errors
/// `ENOTSOCK` if it is no socket.
pub fn family(socket: BorrowedFd<'_>) -> Result<AddressFamily, Errno> {
    rustix::net::sockopt::socket_domain(socket)
}

/// Duplicates descriptor `number`, inherited from the parent. The duplicate belongs to the caller, is not
/// inherited further, and is non-blocking. The inherited descriptor stays open, so that a successor can
/// inherit it again.
///
/// Non-blocking mode belongs to the open file description, which both descriptors share.
///
/// # Errors
/// `EBADF` if there is no such descriptor.
pub fn inherited(number: i32) -> Result<OwnedFd, Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: it is not -1, and is passed only to one system call, which refuses it if it is not open and
    // does nothing to it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let copy = rustix::io::fcntl_dupfd_cloexec(borrowed, 3)?;
    let flags = rustix::fs::fcntl_getfl(&copy)?;
    if !flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(&copy, flags | OFlags::NONBLOCK)?;
    }
    Ok(copy)
}

/// Keeps programs started by this one from inheriting descriptor `number`, which was inherited from the
/// parent.
///
/// # Errors
/// `EBADF` if there is no such descriptor.
pub fn keep_from_children(number: i32) -> Result<(), Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: it is not -1, and is passed only to one system call, which refuses it if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)
}

/// Removes all permissions of a unix socket before `bind(2)`, which copies them to the file that it creates.
/// So no client can connect before the file has its final owner and mode.
///
/// # Errors
/// The system's.
pub fn forbid_all(socket: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fchmod(socket.as_fd(), rustix::fs::Mode::empty())
}
