//! What a pool may be told, and what follows from it.

use crate::error::PoolError;
use crate::object::BATCH;
use std::alloc::Layout;

/// Largest object, in bytes. Beyond it an object is worth a mapping of its own.
pub const MAX_OBJECT_BYTES: usize = 1 << 30;

/// Largest alignment, in bytes: a page.
pub(crate) const MAX_ALIGN: usize = 4096;

/// Objects that a lane's cache has room for at most, however small they are: 8 KiB of pointers a lane.
const MAX_CACHED: usize = if cfg!(loom) { 4 } else { 1024 };

/// Batches that a lane's surplus has room for at most.
pub(crate) const MAX_SURPLUS: usize = if cfg!(loom) { 2 } else { 16 };

/// How a pool behaves. Start from [`Options::new`] or `default()`, which suit most.
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
    /// 6 MiB a lane: 384 buffers of 16 KiB. A lane that holds 64 and gives them all back at once still finds
    /// them in its cache afterwards; one that frees what another takes has room on its surplus for what that
    /// one takes while it is off its processor.
    pub const LANE_BYTES: usize = 6 << 20;

    /// The defaults.
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

    /// Bytes of free objects that one lane may keep: a quarter in its cache, the rest on its surplus for
    /// itself and others. The one object that it freed last is kept however large it is. Default
    /// [`LANE_BYTES`](Self::LANE_BYTES).
    #[must_use]
    pub const fn lane_bytes(mut self, bytes: usize) -> Self {
        self.lane_bytes = bytes;
        self
    }

    /// Alignment of each object, in bytes: a power of two up to 4096. Default: that of the type; 64 for
    /// bytes, so that no two objects share a cache line.
    #[must_use]
    pub const fn align(mut self, align: usize) -> Self {
        self.align = Some(align);
        self
    }

    /// Objects that the pool may have taken from the allocator at any time, cached ones included. Default: no
    /// limit.
    ///
    /// What other lanes hold in their caches counts, and cannot be used here, so set it well above what is
    /// needed.
    #[must_use]
    pub const fn limit(mut self, objects: usize) -> Self {
        self.limit = Some(objects);
        self
    }

    /// Lists that take the lanes' surplus before the allocator does (R-D2): 0 for none (the default, right
    /// where the allocator is thread-aware), else how many lists share the lanes, up to 4096.
    #[cfg(feature = "global-pools")]
    #[must_use]
    pub const fn global_lists(mut self, lists: usize) -> Self {
        self.global_lists = lists;
        self
    }

    /// Bytes of free objects in all global lists together. Default 64 MiB.
    #[cfg(feature = "global-pools")]
    #[must_use]
    pub const fn global_bytes(mut self, bytes: usize) -> Self {
        self.global_bytes = bytes;
        self
    }

    /// The alignment asked for, or `default`.
    pub(crate) fn align_or(&self, default: usize) -> usize {
        self.align.unwrap_or(default)
    }

    /// Checks the options and works out the capacities.
    pub(crate) fn resolve(&self, pool: &str, size: usize, align: usize) -> Result<Resolved, PoolError> {
        let align = self.align.map_or(align, |asked| asked.max(align));
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
        // At least two batches to a cache, so that a full one stays half full when it gives one away.
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

/// What follows from a pool's options.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// Of each object; the size is not 0.
    pub(crate) layout: Layout,
    /// Objects in a lane's cache at most; 1 at least.
    pub(crate) cached: usize,
    /// Objects that travel together; 1 to `BATCH`.
    pub(crate) batch: usize,
    /// Batches on a lane's surplus at most.
    pub(crate) surplus: usize,
    /// Objects taken from the allocator at most.
    pub(crate) limit: Option<usize>,
    /// Global lists.
    #[cfg(feature = "global-pools")]
    pub(crate) global_lists: usize,
    /// Batches in all global lists at most.
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
