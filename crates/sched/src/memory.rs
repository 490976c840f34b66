//! Memory of tasks: blocks from the lane's cache, one pool for each size.
//!
//! Sizes are multiples of a line up to four lines, then four sizes for each doubling: a task of more than 256
//! bytes wastes at most a fifth of its block, a smaller one at most a line.

use crate::error::{Cause, SpawnError};
use std::alloc::Layout;
use std::ptr::NonNull;

/// Bytes of a line: the smallest block, and the unit of all sizes.
#[cfg(not(loom))]
const LINE: usize = 64;
#[cfg(not(loom))]
const CLASSES: usize = 28;
/// Bytes of the largest pooled block. A larger task comes from the global allocator: such a future is mostly
/// a mistake (an array across an await).
#[cfg(not(loom))]
const LARGEST: usize = 16384;

/// Bytes of free blocks of one size that a lane keeps; of small blocks the pool keeps some 1,500 at most. All
/// sizes together, after bursts in each of them, take 84 MiB.
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
            let size = size_of_class(class);
            let options = manylane_pool::Options::new().lane_bytes(LANE_BYTES);
            manylane_pool::BytePool::with(&format!("task {size}"), size, options)
                .expect("the sizes are constants above zero")
        })
    })
}

/// Bytes of the blocks of a pool.
#[cfg(not(loom))]
const fn size_of_class(class: usize) -> usize {
    if class < 4 {
        return LINE * (class + 1);
    }
    let step = 1 << ((class - 4) / 4);
    LINE * step * (5 + (class - 4) % 4)
}

/// Returns the pool for `layout`: a constant for each type of task.
#[cfg(not(loom))]
const fn class_of(layout: Layout) -> Option<usize> {
    if layout.size() > LARGEST || layout.align() > LINE {
        return None;
    }
    let lines = layout.size().div_ceil(LINE);
    if lines <= 4 {
        return Some(lines.saturating_sub(1));
    }
    // 2^doubling < lines <= 2^(doubling + 1), and doubling >= 2.
    let doubling = (lines - 1).ilog2() as usize;
    let step = 1 << (doubling - 2);
    Some(4 * (doubling - 2) + 3 + (lines - (1 << doubling)).div_ceil(step))
}

/// Allocates memory for a task. Models use the global allocator, since the pool has models of its own.
#[inline(always)] // a constant layout gives one pool, and no result in memory
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
    // SAFETY: the layouts of all callers have a size: a task has a header, and `boxed` asks for at least a
    // byte.
    NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or(SpawnError(Cause::Memory))
}

/// Frees the memory, on any lane.
///
/// # Safety
/// `memory` came from [`take`] with the same layout, and nothing uses it any more.
#[inline(always)] // as above
pub(crate) unsafe fn give(memory: NonNull<u8>, layout: Layout) {
    #[cfg(not(loom))]
    if let Some(class) = class_of(layout) {
        // SAFETY: by contract. `take` made the pools, and chose this one, since the layout decides.
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
        assert_eq!(class(LARGEST + 1), None);
        assert_eq!(class_of(Layout::from_size_align(8, 128).expect("valid")), None);
        for size in 1..=LARGEST {
            let class = class(size).expect("a pool");
            assert!(size <= size_of_class(class), "{size} bytes do not fit into pool {class}");
            assert!(
                class == 0 || size > size_of_class(class - 1),
                "{size} bytes fit into the pool before {class}"
            );
        }
        assert_eq!([CLASSES - 1, 4, 3].map(size_of_class), [LARGEST, 320, 256]);
    }
}
