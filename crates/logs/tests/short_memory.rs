//! A ring for which there is no memory leaves the reserve alone. A program of its own, since the reserve and
//! its allocator are those of the process.
#![cfg(not(any(loom, manylane_sim)))]

use manylane_logs::Ring;
use manylane_pool::reserve::{self, Reserving};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Reserving<System> = Reserving(System);

#[test]
fn a_ring_that_is_too_large_does_not_make_memory_short() {
    const TOO_LARGE: usize = isize::MAX as usize; // no address space has so much
    assert!(!Ring::fits(TOO_LARGE));
    assert!(reserve::keep(8 << 20));
    assert!(Ring::fits(1 << 20));
    assert!(!Ring::fits(TOO_LARGE));
    assert!(!reserve::is_short());
}
