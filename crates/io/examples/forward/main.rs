//! A forwarder of raw TCP: `forward LISTEN TARGET [splice]`; the driver by `MANYLANE_DRIVER`. One lane.
//!
//! Forwards each direction by reference, or with `splice` without moving the bytes into the program. Prints
//! its cost when its standard input ends: the example `measure` reads that.

#[cfg(not(any(loom, manylane_sim)))]
mod real;

#[cfg(not(any(loom, manylane_sim)))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    real::main()
}

#[cfg(any(loom, manylane_sim))]
fn main() {} // models have no system calls
