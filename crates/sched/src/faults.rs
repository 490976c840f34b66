//! Handling of fault signals.

use std::ptr::null_mut;

/// Makes SIGSEGV and SIGBUS end the process at once, from any source. The standard library's handlers, which
/// report stack overflows, expect that the same instruction fails again, so they ignore the first such signal
/// that another process sends.
pub fn end_by_faults() {
    // SAFETY: zeros are a valid `sigaction`: the default, no flags, an empty mask.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the action is complete and runs no code of this program. The call fails for neither signal.
        unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
    }
}
