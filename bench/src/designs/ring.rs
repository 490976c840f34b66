//! The holders of a cluster form a ring under one mutex for all clusters: the design that R-B2 replaces.
//! OpenBSD used it before the count.
//!
//! 1. A node's links are read and written only under the mutex.
//! 2. The cluster is freed by unlinking the last node.

use super::{Design, free_node, new_node, store};
use manylane_buf::Error;
use manylane_sync::cell::UnsafeCell;
use std::ptr::NonNull;

/// See the module's documentation.
#[derive(Debug)]
pub struct Ring;

struct Node {
    cluster: NonNull<u8>,
    links: UnsafeCell<Links>, // rule 1
}

#[derive(Clone, Copy)]
struct Links {
    prev: NonNull<Node>,
    next: NonNull<Node>,
}

/// A node in a ring.
#[derive(Debug)]
pub struct Handle(NonNull<Node>);

// SAFETY: links are protected by the mutex (rule 1), and other fields do not change.
unsafe impl Send for Handle {}

/// # Safety
/// `node` is alive, and the mutex is held (rule 1).
unsafe fn links<R>(node: NonNull<Node>, f: impl FnOnce(&mut Links) -> R) -> R {
    // SAFETY: by contract; no `f` in this file calls this function.
    unsafe { node.as_ref().links.with_mut(|links| f(&mut *links)) }
}

impl Design for Ring {
    const NAME: &'static str = "ring under a mutex";
    type Handle = Handle;
    type Sent = Handle;

    fn alloc() -> Result<Handle, Error> {
        let pools = store();
        let cluster = pools.clusters.alloc()?;
        let dangling = Links { prev: NonNull::dangling(), next: NonNull::dangling() };
        let cluster = cluster.into_raw();
        match new_node(&pools.nodes, Node { cluster, links: UnsafeCell::new(dangling) }) {
            Ok(node) => {
                // SAFETY: the node is not shared yet, so rule 1 holds without the mutex.
                unsafe { links(node, |links| *links = Links { prev: node, next: node }) };
                Ok(Handle(node))
            }
            Err(error) => {
                // SAFETY: allocated above, and not shared.
                unsafe { pools.clusters.free_raw(cluster) };
                Err(error)
            }
        }
    }

    fn share(handle: &Handle) -> Result<Handle, Error> {
        let pools = store();
        let here = handle.0;
        // SAFETY: the handle keeps its node alive.
        let cluster = unsafe { here.as_ref() }.cluster;
        let links_later = UnsafeCell::new(Links { prev: here, next: here });
        let node = new_node(&pools.nodes, Node { cluster, links: links_later })?;
        let _ring = pools.ring.lock();
        // SAFETY: rule 1: the mutex is held, and nodes in the ring are alive.
        unsafe {
            let next = links(here, |links| std::mem::replace(&mut links.next, node));
            links(next, |links| links.prev = node);
            links(node, |links| *links = Links { prev: here, next });
        }
        Ok(Handle(node))
    }

    fn address(handle: &Handle) -> usize {
        // SAFETY: the handle keeps its node alive.
        unsafe { handle.0.as_ref() }.cluster.addr().get()
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
        let node = self.0;
        let ring = pools.ring.lock();
        // SAFETY: rule 1: the mutex is held, and nodes in the ring are alive.
        let alone = unsafe {
            let Links { prev, next } = links(node, |links| *links);
            let alone = next == node;
            if !alone {
                links(prev, |links| links.next = next);
                links(next, |links| links.prev = prev);
            }
            alone
        };
        drop(ring);
        // SAFETY: rule 2; the node is no longer in a ring.
        unsafe {
            if alone {
                pools.clusters.free_raw(node.as_ref().cluster);
            }
            free_node(&pools.nodes, node);
        }
    }
}
