//! The known ways to share a cluster, side by side (R-B2, R-B4): for the case `cluster` and for the figures
//! in `crates/buf/README.md`. What ships is [`Ours`].
//!
//! All take their memory from lane-cached pools, and all handles can see a part of the cluster. In the first
//! three a handle is a *node* in memory of its own, as in the systems they come from; ours is a value.

#![allow(unsafe_code)] // one of the rooms where `unsafe` is allowed by name (ARCHITECTURE.md)

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

/// Payload of the clusters that are compared.
pub const CLUSTER: usize = 2048;

/// A way to share a cluster.
pub trait Design {
    /// As the benchmark shows it.
    const NAME: &'static str;
    /// A handle on a cluster, on a lane. Dropping it releases the cluster.
    type Handle;
    /// A handle between lanes.
    type Sent: Send;

    /// A new cluster and its only handle.
    ///
    /// # Errors
    /// No memory.
    fn alloc() -> Result<Self::Handle, Error>;

    /// One more handle on the same cluster.
    ///
    /// # Errors
    /// No memory for the node.
    fn share(handle: &Self::Handle) -> Result<Self::Handle, Error>;

    /// The first byte of the cluster: whoever holds handles on one cluster sees one address.
    fn address(handle: &Self::Handle) -> usize;

    /// Makes a handle ready for another lane.
    fn send(handle: Self::Handle) -> Self::Sent;

    /// Takes a handle in on the calling lane.
    fn receive(sent: Self::Sent) -> Self::Handle;
}

/// What the first three take their memory from, and the lock of the ring.
struct Store {
    clusters: BytePool,
    nodes: BytePool,
    proxies: BytePool,
    ring: Mutex<()>,
}

/// Last but for the locks of the pools.
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

/// A node in memory from the pool.
#[inline]
fn new_node<T>(pool: &BytePool, node: T) -> Result<NonNull<T>, Error> {
    const { assert!(size_of::<T>() <= 128 && align_of::<T>() <= 64) };
    let at = pool.alloc()?.into_raw().cast::<T>();
    // SAFETY: fresh from the pool, large and aligned enough.
    unsafe { at.write(node) };
    Ok(at)
}

/// # Safety
/// `node` came from [`new_node`] with this pool, and nobody uses it any more.
#[inline]
unsafe fn free_node<T>(pool: &BytePool, node: NonNull<T>) {
    // SAFETY: by contract.
    unsafe {
        node.drop_in_place();
        pool.free_raw(node.cast());
    }
}
