//! A hint for a line that is about to be written.

/// Asks for the cache line at `place` as its next writer, without waiting for it. For places that are read
/// and then written while another lane has written last: the read alone would move the line once, to be
/// shared, and the write once more. Two such lines asked for at once also come at once, where two locked
/// instructions wait for one after the other.
///
/// A hint: nothing is read or written, any address will do, and where there is no such instruction nothing is
/// done. The simulator charges it as a write.
///
/// Cost: a nanosecond where the line is there already.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
pub fn fetch_to_write<T>(place: *const T) {
    #[cfg(manylane_sim)]
    manylane_sim::access(place.addr(), 1, manylane_sim::Access::Store, std::panic::Location::caller());
    #[cfg(all(target_arch = "x86_64", not(any(loom, manylane_sim, miri))))]
    // SAFETY: it changes neither memory nor registers nor flags, and an address where nothing is mapped is
    // ignored. Processors of this architecture that do not know it take it for no operation.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(any(loom, manylane_sim, miri))))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    let _ = place;
}
