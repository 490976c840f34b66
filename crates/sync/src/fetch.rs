//! A prefetch hint for a cache line that the caller is about to write.

/// Prefetches the cache line at `pointer` for writing, without waiting for it. For lines that a lane reads
/// and then writes after another lane wrote them: the read alone would move the line once, in shared state,
/// and the write a second time. Two prefetched lines also move in parallel; two locked instructions wait for
/// one line after the other.
///
/// This is a hint: it reads and writes nothing, accepts any address, and does nothing on processors without
/// such an instruction. The simulator charges it as a write.
///
/// Cost: a nanosecond if the core already owns the line.
#[inline(always)]
#[cfg_attr(manylane_sim, track_caller)]
pub fn fetch_to_write<T>(pointer: *const T) {
    #[cfg(manylane_sim)]
    manylane_sim::access(pointer.addr(), 1, manylane_sim::Access::Store, std::panic::Location::caller());
    #[cfg(all(target_arch = "x86_64", not(any(loom, manylane_sim, miri))))]
    // SAFETY: the instruction changes neither memory nor registers nor flags, and ignores an unmapped
    // address. Processors of this architecture that lack it execute it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(any(loom, manylane_sim, miri))))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    let _ = pointer;
}
