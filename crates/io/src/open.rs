//! The few sockets that examples, tests and tools need. What a configuration can say about sockets is
//! `net`'s.

use crate::error::{Call, Error, ErrorAt};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn tcp(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family(address), SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// A TCP socket for an address of this family, without delay of small segments, to be connected.
///
/// # Errors
/// What the system says.
pub fn tcp_socket(address: &SocketAddr) -> Result<OwnedFd, Error> {
    tcp(address).map_err(|errno| Error::system(Call::Open, errno))
}

/// A TCP socket that listens on `address`, which may be in use by connections of an earlier one. `shared`:
/// other sockets that say so too may listen on the same, and the kernel spreads connections over them.
///
/// # Errors
/// A sentence with the address: in use, not permitted, not of this machine.
pub fn tcp_listener(address: &SocketAddr, backlog: u16, shared: bool) -> Result<OwnedFd, ErrorAt> {
    let open = || {
        let socket = tcp(address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if shared {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        bind(&socket, address)?;
        listen(&socket, i32::from(backlog))?;
        Ok(socket)
    };
    open().map_err(|errno| Error::system(Call::Open, errno).at(address))
}
