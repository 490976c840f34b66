//! HTTP/2 connections and their streams.
//!
//! `core` has the streams of a connection, without IO. `conn` moves bytes between it and a socket.
//! `stream` is the handle of a stream's task.

#[cfg(not(any(loom, manylane_sim)))]
mod conn;
mod core;
mod error;
mod limits;
mod stream;

#[cfg(not(any(loom, manylane_sim)))]
pub use conn::{Conn, ConnTimeouts, WeakConn};
pub use core::{Incoming, Mux, TooLarge};
pub use error::{ConnEnd, StreamError};
pub use limits::{LEAVE_ANSWER, LINGER, LINGER_BYTES, MAX_INTERIM};
pub use manylane_h2::{
    Config, ConnectionError, Counts, DEFAULT_WINDOW, PREFACE, Problem, Reason, Request, Response, Role,
    Scheme, SendError, Violation,
};
pub use stream::{Received, ResponseHead, Stream};
