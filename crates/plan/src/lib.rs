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
pub mod clock;
#[cfg(not(any(loom, manylane_sim)))]
pub mod connect_timings;
#[cfg(not(any(loom, manylane_sim)))]
pub mod counts;
#[cfg(not(any(loom, manylane_sim)))]
pub mod generation;
#[cfg(not(any(loom, manylane_sim)))]
pub mod invalid;
#[cfg(not(any(loom, manylane_sim)))]
pub mod process_stats;
#[cfg(not(any(loom, manylane_sim)))]
mod side;
#[cfg(not(any(loom, manylane_sim)))]
mod termination;

#[cfg(not(any(loom, manylane_sim)))]
pub use generation::{Generation, MOST_LANES, pages};
#[cfg(not(any(loom, manylane_sim)))]
pub use side::Side;
#[cfg(not(any(loom, manylane_sim)))]
pub use termination::{Cause, Phase, Termination};
