//! Bytes as they come from a peer; shared with the tests of checks.

use manylane_buf::{CLUSTER_SIZES, Cluster, Segment};
use proptest::prelude::*;

/// Generates the cuts of a message: into single bytes, or pieces up to the size of a read; repeated. Each
/// comes with whether it is in a large cluster.
pub(crate) fn cuts() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let length = prop_oneof![4 => Just(1_usize), 2 => 1..40_usize, 1 => 1..2049_usize, 1 => 1..16_385_usize];
    prop::collection::vec((length, any::<bool>()), 1..30)
}

/// Returns received bytes in a cluster of one of the sizes that reads use.
pub(crate) fn received(bytes: &[u8], large: bool) -> Segment {
    let large = large || bytes.len() > CLUSTER_SIZES[0];
    let mut cluster = Cluster::alloc(CLUSTER_SIZES[usize::from(large)]).expect("memory");
    cluster.put(bytes);
    cluster.into_segment()
}
