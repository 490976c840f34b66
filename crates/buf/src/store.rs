//! The pools of clusters, proxies and ring blocks: one byte pool for each size, for the whole process.
//!
//! The pools have a cache for each lane, so allocating and freeing on one lane touches no line that other
//! lanes write.

use crate::error::Error;
use crate::header::Header;
use crate::segment::Segment;
use manylane_pool::BytePool;

/// Payload bytes of the size classes of clusters, ascending. 2 KiB is for a request head and most packets; 16
/// KiB for a TLS record, or a read of a bulk transfer.
pub const CLUSTER_SIZES: [usize; 2] = [2048, 16384];

/// Maximum number of bytes of one cluster.
pub const MAX_CLUSTER: usize = CLUSTER_SIZES[CLUSTER_SIZES.len() - 1];

/// Numbers of segments of the ring blocks through which a chain grows.
pub(crate) const RING_SIZES: [usize; 6] = [16, 64, 256, 1024, 4096, 16384];

/// Maximum number of segments of one chain: 256 MiB in clusters of 16 KiB. The bound stops a peer that makes
/// a chain grow by tiny pieces without end.
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

/// Returns the pools. Cost: one load that shows whether they exist.
#[inline]
pub(crate) fn store() -> &'static Store {
    &STORE
}

/// Returns the number of clusters that the calling lane allocated minus those that it freed. A cluster that
/// changes lanes counts as allocated on one and freed on the other, so the number may be negative.
pub fn clusters_here() -> i64 {
    store().clusters.iter().map(|pool| pool.used_here()).sum()
}

/// Returns the number of clusters in use on all lanes. Cost: two lines of each lane.
pub fn clusters() -> i64 {
    store().clusters.iter().map(|pool| pool.used()).sum()
}

/// Returns the size class for a cluster of at least `size` bytes.
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

/// A model creates its pools in each execution.
#[cfg(loom)]
impl Drop for Store {
    fn drop(&mut self) {
        for pool in self.clusters.into_iter().chain(self.rings).chain([self.proxies]) {
            // SAFETY: the execution is over: loom drops its statics after the model's closure, which has
            // joined its threads and dropped its segments.
            unsafe { pool.destroy() };
        }
    }
}
