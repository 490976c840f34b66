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
mod http;
mod server;
mod session;
mod tcp;
mod tunnel;

pub use http::dry_run;
pub use server::{TlsGuard, has_agreed_on_h2};
pub use session::Session;
