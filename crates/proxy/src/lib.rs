#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod conn_limit;
pub mod meter;
mod rate;

pub use conn_limit::ConnLimit;
pub use rate::Rate;

// Modules that make system calls are left out of models and simulations; the crates below have models of the
// state that lanes share.
#[cfg(not(any(loom, manylane_sim)))]
mod client;
#[cfg(not(any(loom, manylane_sim)))]
mod clock;
#[cfg(not(any(loom, manylane_sim)))]
mod connect_timings;
#[cfg(not(any(loom, manylane_sim)))]
pub mod counts;
#[cfg(not(any(loom, manylane_sim)))]
mod filters;
#[cfg(not(any(loom, manylane_sim)))]
mod flow;
#[cfg(not(any(loom, manylane_sim)))]
pub mod generation;
#[cfg(not(any(loom, manylane_sim)))]
mod h2_counts;
#[cfg(not(any(loom, manylane_sim)))]
mod http;
#[cfg(not(any(loom, manylane_sim)))]
pub mod invalid;
#[cfg(not(any(loom, manylane_sim)))]
mod lane;
#[cfg(not(any(loom, manylane_sim)))]
mod panics;
#[cfg(not(any(loom, manylane_sim)))]
pub mod process_stats;
#[cfg(not(any(loom, manylane_sim)))]
mod rules;
#[cfg(not(any(loom, manylane_sim)))]
mod run;
#[cfg(not(any(loom, manylane_sim)))]
mod scopes;
#[cfg(not(any(loom, manylane_sim)))]
mod server;
#[cfg(not(any(loom, manylane_sim)))]
mod session;
#[cfg(not(any(loom, manylane_sim)))]
mod side;
#[cfg(not(any(loom, manylane_sim)))]
mod tcp;
#[cfg(not(any(loom, manylane_sim)))]
mod termination;

#[cfg(not(any(loom, manylane_sim)))]
pub use generation::{Generation, MOST_LANES, pages};
#[cfg(not(any(loom, manylane_sim)))]
pub use lane::{
    AtWork, Backlogs, Beside, BindFailure, BoundListener, Cursor, Local, Slice, administer, answer, bind,
    bind_beside, bind_listener, change, end_stream, end_streams, find, listen_again, panic_stream,
    set_maxconn, set_weight, slice, stopped, warn,
};
#[cfg(not(any(loom, manylane_sim)))]
pub use run::{NotRenamed, Relocated, accept, bound, relocate, rename, set_gate};
#[cfg(not(any(loom, manylane_sim)))]
pub use termination::{Cause, Phase, Termination};
