#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Its modules make system calls, so models and simulations leave all of them out; the crates below have
// models of the state that lanes share.
#![cfg(not(any(loom, manylane_sim)))]

#[cfg(test)]
mod bounds;
mod client;
pub mod explain;
mod filters;
mod flow;
mod forward;
mod h2_counts;
mod http;
mod lane;
mod message_buffer;
mod origin;
mod panics;
mod rules;
mod run;
mod scopes;
mod server;
mod session;
mod tcp;
mod traffic;
mod tunnel;

pub use http::dry_run;
pub use lane::{
    Backlogs, BindFailure, BoundListener, Cursor, ListenersBeside, Local, Slice, StreamReport, administer,
    answer, bind, bind_beside, bind_listener, change, end_stream, end_streams, find, listen_again, offline,
    panic_stream, set_maxconn, set_weight, slice, stopped, warn,
};
pub use run::{NotRenamed, PreviousAddress, accept, bound, relocate, rename, renew_ocsp, set_gate};
