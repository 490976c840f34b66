//! An object from a lane-cached pool has the count, the free function and its argument (R-B4).
//!
//! 1. The proxy lives as long as the cluster. `refs` counts the nodes that point to it.

use super::{CLUSTER, Design, free_node, new_node, store};
use manylane_buf::Error;
use manylane_sync::Refs;
use std::ptr::NonNull;

/// See the module's documentation.
#[derive(Debug)]
pub struct Proxy;

struct Shared {
    refs: Refs,
    cluster: NonNull<u8>,
    free: unsafe fn(NonNull<u8>, usize, usize),
    argument: usize,
}

struct Node {
    shared: NonNull<Shared>,
}

/// A node that points to a proxy.
#[derive(Debug)]
pub struct Handle(NonNull<Node>);

// SAFETY: nodes do not change; only the count of a proxy does, and it is atomic.
unsafe impl Send for Handle {}

impl Handle {
    #[inline]
    fn shared(&self) -> NonNull<Shared> {
        // SAFETY: the handle keeps its node alive.
        unsafe { self.0.as_ref() }.shared
    }
}

/// # Safety
/// `data` is a cluster of the designs' pool that is no longer used.
unsafe fn free_cluster(data: NonNull<u8>, _size: usize, _argument: usize) {
    // SAFETY: by contract.
    unsafe { store().clusters.free_raw(data) };
}

impl Design for Proxy {
    const NAME: &'static str = "proxy";
    type Handle = Handle;
    type Sent = Handle;

    fn alloc() -> Result<Handle, Error> {
        let pools = store();
        let cluster = pools.clusters.alloc()?.into_raw();
        let shared = Shared { refs: Refs::new(), cluster, free: free_cluster, argument: 0 };
        let made = new_node(&pools.proxies, shared).and_then(|shared| {
            new_node(&pools.nodes, Node { shared }).inspect_err(|_| {
                // SAFETY: allocated above, and not shared.
                unsafe { free_node(&pools.proxies, shared) }
            })
        });
        // SAFETY: allocated above, and only passed to calls that have failed.
        made.map(Handle).inspect_err(|_| unsafe { free_cluster(cluster, CLUSTER, 0) })
    }

    fn share(handle: &Handle) -> Result<Handle, Error> {
        let shared = handle.shared();
        let node = new_node(&store().nodes, Node { shared })?;
        // SAFETY: rule 1: the handle keeps the proxy alive.
        unsafe { shared.as_ref() }.refs.hold();
        Ok(Handle(node))
    }

    fn address(handle: &Handle) -> usize {
        // SAFETY: rule 1: the handle keeps the proxy alive.
        unsafe { handle.shared().as_ref() }.cluster.addr().get()
    }

    fn send(handle: Handle) -> Handle {
        handle
    }

    fn receive(sent: Handle) -> Handle {
        sent
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let pools = store();
        let shared = self.shared();
        // SAFETY: rule 1; the free function gets what it was made for, once.
        unsafe {
            free_node(&pools.nodes, self.0);
            let proxy = shared.as_ref();
            if proxy.refs.release() {
                (proxy.free)(proxy.cluster, CLUSTER, proxy.argument);
                free_node(&pools.proxies, shared);
            }
        }
    }
}
