//! Debug builds fill freed memory with a pattern, and check it when the memory is used again: a write after
//! free is told with the pool's name, by the next allocation that gets the memory.

#[cfg(debug_assertions)]
use std::ptr::NonNull;

/// What freed memory is filled with. An address made of it is not canonical, so following one faults.
#[cfg(debug_assertions)]
pub(crate) const POISON: u8 = 0xDB;

/// Fills `size` bytes at `object`.
///
/// # Safety
/// They are the caller's to write.
#[cfg(debug_assertions)]
pub(crate) unsafe fn fill(object: NonNull<u8>, size: usize) {
    // SAFETY: by contract.
    unsafe { object.write_bytes(POISON, size) };
}

/// Checks that nobody wrote to the `size` bytes at `object` since [`fill`].
///
/// # Panics
/// When somebody did.
///
/// # Safety
/// They are the caller's to read, and were filled.
#[cfg(debug_assertions)]
pub(crate) unsafe fn check(object: NonNull<u8>, size: usize, pool: &str) {
    // SAFETY: by contract.
    let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), size) };
    if let Some(offset) = bytes.iter().position(|byte| *byte != POISON) {
        panic!(
            "pool `{pool}`: byte {offset} of a free object was written to (0x{:02x}): \
             something still used it after it was freed",
            bytes[offset]
        );
    }
}
