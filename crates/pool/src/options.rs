//! Options of a pool, and the values derived from them.

use crate::error::PoolError;
use crate::object::BATCH;
use std::alloc::Layout;

/// Largest object, in bytes. A larger one deserves a mapping of its own.
pub const MAX_OBJECT_BYTES: usize = 1 << 30;

/// Largest alignment, in bytes: a page.
pub(crate) const MAX_ALIGN: usize = 4096;

/// Largest number of objects in a lane's cache, however small they are: 8 KiB of pointers a lane.
const MAX_CACHED: usize = if cfg!(loom) { 4 } else { 1024 };

/// Largest number of batches on a lane's surplus.
pub(crate) const MAX_SURPLUS: usize = if cfg!(loom) { 2 } else { 16 };

/// Options of a pool. [`Options::new`] or `default()` suits most pools.
///
/// ```
/// use manylane_pool::{BytePool, Options};
/// let buffers = BytePool::with("buffers", 16384, Options::new().lane_bytes(4 << 20).limit(10_000))?;
/// # let _ = buffers;
/// # Ok::<_, manylane_pool::PoolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    lane_bytes: usize,
    align: Option<usize>,
    limit: Option<usize>,
    #[cfg(feature = "global-pools")]
    global_lists: usize,
    #[cfg(feature = "global-pools")]
    global_bytes: usize,
}

impl Options {
    /// 6 MiB a lane: 384 buffers of 16 KiB. A lane that frees 64 of them at once still has all of them in its
    /// cache afterwards. A lane that frees another lane's objects has room on its surplus for all objects
    /// that the other lane allocates while the freeing lane is off its processor.
    pub const LANE_BYTES: usize = 6 << 20;

    /// Creates the default options.
    pub const fn new() -> Self {
        Self {
            lane_bytes: Self::LANE_BYTES,
            align: None,
            limit: None,
            #[cfg(feature = "global-pools")]
            global_lists: 0,
            #[cfg(feature = "global-pools")]
            global_bytes: 64 << 20,
        }
    }

    /// Sets how many bytes of free objects one lane may keep: a quarter in its cache, the rest on its surplus
    /// for itself and others. A lane keeps the one object that it freed last, however large it is. Default
    /// [`LANE_BYTES`](Self::LANE_BYTES).
    #[must_use]
    pub const fn lane_bytes(mut self, bytes: usize) -> Self {
        self.lane_bytes = bytes;
        self
    }

    /// Sets the alignment of each object, in bytes: a power of two up to 4096. Default: that of the type; 64
    /// for bytes, so that no two objects share a cache line.
    #[must_use]
    pub const fn align(mut self, align: usize) -> Self {
        self.align = Some(align);
        self
    }

    /// Sets the maximum number of objects that the pool may hold from the allocator, cached ones included.
    /// Default: no limit.
    ///
    /// Objects in the caches of other lanes count, and this lane cannot use them. So set the limit well above
    /// the need.
    #[must_use]
    pub const fn limit(mut self, objects: usize) -> Self {
        self.limit = Some(objects);
        self
    }

    /// Sets the number of global lists, which take the lanes' surplus before the allocator does (R-D2): up to
    /// 4096, each shared by some lanes. 0 means none: the default, right for a thread-aware allocator.
    #[cfg(feature = "global-pools")]
    #[must_use]
    pub const fn global_lists(mut self, lists: usize) -> Self {
        self.global_lists = lists;
        self
    }

    /// Sets how many bytes of free objects all global lists may hold together. Default 64 MiB.
    #[cfg(feature = "global-pools")]
    #[must_use]
    pub const fn global_bytes(mut self, bytes: usize) -> Self {
        self.global_bytes = bytes;
        self
    }

    /// Returns the requested alignment, or `default`.
    pub(crate) fn align_or(&self, default: usize) -> usize {
        self.align.unwrap_or(default)
    }

    /// Checks the options and computes the capacities.
    pub(crate) fn resolve(&self, pool: &str, size: usize, align: usize) -> Result<Resolved, PoolError> {
        let align = self.align.map_or(align, |requested| requested.max(align));
        if size == 0 {
            return Err(PoolError::ZeroSize { pool: pool.to_owned() });
        }
        if size > MAX_OBJECT_BYTES {
            return Err(PoolError::TooLarge { pool: pool.to_owned(), size });
        }
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(PoolError::BadAlign { pool: pool.to_owned(), align });
        }
        #[cfg(feature = "global-pools")]
        if self.global_lists > manylane_sync::lane::MAX_LANES {
            return Err(PoolError::TooManyLists { pool: pool.to_owned(), lists: self.global_lists });
        }
        if self.limit == Some(0) {
            return Err(PoolError::ZeroLimit { pool: pool.to_owned() });
        }
        let layout = Layout::from_size_align(size, align)
            .map(|layout| layout.pad_to_align())
            .map_err(|_| PoolError::TooLarge { pool: pool.to_owned(), size })?;
        let objects = self.lane_bytes / layout.size();
        let cached = (objects / 4).clamp(1, MAX_CACHED);
        // A cache has room for at least two batches, so that a full one stays half full after it spills one.
        let batch = (cached / 2).clamp(1, BATCH);
        Ok(Resolved {
            layout,
            cached,
            batch,
            surplus: (objects.saturating_sub(cached) / batch).min(MAX_SURPLUS),
            limit: self.limit,
            #[cfg(feature = "global-pools")]
            global_lists: self.global_lists,
            #[cfg(feature = "global-pools")]
            global_batches: self.global_bytes / layout.size() / batch,
        })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Values derived from a pool's options.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// Layout of each object; the size is not 0.
    pub(crate) layout: Layout,
    /// Maximum number of objects in a lane's cache; at least 1.
    pub(crate) cached: usize,
    /// Number of objects that move together; 1 to `BATCH`.
    pub(crate) batch: usize,
    /// Maximum number of batches on a lane's surplus.
    pub(crate) surplus: usize,
    /// Maximum number of objects from the allocator.
    pub(crate) limit: Option<usize>,
    /// Number of global lists.
    #[cfg(feature = "global-pools")]
    pub(crate) global_lists: usize,
    /// Maximum number of batches in all global lists.
    #[cfg(feature = "global-pools")]
    pub(crate) global_batches: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_no_more_bytes_than_its_bound_or_one_object() {
        for size in [1, 64, 1000, 16384, 1 << 20, 1 << 22] {
            for bytes in [0, 1, 1000, 1 << 16, 2 << 20, 100 << 20] {
                let resolved = Options::new().lane_bytes(bytes).resolve("test", size, 64).expect("valid");
                let objects = resolved.cached + resolved.surplus * resolved.batch;
                assert!(
                    objects == 1 || objects * resolved.layout.size() <= bytes,
                    "size {size}, {bytes} bytes: {resolved:?}"
                );
            }
        }
    }
}
