//! What balancers share that have the same servers: those of generations that serve beside each other.
//!
//! # Protocol
//! 1. A server's state, its gate and its queue are one, whichever balancer a request came by. So `maxconn`
//!    is exact, who came first is served first, and a permit that one balancer's request gives back is
//!    handed to the next of another without a detour.
//! 2. Snapshots, loads and the queue for any server are each balancer's own. Who changes a server does so
//!    under the lock of its backend (`turn`), which all of its balancers have, and publishes a snapshot in
//!    each that has the server before it gives the lock back: what is published last shows what was set last.
//! 3. What else decides on a limit (`minconn`, `slowstart`, `fullconn`) is as the youngest balancer has it.
//! 4. A balancer is attached before anybody waits there. Who makes room reads behind that whether the
//!    backend has several balancers, and offers the room to those who wait by the others, too; who begins to
//!    wait looks for room behind being counted. All of this is one order (`SeqCst`): one of both sees the
//!    other.
//!
//! # Cost
//! While a backend has one balancer, a load when a permit is given back. With several, a lock of the
//! backend's own and a look-up by name in each of them. To begin or end a balancer costs nothing for its
//! servers.

use super::Own;
use crate::queue::Waiter;
use crate::spec::Index;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{Arc, LockClass, Mutex};

static TURN: LockClass = LockClass::new("changes of a backend's servers", 49);
static BALANCERS: LockClass = LockClass::new("balancers of a backend", LockClass::LEAF);

/// The balancers of one backend.
pub(super) struct Shared<W: Waiter> {
    /// For who changes servers.
    pub(super) turn: Mutex<()>,
    several: AtomicBool,
    /// The youngest is the last.
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
    /// One more balances over the servers, the youngest.
    pub(super) fn attach(&self, own: &Arc<Own<W>>) {
        self.change(|all| all.push(own.clone()));
    }

    /// It does not any more. Those that are left.
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

    /// Whether none is younger.
    pub(super) fn is_youngest(&self, own: &Own<W>) -> bool {
        self.balancers.lock().last().is_some_and(|youngest| std::ptr::eq(&**youngest, own))
    }

    /// Whether there are several.
    #[inline]
    pub(super) fn has_several(&self) -> bool {
        self.several.load(Ordering::SeqCst) // rule 4
    }
}

/// All balancers that have a server.
pub(super) struct All<'a, W: Waiter> {
    own: &'a Own<W>,
    index: Index,
    balancers: Arc<Vec<Arc<Own<W>>>>,
}

impl<W: Waiter> Own<W> {
    /// All that have the server.
    pub(super) fn all(&self, index: Index) -> All<'_, W> {
        All { own: self, index, balancers: self.shared.balancers.lock().clone() }
    }
}

impl<W: Waiter> All<'_, W> {
    /// Each with the server's place there, the youngest last.
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

    /// The same without the one that asks.
    pub(super) fn others(&self) -> impl Iterator<Item = (&Arc<Own<W>>, Index)> {
        self.iter().filter(|(one, _)| !std::ptr::eq(&***one, self.own))
    }

    pub(super) fn youngest(&self) -> Option<(&Arc<Own<W>>, Index)> {
        self.iter().next_back()
    }
}
