//! Ways to a server: choice, retries and counters.

mod connect;
mod header;
mod leaving;
mod permit;
mod tls_guard;

pub(crate) use connect::{
    Attempt, ConnectTimings, IdleConn, NotReached, Tried, at_once, connect, enter, has_agreed_on_h2,
    remember_link, remember_place, waiting,
};
pub(crate) use header::{header, headers_before_tls};
pub(crate) use permit::{ServerPermit, SetTime, Wanted};
pub(crate) use tls_guard::TlsGuard;
