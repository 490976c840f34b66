#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Its modules make system calls, so models and simulations leave all of them out; the crates below have
// models of the state that lanes share.
#![cfg(not(any(loom, manylane_sim)))]

mod client;
pub mod explain;
mod filters;
mod flow;
pub mod forward;
mod h2_counts;
mod http;
mod lane;
mod message_buffer;
mod origin;
mod panics;
mod rules;
mod scopes;
mod server;
mod session;
mod tcp;
mod traffic;
mod tunnel;

pub use http::dry_run;
pub use lane::{
    Backlogs, BindFailure, BoundListener, CheckKind, CheckSockets, Checks, ConnGuard, Cursor, Event, Idle,
    ListenersBeside, Local, SESSION, Slice, StreamReport, THREADS, administer, answer, bind, bind_beside,
    bind_listener, change, checks_beside, current_of, end_stream, end_streams, find, find_check, hashing,
    listen_again, log_check, log_globally, offline, panic_stream, reason, say, set_maxconn, set_weight,
    slice, stopped, tell_of_check, warn,
};
pub use message_buffer::MessageBuffer;
pub use rules::{SettingsOf, proxy_info, tls_info};
pub use scopes::table_millis;
pub use server::{TlsGuard, has_agreed_on_h2};
pub use session::Session;
