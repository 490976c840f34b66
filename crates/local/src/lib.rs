#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the crates where `unsafe` is allowed by name (ARCHITECTURE.md)

mod backoff;
mod connect;
mod credentials;
#[cfg(feature = "designs")]
#[doc(hidden)]
pub mod designs;
mod error;
mod flight;
mod linkage;
mod locks;
#[cfg(all(any(test, feature = "model"), not(any(loom, manylane_sim))))]
#[doc(hidden)]
pub mod model;
mod name;
mod pcb;
mod rcv;
mod recv;
mod send;
mod socket;
mod wait;

pub use connect::MAX_BACKLOG;
pub use credentials::Credentials;
pub use error::Error;
pub use flight::{Handle, MAX_HANDLES, MAX_IN_FLIGHT, collect, in_flight};
pub use linkage::{SocketInfo, sockets};
pub use name::{MAX_NAME, Name};
pub use pcb::DEFAULT_LIMIT;
pub use rcv::MESSAGE_COST;
pub use recv::Received;
pub use send::Attached;
pub use socket::{DEFAULT_SPIN, Kind, Socket};
