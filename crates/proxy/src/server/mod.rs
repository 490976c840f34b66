//! Ways to a server: choice, retries and counters.

mod connect;
mod header;
mod leaving;
mod pool_key;
mod tls_guard;

pub use connect::has_agreed_on_h2;
pub(crate) use connect::{
    Attempt, IdleConn, Tried, at_once, connect, enter, remember_address, remember_link, shaken_with, waiting,
};
pub(crate) use header::{header, headers_before_tls};
pub(crate) use pool_key::{PoolKey, pool_key};
pub use tls_guard::TlsGuard;
