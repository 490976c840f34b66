//! The known ways to share a cluster, side by side (R-B2, R-B4), for the case `cluster` and for the figures
//! in `crates/buf/README.md`. [`Ours`] is the one that ships.
//!
//! All allocate from lane-cached pools, and all handles can cover a part of the cluster. In the first three,
//! a handle is a separately allocated *node*, as in the original systems; ours is a value.

#![allow(unsafe_code)] // permitted by name (ARCHITECTURE.md)

mod leader;
mod ours;
mod proxy;
mod ring;
#[cfg(all(test, not(manylane_sim)))]
mod tests;

pub use leader::Leader;
pub use ours::Ours;
pub use proxy::Proxy;
pub use ring::Ring;

use manylane_buf::Error;
use manylane_pool::BytePool;
use manylane_sync::{LockClass, Mutex};
use std::ptr::NonNull;

/// Size of the compared clusters.
pub const CLUSTER: usize = 2048;

/// A way to share a cluster.
pub trait Design {
    /// The name in tables.
    const NAME: &'static str;
    /// A handle on a cluster, on a lane. Dropping it releases the cluster.
    type Handle;
    /// A handle in transit between lanes.
    type Sent: Send;

    /// Allocates a cluster with one handle.
    ///
    /// # Errors
    /// No memory.
    fn alloc() -> Result<Self::Handle, Error>;

    /// Makes another handle on the cluster.
    ///
    /// # Errors
    /// No memory for the node.
    fn share(handle: &Self::Handle) -> Result<Self::Handle, Error>;

    /// The address of the cluster's first byte, the same for all handles on it.
    fn address(handle: &Self::Handle) -> usize;

    /// Prepares a handle for another lane.
    fn send(handle: Self::Handle) -> Self::Sent;

    /// Takes a handle over on the calling lane.
    fn receive(sent: Self::Sent) -> Self::Handle;
}

/// The pools of the first three designs, and the ring's lock.
struct Store {
    clusters: BytePool,
    nodes: BytePool,
    proxies: BytePool,
    ring: Mutex<()>,
}

/// Last in the lock order, except for the locks of pools.
static RING: LockClass = LockClass::new("cluster ring", LockClass::LEAF - 1);

impl Store {
    fn new() -> Self {
        let pool = |name, size| BytePool::new(name, size).expect("the sizes are above zero");
        Self {
            clusters: pool("design cluster", CLUSTER),
            nodes: pool("design node", 128),
            proxies: pool("design proxy", 128),
            ring: Mutex::new(&RING, ()),
        }
    }
}

manylane_sync::lazy_static! {
    static STORE: Store = Store::new();
}

#[inline]
fn store() -> &'static Store {
    &STORE
}

/// Allocates a node from the pool.
#[inline]
fn new_node<T>(pool: &BytePool, node: T) -> Result<NonNull<T>, Error> {
    const { assert!(size_of::<T>() <= 128 && align_of::<T>() <= 64) };
    let at = pool.alloc()?.into_raw().cast::<T>();
    // SAFETY: fresh from the pool, large and aligned enough.
    unsafe { at.write(node) };
    Ok(at)
}

/// # Safety
/// `node` came from [`new_node`] with this pool, and is no longer used.
#[inline]
unsafe fn free_node<T>(pool: &BytePool, node: NonNull<T>) {
    // SAFETY: by contract.
    unsafe {
        node.drop_in_place();
        pool.free_raw(node.cast());
    }
}
