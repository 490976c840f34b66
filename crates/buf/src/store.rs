//! Where clusters, proxies and ring blocks come from: one byte pool per size, for the whole process.
//!
//! The pools cache per lane, so taking and giving back on one lane touches no line that others write.

use crate::error::Error;
use crate::header::Header;
use crate::segment::Segment;
use manylane_pool::BytePool;

/// Payload bytes of the size classes of clusters, ascending. 2 KiB: a request head and most packets; 16 KiB:
/// a TLS record, or a read of a bulk transfer.
pub const CLUSTER_SIZES: [usize; 2] = [2048, 16384];

/// The most bytes that one cluster holds.
pub const MAX_CLUSTER: usize = CLUSTER_SIZES[CLUSTER_SIZES.len() - 1];

/// Segments of the ring blocks that a chain grows through.
pub(crate) const RING_SIZES: [usize; 6] = [16, 64, 256, 1024, 4096, 16384];

/// The most segments that one chain holds: 256 MiB in clusters of 16 KiB. The bound stops a peer that makes
/// us queue tiny pieces without end.
pub const MAX_SEGMENTS: usize = RING_SIZES[RING_SIZES.len() - 1];

pub(crate) struct Store {
    pub(crate) clusters: [BytePool; CLUSTER_SIZES.len()],
    pub(crate) proxies: BytePool,
    pub(crate) rings: [BytePool; RING_SIZES.len()],
}

impl Store {
    fn new() -> Self {
        let pool = |name: &'static str, size: usize| {
            BytePool::new(name, size).expect("the sizes are constants above zero")
        };
        let cluster = |class: usize| size_of::<Header>() + CLUSTER_SIZES[class];
        let ring = |class: usize| size_of::<Segment>() * RING_SIZES[class];
        Self {
            clusters: [pool("cluster 2k", cluster(0)), pool("cluster 16k", cluster(1))],
            proxies: pool("external", size_of::<Header>()),
            rings: [
                pool("chain 16", ring(0)),
                pool("chain 64", ring(1)),
                pool("chain 256", ring(2)),
                pool("chain 1k", ring(3)),
                pool("chain 4k", ring(4)),
                pool("chain 16k", ring(5)),
            ],
        }
    }
}

manylane_sync::lazy_static! {
    static STORE: Store = Store::new();
}

/// The pools. Cost: one load that tells that they exist.
#[inline]
pub(crate) fn store() -> &'static Store {
    &STORE
}

/// Clusters of all sizes that the calling lane took, less those that it gave back. Bytes that change lanes
/// are counted as taken on one and as given back on the other, so it may be negative.
pub fn clusters_here() -> i64 {
    store().clusters.iter().map(|pool| pool.used_here()).sum()
}

/// Clusters in use, on all lanes. Cost: two lines of each lane.
pub fn clusters() -> i64 {
    store().clusters.iter().map(|pool| pool.used()).sum()
}

/// The size class for a cluster of at least `size` bytes.
#[inline]
pub(crate) fn class_of(operation: &'static str, size: usize) -> Result<u8, Error> {
    if size == 0 {
        return Err(Error::EmptyCluster);
    }
    match CLUSTER_SIZES.iter().position(|&payload| size <= payload) {
        Some(class) => Ok(class as u8),
        None => Err(Error::TooLong { operation, wanted: size, limit: MAX_CLUSTER }),
    }
}

/// A model makes its pools afresh in each execution.
#[cfg(loom)]
impl Drop for Store {
    fn drop(&mut self) {
        for pool in self.clusters.into_iter().chain(self.rings).chain([self.proxies]) {
            // SAFETY: the execution is over: loom drops its statics after the model's closure, whose threads
            // were joined and whose segments are gone.
            unsafe { pool.destroy() };
        }
    }
}
