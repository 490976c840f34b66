//! Poison: debug builds fill freed memory with a pattern, and check the pattern at the next allocation. So
//! the allocation that gets the memory reports a write after free, with the pool's name.

#[cfg(debug_assertions)]
use std::ptr::NonNull;

/// Byte that fills freed memory. An address made of it is not canonical, so following it faults.
#[cfg(debug_assertions)]
pub(crate) const POISON: u8 = 0xDB;

/// Fills `size` bytes at `object`.
///
/// # Safety
/// The caller may write these bytes.
#[cfg(debug_assertions)]
pub(crate) unsafe fn fill(object: NonNull<u8>, size: usize) {
    // SAFETY: by contract.
    unsafe { object.write_bytes(POISON, size) };
}

/// Checks that nothing wrote to the `size` bytes at `object` since [`fill`].
///
/// # Panics
/// If a byte differs from the pattern.
///
/// # Safety
/// The caller may read these bytes, and [`fill`] filled them.
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
