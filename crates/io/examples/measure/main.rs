//! Measures the cost of forwarding a keep-alive request:
//! `measure [--requests N] [--rounds N] [--connections N]`.
//!
//! Requests of 100 bytes and responses of 1 KiB go through a forwarder, one request at a time on each
//! connection. Measures the processor time of the forwarder's process, and its own count of system calls, for
//! the C programs in `bench/c`, and for the example `forward` with each driver and with splicing. Contestants
//! take turns in each round. The table shows the least and the median of the rounds, and the ratio to the C
//! program of the same driver within a round, since the clock of a shared machine changes between rounds.
#![allow(unsafe_code)] // the clock of another process

#[cfg(not(any(loom, manylane_sim)))]
mod real;

#[cfg(not(any(loom, manylane_sim)))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    real::main()
}

#[cfg(any(loom, manylane_sim))]
fn main() {} // models have no system calls
