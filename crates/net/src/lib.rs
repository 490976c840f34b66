#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod address;
mod loads;
pub mod netscaler;
pub mod proxy_protocol;

pub use address::{Address, AddressError, Rules};
pub use loads::{ALL_COMPARED, AcceptingLane, Balance, LaneGuard, SLACK, load};

// Modules with system calls are left out of models and simulations: lanes share nothing in them.
#[cfg(not(any(loom, manylane_sim)))]
mod adopt;
#[cfg(not(any(loom, manylane_sim)))]
mod apply;
#[cfg(not(any(loom, manylane_sim)))]
mod connect;
#[cfg(not(any(loom, manylane_sim)))]
mod connection;
#[cfg(not(any(loom, manylane_sim)))]
mod endpoint;
#[cfg(not(any(loom, manylane_sim)))]
mod error;
#[cfg(not(any(loom, manylane_sim)))]
pub mod hand_over;
#[cfg(not(any(loom, manylane_sim)))]
mod listen;
#[cfg(not(any(loom, manylane_sim)))]
mod options;
#[cfg(not(any(loom, manylane_sim)))]
mod serve;
#[cfg(not(any(loom, manylane_sim)))]
mod socks4;
#[cfg(not(any(loom, manylane_sim)))]
mod splice;
#[cfg(not(any(loom, manylane_sim)))]
mod tls;
#[cfg(not(any(loom, manylane_sim)))]
mod unix_file;

#[cfg(not(any(loom, manylane_sim)))]
pub use adopt::PendingChanges;
#[cfg(not(any(loom, manylane_sim)))]
pub use connect::{ConnPurpose, Connector, PORTS_TRIED};
#[cfg(not(any(loom, manylane_sim)))]
pub use connection::{Connection, Incoming, LocalStream, TransferError};
#[cfg(not(any(loom, manylane_sim)))]
pub use endpoint::{Endpoint, NotAnEndpoint};
#[cfg(not(any(loom, manylane_sim)))]
pub use error::{SocketError, Step};
#[cfg(not(any(loom, manylane_sim)))]
pub use hand_over::HandedOver;
#[cfg(not(any(loom, manylane_sim)))]
pub use listen::{
    AcceptError, Acceptor, Bound, PendingAccepts, TAKEN_AT_END, bind_datagrams, is_local, listen,
    listen_or_take,
};
#[cfg(not(any(loom, manylane_sim)))]
pub use options::*;
#[cfg(not(any(loom, manylane_sim)))]
pub use serve::{Serving, Spread};
#[cfg(not(any(loom, manylane_sim)))]
pub use splice::{Expected, SPLICE_FROM, SplicePolicy};
#[cfg(not(any(loom, manylane_sim)))]
pub use tls::{MOST_HANDSHAKES, TlsStream};
