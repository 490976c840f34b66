//! An echo server: `echo [ADDRESS]`, by default 127.0.0.1:7000; the driver by `MANYLANE_DRIVER`.

#[cfg(not(any(loom, manylane_sim)))]
mod real;

#[cfg(not(any(loom, manylane_sim)))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    real::main()
}

#[cfg(any(loom, manylane_sim))]
fn main() {} // models have no system calls
