//! A forwarder of raw TCP: `forward LISTEN TARGET [splice]`; the driver by `MANYLANE_DRIVER`. One lane.
//!
//! It forwards each direction by reference, or with `splice` without the bytes entering the program. What it
//! cost is said when its standard input ends: the example `measure` reads it there.

#[cfg(not(any(loom, manylane_sim)))]
mod real;

#[cfg(not(any(loom, manylane_sim)))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    real::main()
}

#[cfg(any(loom, manylane_sim))]
fn main() {} // a model has no system
