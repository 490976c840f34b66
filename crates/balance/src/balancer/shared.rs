//! What balancers share that have the same server: those of generations that serve beside each other.
//!
//! # Protocol
//! 1. A server's state, its gate and its queue are one, whichever balancer a request came by. So `maxconn`
//!    is exact, who came first is served first, and a permit that one balancer's request gives back is
//!    handed to the next of another without a detour.
//! 2. Snapshots, loads and the queue for any server are each balancer's own. Who changes a server does so
//!    under the lock of its backend, which all balancers of its servers have (`Core::turn`), and publishes a
//!    snapshot in each of them before it gives the lock back: what is published last shows what was set last.
//! 3. What else decides on a limit (`minconn`, `slowstart`, `fullconn`) is as the youngest balancer has it.
//! 4. A balancer is attached before anybody waits there. Who makes room reads behind that whether the server
//!    has several balancers, and offers the room to those who wait by the others, too; who begins to wait
//!    looks for room behind being counted. All of this is one order (`SeqCst`): one of both sees the other.
//!
//! # Cost
//! While one balancer has the server, a load when a permit is given back. With several, a lock of the
//! server's own and a look at each of them.

use super::Own;
use crate::queue::{Queue, Waiter};
use crate::spec::Index;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{Arc, LockClass, Mutex};
use std::sync::OnceLock;

static BALANCERS: LockClass = LockClass::new("balancers of a server", LockClass::LEAF);

/// Of one server.
pub(super) struct SharedServer<W: Waiter> {
    /// Those who wait for it, where a balancer limits it.
    queue: OnceLock<Queue<W>>,
    several: AtomicBool,
    /// The youngest is the last.
    balancers: Mutex<Arc<Vec<Attached<W>>>>,
}

/// A balancer, and the server's place there.
pub(super) struct Attached<W: Waiter> {
    pub(super) own: Arc<Own<W>>,
    pub(super) index: Index,
}

impl<W: Waiter> Clone for Attached<W> {
    fn clone(&self) -> Self {
        Self { own: self.own.clone(), index: self.index }
    }
}

impl<W: Waiter> SharedServer<W> {
    pub(super) fn new() -> Self {
        Self {
            queue: OnceLock::new(),
            several: AtomicBool::new(false),
            balancers: Mutex::new(&BALANCERS, Arc::new(Vec::new())),
        }
    }

    /// Those who wait for it.
    pub(super) fn queue(&self) -> &Queue<W> {
        self.queue.get().expect("only servers with a limit have those who wait")
    }

    /// One more has it, the youngest.
    pub(super) fn attach(&self, own: &Arc<Own<W>>, index: Index) {
        if own.core.is_limited(index) {
            self.queue.get_or_init(|| own.core.queue());
        }
        let mut balancers = self.balancers.lock();
        let mut all = Vec::clone(&balancers);
        all.push(Attached { own: own.clone(), index });
        self.several.store(all.len() > 1, Ordering::SeqCst); // rule 4
        *balancers = Arc::new(all);
    }

    /// It has it no more. Those that are left.
    pub(super) fn detach(&self, own: &Arc<Own<W>>) -> Arc<Vec<Attached<W>>> {
        let mut balancers = self.balancers.lock();
        let left: Vec<_> = balancers.iter().filter(|one| !Arc::ptr_eq(&one.own, own)).cloned().collect();
        self.several.store(left.len() > 1, Ordering::SeqCst);
        let left = Arc::new(left);
        let before = std::mem::replace(&mut *balancers, left.clone());
        drop(balancers);
        drop(before); // outside of the lock: perhaps the last that had it
        left
    }

    /// Whether several have it.
    #[inline]
    pub(super) fn has_several(&self) -> bool {
        self.several.load(Ordering::SeqCst) // rule 4
    }

    /// All that have it.
    pub(super) fn all(&self) -> Arc<Vec<Attached<W>>> {
        self.balancers.lock().clone()
    }
}
