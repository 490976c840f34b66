//! Where tasks live: blocks from the lane's cache, a pool for each size.

use crate::error::{Cause, SpawnError};
use std::alloc::Layout;
use std::ptr::NonNull;

#[cfg(not(loom))]
const CLASSES: usize = 9;
/// Bytes of the smallest and the largest block that comes from a pool. A larger task comes from the global allocator:
/// such a future is a mistake more often than not (an array across an await).
#[cfg(not(loom))]
const SMALLEST: usize = 64;
#[cfg(not(loom))]
const LARGEST: usize = SMALLEST << (CLASSES - 1);

/// Free blocks of one size that a lane keeps: 8 MiB, so that a burst of ten thousand small tasks finds them again.
#[cfg(not(loom))]
const LANE_BYTES: usize = 8 << 20;

#[cfg(not(loom))]
static POOLS: std::sync::OnceLock<[manylane_pool::BytePool; CLASSES]> = std::sync::OnceLock::new();

#[cfg(not(loom))]
#[cold]
#[inline(never)]
fn make_pools() -> &'static [manylane_pool::BytePool; CLASSES] {
    POOLS.get_or_init(|| {
        std::array::from_fn(|class| {
            let size = SMALLEST << class;
            let options = manylane_pool::Options::new().lane_bytes(LANE_BYTES);
            manylane_pool::BytePool::with(&format!("task {size}"), size, options)
                .expect("the sizes are constants above zero")
        })
    })
}

/// The pool for `layout`; a constant for each type of task.
#[cfg(not(loom))]
const fn class_of(layout: Layout) -> Option<usize> {
    if layout.size() > LARGEST || layout.align() > 64 {
        return None;
    }
    let mut class = 0;
    while SMALLEST << class < layout.size() {
        class += 1;
    }
    Some(class)
}

/// Memory for a task. Models take it from the allocator: the pool has models of its own.
#[inline(always)] // the layout is a constant where it is called: one pool, and no result in memory
pub(crate) fn take(layout: Layout) -> Result<NonNull<u8>, SpawnError> {
    #[cfg(not(loom))]
    if let Some(class) = class_of(layout) {
        let pools = match POOLS.get() {
            Some(pools) => pools,
            None => make_pools(),
        };
        return match pools[class].alloc() {
            Ok(block) => Ok(block.into_raw()),
            Err(error) => Err(SpawnError(Cause::Pool(error))),
        };
    }
    // SAFETY: a task has a header, so its size is not 0.
    NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or(SpawnError(Cause::Memory))
}

/// Gives it back, on any lane.
///
/// # Safety
/// `memory` came from [`take`] with the same layout, and nobody uses it any more.
#[inline(always)] // as above
pub(crate) unsafe fn give(memory: NonNull<u8>, layout: Layout) {
    #[cfg(not(loom))]
    if let Some(class) = class_of(layout) {
        // SAFETY: by contract; the layout decides the pool, in `take` too, which made the pools.
        return unsafe { POOLS.get().unwrap_unchecked()[class].free_raw(memory) };
    }
    // SAFETY: by contract.
    unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
}

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_pool_that_fits() {
        let class = |size| class_of(Layout::from_size_align(size, 16).expect("valid"));
        assert_eq!([1, 64, 65, 16384].map(class), [Some(0), Some(0), Some(1), Some(8)]);
        assert_eq!(class(16385), None);
        assert_eq!(class_of(Layout::from_size_align(8, 128).expect("valid")), None);
    }
}
