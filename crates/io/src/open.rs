//! Sockets for examples, tests and tools. Sockets of a configuration are in `net`.

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

/// Creates a TCP socket for an address of this family, with `TCP_NODELAY`, to be connected.
///
/// # Errors
/// The system's.
pub fn tcp_socket(address: &SocketAddr) -> Result<OwnedFd, Error> {
    tcp(address).map_err(|errno| Error::system(Call::Open, errno))
}

/// Creates a TCP socket that listens on `address`, even if connections of an earlier one still use it.
/// `shared`: other sockets with this flag may listen on the same address, and the kernel spreads connections
/// over them.
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
