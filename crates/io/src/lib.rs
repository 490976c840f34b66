#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the crates where `unsafe` is allowed by name (ARCHITECTURE.md)
#![cfg(not(any(loom, manylane_sim)))] // system calls: lanes share nothing here

mod blocking_writer;
mod choice;
mod clusters;
mod connect;
mod core;
mod datagram;
mod driver;
mod epoll;
mod error;
mod fd_channel;
pub mod folder;
mod held;
mod limits;
mod listener;
pub mod namespace;
mod open;
pub mod options;
pub mod passing;
mod pieces;
mod pipe;
mod receive;
mod slab;
pub mod socket;
mod splice;
mod stats;
mod stream;
mod tcp_info;
mod transmit;
mod uring;
mod waiter;
mod wake_fd;

pub use blocking_writer::BlockingWriter;
pub use choice::{DRIVER_VARIABLE, DriverChoice, IoUringUnavailable, Kind, UnknownDriver};
pub use datagram::{Datagram, Datagrams, Outgoing};
pub use driver::{Driver, DriverError, Io};
pub use error::{Call, Error, ErrorAt};
pub use fd_channel::FdChannel;
pub use limits::*;
pub use listener::{Accepted, Listener, accept_waiting};
pub use open::{tcp_listener, tcp_socket};
pub use rustix::io::Errno;
pub use rustix::net::{Shutdown, SocketAddrAny};
pub use splice::Splicer;
pub use stats::{IoReport, open, open_here, report};
pub use stream::{Detached, Stream};
pub use tcp_info::{SocketId, TcpInfo};
