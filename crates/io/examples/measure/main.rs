//! What forwarding a keep-alive request costs: `measure [--requests N] [--rounds N] [--connections N]`.
//!
//! Requests of 100 bytes and responses of 1 KiB go through a forwarder, one request at a time on each
//! connection. Measured is the processor time of the forwarder's process, and its system calls as it counts
//! them, for: the C programs in `bench/c`, and the example `forward` with each driver and with splicing.
//! Contestants take turns in each round; the table has the least and the median of the rounds, and how ours
//! compares with the C program of the same driver within a round: the clock of a shared machine
//! changes between rounds.
#![allow(unsafe_code)] // the clock of another process

#[cfg(not(any(loom, manylane_sim)))]
mod real;

#[cfg(not(any(loom, manylane_sim)))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    real::main()
}

#[cfg(any(loom, manylane_sim))]
fn main() {} // a model has no system
