//! Sockets, from nothing and from a parent's hands: made, bound, set to listen. One system call a function,
//! no policy.

use rustix::fs::OFlags;
use rustix::io::Errno;
pub use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use rustix::net::{SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How a socket carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A byte stream.
    Stream,
    /// Messages.
    Datagram,
    /// Messages in order, over a connection.
    SeqPacket,
}

impl Shape {
    fn system(self) -> SocketType {
        match self {
            Self::Stream => SocketType::STREAM,
            Self::Datagram => SocketType::DGRAM,
            Self::SeqPacket => SocketType::SEQPACKET,
        }
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A new socket: it does not block, and is not inherited by programs that this one starts.
///
/// # Errors
/// The system's: `EMFILE` and `ENFILE` when there are no descriptors left.
pub fn open(family: AddressFamily, shape: Shape) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, shape.system(), FLAGS, None)
}

/// Two unix sockets that are connected to each other, as [`open`] makes them.
///
/// # Errors
/// As [`open`].
pub fn pair(shape: Shape) -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, shape.system(), FLAGS, None)
}

/// Gives `socket` its address.
///
/// # Errors
/// The system's: `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`.
pub fn bind(socket: BorrowedFd<'_>, address: &SocketAddrAny) -> Result<(), Errno> {
    rustix::net::bind(socket, address)
}

/// Has `socket` take connections, of which `backlog` may wait to be accepted. The system bounds that by
/// `net.core.somaxconn`.
///
/// # Errors
/// The system's: `EADDRINUSE` when another socket listens there.
pub fn listen(socket: BorrowedFd<'_>, backlog: u32) -> Result<(), Errno> {
    rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))
}

/// Has a socket of TCP that listens refuse connections, until it [listens](listen) again. One that does not
/// listen is left alone: shut down once more, it would pass its end on to each connection that it accepts
/// when it listens again.
///
/// # Errors
/// The system's.
pub fn refuse(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    if listens(socket)? { rustix::net::shutdown(socket, rustix::net::Shutdown::Read) } else { Ok(()) }
}

/// Whether `socket` takes connections.
///
/// # Errors
/// The system's.
pub fn listens(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    rustix::net::sockopt::socket_acceptconn(socket)
}

/// The address that `socket` is bound to; nothing for one that has none.
///
/// # Errors
/// The system's.
pub fn local_address(socket: BorrowedFd<'_>) -> Result<SocketAddrAny, Errno> {
    rustix::net::getsockname(socket)
}

/// The address that `socket` is connected to.
///
/// # Errors
/// The system's: `ENOTCONN`.
pub fn peer_address(socket: BorrowedFd<'_>) -> Result<SocketAddrAny, Errno> {
    rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)
}

/// How `socket` carries bytes.
///
/// # Errors
/// `ENOTSOCK` when it is no socket, `ESOCKTNOSUPPORT` for other shapes than [`Shape`] has.
pub fn shape(socket: BorrowedFd<'_>) -> Result<Shape, Errno> {
    match rustix::net::sockopt::socket_type(socket)? {
        SocketType::STREAM => Ok(Shape::Stream),
        SocketType::DGRAM => Ok(Shape::Datagram),
        SocketType::SEQPACKET => Ok(Shape::SeqPacket),
        _ => Err(Errno::SOCKTNOSUPPORT),
    }
}

/// Which addresses `socket` has.
///
/// # Errors
/// `ENOTSOCK` when it is no socket.
pub fn family(socket: BorrowedFd<'_>) -> Result<AddressFamily, Errno> {
    rustix::net::sockopt::socket_domain(socket)
}

/// A copy of descriptor `number` that was inherited from the parent. It is ours, is not inherited further,
/// and does not block. The inherited one stays open, as the parent's own does, so that a successor can
/// inherit it again.
///
/// Note that not to block is a property of what both refer to.
///
/// # Errors
/// `EBADF` when there is no such descriptor.
pub fn inherited(number: i32) -> Result<OwnedFd, Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: it is not -1, and is passed to one system call only, which refuses it if it is not open.
    // Nothing is done to it, whoever owns it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let copy = rustix::io::fcntl_dupfd_cloexec(borrowed, 3)?;
    let flags = rustix::fs::fcntl_getfl(&copy)?;
    if !flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(&copy, flags | OFlags::NONBLOCK)?;
    }
    Ok(copy)
}

/// Programs that this one starts do not get descriptor `number`, which was inherited from the parent.
///
/// # Errors
/// `EBADF` when there is no such descriptor.
pub fn keep_from_children(number: i32) -> Result<(), Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: it is not -1, and is passed to one system call only, which refuses it if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)
}

/// Takes all permissions from a unix socket that is not bound yet, so that nobody connects before its owner
/// and mode are what they should be: `bind(2)` gives them to the file that it makes.
///
/// # Errors
/// The system's.
pub fn forbid_all(socket: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fchmod(socket.as_fd(), rustix::fs::Mode::empty())
}
