#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod address;
mod loads;

pub use address::{Address, AddressError, Rules};
pub use loads::{Balance, LOOKED_AT_ALL, Presence, Seat, load};

/// All that makes system calls. There is nothing in them that lanes share, so nothing to model.
macro_rules! sockets {
    ($($item:item)*) => { $(#[cfg(not(any(loom, manylane_sim)))] $item)* };
}

sockets! {
    mod apply;
    mod connect;
    mod endpoint;
    mod error;
    mod listen;
    mod options;
    mod serve;
    mod unix_file;

    pub use connect::{Connector, PORTS_TRIED};
    pub use endpoint::{Endpoint, NotAnEndpoint};
    pub use error::{Purpose, SocketError, Step};
    pub use listen::{Acceptor, Bound, bind_datagrams, listen, listen_sharded};
    pub use options::*;
    pub use serve::{Serving, SpreadReport, spread, spread_report};
}
