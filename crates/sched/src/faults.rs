//! Signals of faults.

use std::ptr::null_mut;

/// SIGSEGV and SIGBUS end the process at once, wherever they come from. The standard library has handlers for
/// both, to tell of stacks that are too small: they expect that the same instruction fails again, and so
/// swallow the first signal that another process sends.
pub fn end_by_faults() {
    // SAFETY: zeros are a valid `sigaction`: the default, no flags, an empty mask.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the action is whole and runs no code of ours. The call fails for no signal of these.
        unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
    }
}
