//! State that balancers of the same servers share. These balancers belong to generations that serve beside
//! each other.
//!
//! # Protocol
//! 1. A server has one state, one limit and one queue, whichever balancer a request uses. So `maxconn` is
//!    exact, requests are served in the order of their arrival, and a permit that a request of one balancer
//!    returns goes straight to the next request of another.
//! 2. Each balancer has its own snapshots, loads and queue for any server. A thread that changes a server
//!    holds the lock of its backend (`turn`), which all balancers of the backend share, and publishes a
//!    snapshot in each balancer that has the server before it releases the lock. So the snapshot that is
//!    published last shows the state that was set last.
//! 3. The other inputs of a limit (`minconn`, `slowstart`, `fullconn`) are those of the youngest balancer.
//! 4. A balancer is attached before any request waits in it. A thread that makes room reads after that
//!    whether the backend has several balancers, and then offers the room to their waiters as well. A request
//!    that begins to wait is counted first and looks for room after that. All of these accesses are in one
//!    order (`SeqCst`), so one of the two sees the other.
//!
//! # Cost
//! While a backend has one balancer: one load for each permit that is returned. With several: a lock of the
//! backend, and a look-up by name in each balancer. Attaching or detaching a balancer costs its servers
//! nothing.

use super::Own;
use crate::queue::Waiter;
use crate::spec::Index;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{Arc, LockClass, Mutex};

static TURN: LockClass = LockClass::new("changes of a backend's servers", 49);
static BALANCERS: LockClass = LockClass::new("balancers of a backend", LockClass::LEAF);

/// The balancers of one backend.
pub(super) struct Shared<W: Waiter> {
    /// Held by a thread while it changes servers.
    pub(super) turn: Mutex<()>,
    several: AtomicBool,
    /// Balancers that have the server, in the order of their age, the youngest last.
    balancers: Mutex<Arc<Vec<Arc<Own<W>>>>>,
}

impl<W: Waiter> Default for Shared<W> {
    fn default() -> Self {
        Self {
            turn: Mutex::new(&TURN, ()),
            several: AtomicBool::new(false),
            balancers: Mutex::new(&BALANCERS, Arc::new(Vec::new())),
        }
    }
}

impl<W: Waiter> Shared<W> {
    /// Adds `own` as the youngest balancer of these servers.
    pub(super) fn attach(&self, own: &Arc<Own<W>>) {
        self.change(|all| all.push(own.clone()));
    }

    /// Removes `own`, and returns the balancers that are left.
    pub(super) fn detach(&self, own: &Arc<Own<W>>) -> Arc<Vec<Arc<Own<W>>>> {
        self.change(|all| all.retain(|one| !Arc::ptr_eq(one, own)))
    }

    fn change(&self, to: impl FnOnce(&mut Vec<Arc<Own<W>>>)) -> Arc<Vec<Arc<Own<W>>>> {
        let mut balancers = self.balancers.lock();
        let mut all = Vec::clone(&balancers);
        to(&mut all);
        self.several.store(all.len() > 1, Ordering::SeqCst); // rule 4
        let all = Arc::new(all);
        let before = std::mem::replace(&mut *balancers, all.clone());
        drop(balancers);
        drop(before); // outside of the lock: perhaps the last that had a balancer
        all
    }

    /// Returns whether `own` is the youngest balancer.
    pub(super) fn is_youngest(&self, own: &Own<W>) -> bool {
        self.balancers.lock().last().is_some_and(|youngest| std::ptr::eq(&**youngest, own))
    }

    /// Returns whether the backend has more than one balancer.
    #[inline]
    pub(super) fn has_several(&self) -> bool {
        self.several.load(Ordering::SeqCst) // rule 4
    }
}

/// The balancers that have a given server.
pub(super) struct All<'a, W: Waiter> {
    own: &'a Own<W>,
    index: Index,
    balancers: Arc<Vec<Arc<Own<W>>>>,
}

impl<W: Waiter> Own<W> {
    /// Returns the balancers that have the server.
    pub(super) fn all(&self, index: Index) -> All<'_, W> {
        All { own: self, index, balancers: self.shared.balancers.lock().clone() }
    }
}

impl<W: Waiter> All<'_, W> {
    /// Returns each balancer and the server's index in it, the youngest last.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<Own<W>>, Index)> {
        let server = &self.own.core.servers[self.index];
        self.balancers.iter().filter_map(move |one| {
            if std::ptr::eq(&**one, self.own) {
                return Some((one, self.index));
            }
            let index = one.core.servers.by_name(&server.spec.name)?;
            Arc::ptr_eq(&one.core.servers[index].state, &server.state).then_some((one, index))
        })
    }

    /// Returns what [`iter`](Self::iter) does, without the balancer that asks.
    pub(super) fn others(&self) -> impl Iterator<Item = (&Arc<Own<W>>, Index)> {
        self.iter().filter(|(one, _)| !std::ptr::eq(&***one, self.own))
    }

    pub(super) fn youngest(&self) -> Option<(&Arc<Own<W>>, Index)> {
        self.iter().next_back()
    }
}
