//! One of the nodes has the count (R-B4). Nodes are the only allocations.
//!
//! 1. The node that allocated the cluster is its *leader*; each other node points to it. `refs` counts all
//!    nodes, and only the leader's is used.
//! 2. A leader that is dropped before the others stays in memory until the last one is dropped.

use super::{Design, free_node, new_node, store};
use manylane_buf::Error;
use manylane_sync::Refs;
use std::ptr::NonNull;

/// See the module's documentation.
#[derive(Debug)]
pub struct Leader;

struct Node {
    cluster: NonNull<u8>,
    leader: Option<NonNull<Node>>, // `None` in the leader
    refs: Refs,                    // rule 1
}

/// A node of a group with a leader.
#[derive(Debug)]
pub struct Handle(NonNull<Node>);

// SAFETY: only the count of a node changes, and it is atomic.
unsafe impl Send for Handle {}

impl Handle {
    #[inline]
    fn leader(&self) -> NonNull<Node> {
        // SAFETY: the handle keeps its node alive.
        unsafe { self.0.as_ref() }.leader.unwrap_or(self.0)
    }
}

impl Design for Leader {
    const NAME: &'static str = "leader";
    type Handle = Handle;
    type Sent = Handle;

    fn alloc() -> Result<Handle, Error> {
        let pools = store();
        let cluster = pools.clusters.alloc()?.into_raw();
        match new_node(&pools.nodes, Node { cluster, leader: None, refs: Refs::new() }) {
            Ok(node) => Ok(Handle(node)),
            Err(error) => {
                // SAFETY: allocated above, and not shared.
                unsafe { pools.clusters.free_raw(cluster) };
                Err(error)
            }
        }
    }

    fn share(handle: &Handle) -> Result<Handle, Error> {
        let leader = handle.leader();
        // SAFETY: rule 2: the leader lives as long as any node.
        let lead = unsafe { leader.as_ref() };
        let node = new_node(
            &store().nodes,
            Node { cluster: lead.cluster, leader: Some(leader), refs: Refs::new() },
        )?;
        lead.refs.hold();
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
        let leader = self.leader();
        // SAFETY: rule 2: the leader lives until the count says that this was the last node.
        unsafe {
            if leader != self.0 {
                free_node(&pools.nodes, self.0);
            }
            if leader.as_ref().refs.release() {
                pools.clusters.free_raw(leader.as_ref().cluster);
                free_node(&pools.nodes, leader);
            }
        }
    }
}
