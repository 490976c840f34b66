#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the crates where `unsafe` is allowed by name (ARCHITECTURE.md)

mod bytes;
mod cache;
mod error;
#[cfg(feature = "global-pools")]
mod global;
pub mod inject;
mod inner;
mod object;
mod options;
mod poison;
mod report;
#[cfg(not(any(loom, manylane_sim)))]
pub mod reserve; // only the real machine has an allocator
mod surplus;
mod typed;

/// Returns an error while memory is [short](reserve::is_short): for callers that are about to allocate for a
/// client by other means than a pool.
///
/// # Errors
/// [`Cause::Memory`]
#[inline]
pub fn check_memory() -> Result<(), AllocError> {
    #[cfg(not(any(loom, manylane_sim)))]
    if reserve::is_short() {
        return Err(reserve::SHORTAGE);
    }
    Ok(())
}

/// Returns an error if the system would be left with less than 8 MiB, and 256 KiB for each lane, beside the
/// reserve once `bytes` more are allocated. Callers use it before they allocate memory that outlives the
/// client, such as an entry of a table. With a [reserve](reserve::keep) it reads the free memory once in
/// 256 KiB of growth; without one it always succeeds. After an error it may fail without reading until
/// [`reserve::recheck`].
///
/// # Errors
/// [`Cause::Memory`]
#[inline]
pub fn check_growth(bytes: usize) -> Result<(), AllocError> {
    #[cfg(not(any(loom, manylane_sim)))]
    reserve::check_growth(bytes)?;
    let _ = bytes;
    Ok(())
}

/// Returns an error while memory is [short](reserve::is_short), or if the system cannot provide `bytes` in
/// one block: for callers that are about to let a library allocate that for a client. Allocates and frees
/// the block if there is a [reserve](reserve::keep), and otherwise nothing.
///
/// # Errors
/// [`Cause::Memory`]
pub fn check_block(bytes: usize) -> Result<(), AllocError> {
    #[cfg(not(any(loom, manylane_sim)))]
    reserve::check_block(bytes)?;
    let _ = bytes;
    Ok(())
}

/// Returns the number of bytes that the calling thread has allocated by other means than a pool while memory
/// was [short](reserve::is_short), less those that it freed meanwhile. Only differences mean something: a
/// poll that makes it grow has used the reserve, and its task should end.
#[inline]
pub fn taken_while_short() -> isize {
    #[cfg(not(any(loom, manylane_sim)))]
    return reserve::taken();
    #[cfg(any(loom, manylane_sim))]
    0
}

/// Returns an error while memory is [short](reserve::is_short), or if the system's `malloc` cannot provide
/// 256 KiB: for callers that are about to let a library in C allocate for a client. Allocates and frees that
/// much if there is a [reserve](reserve::keep), and otherwise nothing.
///
/// # Errors
/// [`Cause::Memory`]
pub fn check_foreign() -> Result<(), AllocError> {
    #[cfg(not(any(loom, manylane_sim)))]
    reserve::check_foreign()?;
    Ok(())
}

pub use bytes::{BytePool, PooledBytes};
pub use error::{AllocError, Cause, PoolError};
pub use options::{MAX_OBJECT_BYTES, Options};
pub use report::{PoolLane, PoolReport, reclaim, report, trim, used_bytes};
pub use typed::{Pool, Pooled};
