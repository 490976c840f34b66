#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Its modules make system calls, so models and simulations leave all of them out; the crates below have
// models of the state that lanes share.
#![cfg(not(any(loom, manylane_sim)))]

mod accept;
mod acme;
mod agent;
#[cfg(test)]
mod bounds;
mod check_words;
mod checks;
mod http_answer;
mod http_client;
mod meter;
mod names;
mod ocsp;
mod peers;
mod program;
mod relocate;
mod watch;

pub use accept::{accept, bound, set_gate};
pub use ocsp::renew_ocsp;
pub use relocate::{NotRenamed, PreviousAddress, relocate, rename};

/// Pause before the next try to accept again, if the system has no descriptor or no memory for it.
const ACCEPTOR_RETRY: std::time::Duration = std::time::Duration::from_millis(100);
