#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod address;
mod loads;
pub mod proxy_protocol;

pub use address::{Address, AddressError, Rules};
pub use loads::{Balance, LOOKED_AT_ALL, Presence, SLACK, Seat, load};

/// All that makes system calls. There is nothing in them that lanes share, so nothing to model.
macro_rules! sockets {
    ($($item:item)*) => { $(#[cfg(not(any(loom, manylane_sim)))] $item)* };
}

sockets! {
    mod adopt;
    mod apply;
    mod connect;
    mod connection;
    mod endpoint;
    mod error;
    pub mod hand_over;
    mod listen;
    mod options;
    mod serve;
    mod splice;
    mod unix_file;

    pub use adopt::Begun;
    pub use connect::{Connector, PORTS_TRIED, Served};
    pub use connection::{Connection, Incoming, LocalStream, TransferError};
    pub use endpoint::{Endpoint, NotAnEndpoint};
    pub use error::{Purpose, SocketError, Step};
    pub use hand_over::HandedOver;
    pub use listen::{AcceptError, Acceptor, Bound, Rest, TAKEN_AT_END, bind_datagrams, is_local, listen, listen_or_take, listen_sharded};
    pub use options::*;
    pub use serve::{Serving, Spread, SpreadReport, spread_report};
    pub use splice::{Expected, SPLICE_FROM, SplicePolicy};
}
