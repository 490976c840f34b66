//! What the kernel knows about a TCP connection, `TCP_INFO` of `tcp(7)`.

use rustix::net::sockopt;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// `SO_COOKIE` of `asm-generic/socket.h`, which `libc` does not have.
const SO_COOKIE: libc::c_int = 57;

/// Times and counts of a connection, in the kernel's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Round trip time in microseconds.
    pub rtt: u32,
    /// Its mean deviation in microseconds.
    pub rtt_variance: u32,
    /// Segments that are sent and not acknowledged.
    pub unacknowledged: u32,
    /// Segments that are acknowledged selectively.
    pub selective: u32,
    /// Segments that count as lost.
    pub lost: u32,
    /// Segments that are sent again and not acknowledged.
    pub retransmitted: u32,
    /// Segments up to the last one that is acknowledged selectively.
    pub forward: u32,
    /// Segments that may overtake each other.
    pub reordering: u32,
}

/// Identity of a socket: its descriptor, and the number that the kernel gives to no other socket. It does not
/// keep the socket open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketId {
    descriptor: RawFd,
    cookie: u64,
}

impl SocketId {
    /// Returns the identity of an open socket; `None` if the system gives it none. Costs a system call.
    pub fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        let cookie = sockopt::socket_cookie(socket).ok()?;
        Some(Self { descriptor: socket.as_raw_fd(), cookie })
    }

    /// Returns the current numbers; `None` if the connection is not TCP, or if the socket is closed, even if
    /// another one has its descriptor now. Costs two system calls.
    pub fn tcp_info(self) -> Option<TcpInfo> {
        let mut cookie = 0u64;
        self.read(libc::SOL_SOCKET, SO_COOKIE, &mut cookie)?;
        if cookie != self.cookie {
            return None;
        }
        // SAFETY: all fields are numbers, for which zero bytes are valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        self.read(libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        Some(TcpInfo {
            rtt: info.tcpi_rtt,
            rtt_variance: info.tcpi_rttvar,
            unacknowledged: info.tcpi_unacked,
            selective: info.tcpi_sacked,
            lost: info.tcpi_lost,
            retransmitted: info.tcpi_retrans,
            forward: info.tcpi_fackets,
            reordering: info.tcpi_reordering,
        })
    }

    /// Reads an option into `value`, whose type must be valid for all bytes.
    fn read<T: Copy>(self, level: libc::c_int, name: libc::c_int, value: &mut T) -> Option<()> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel refuses a descriptor that is closed, and writes at most `length` bytes.
        let done = unsafe {
            libc::getsockopt(self.descriptor, level, name, (&raw mut *value).cast(), &raw mut length)
        };
        (done == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn numbers_are_of_the_socket_itself_and_end_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let id = SocketId::of(client.as_fd()).unwrap();
        let info = id.tcp_info().unwrap();
        assert!(info.rtt > 0 && info.rtt_variance > 0 && info.reordering > 0, "{info:?}");
        assert_eq!((info.unacknowledged, info.lost, info.retransmitted), (0, 0, 0));
        // Another socket at the same descriptor is not taken for this one.
        let other = SocketId { cookie: id.cookie + 1, ..id };
        assert_eq!(other.tcp_info(), None);
        drop(client);
        assert_eq!(SocketId { descriptor: -1, ..id }.tcp_info(), None);
    }
}
