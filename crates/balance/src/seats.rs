//! Places of a server with a `maxconn` that several balancers fill: those of generations that serve beside each other.
//!
//! # Protocol
//! 1. Each balancer lets requests in by a gate of its own. The gate's limit is the server's less what the others serve of it.
//! 2. Whoever lets a request in or ends one by one balancer has the others [look again](crate::Balancer::look_again). Who has set a limit reads what the
//!    others serve once more: so the last who sets it has seen all that was before, and whoever comes later looks again itself.
//! 3. Two that take places at the same moment may both take the last one: the server serves as many more as there are lanes, until that many have
//!    ended. None is taken before it was given back.
//!
//! 4. A balancer that joined another one looks again when all lanes know it: what ended before was told to nobody.
//!
//! # Cost
//! While one balancer has the server, a load when a request ends. With several a lock of the server's own, and for each of them a look at the others: the square
//! of their number, which is why no more than [`MOST_SHARING`] share, the youngest.

use crate::gate::Gates;
use crate::spec::Index;
use manylane_sync::atomic::{AtomicBool, Ordering};
use manylane_sync::{Arc, LockClass, Mutex};

static SEATS: LockClass = LockClass::new("balancers of a server", LockClass::LEAF);

/// Balancers that share a server's places. What is left of older ones is not counted any more.
const MOST_SHARING: usize = 16;

/// Of one server.
#[derive(Debug)]
pub(crate) struct Seats {
    shared: AtomicBool,
    /// The gates of the balancers, and the server's place there.
    gates: Mutex<Vec<(Arc<Gates>, Index)>>,
}

impl Default for Seats {
    fn default() -> Self {
        Self { shared: AtomicBool::new(false), gates: Mutex::new(&SEATS, Vec::new()) }
    }
}

impl Seats {
    /// A balancer more fills them.
    pub(crate) fn join(&self, gates: &Arc<Gates>, index: Index) {
        let mut all = self.gates.lock();
        if all.len() == MOST_SHARING {
            all.remove(0);
        }
        all.push((gates.clone(), index));
        self.shared.store(all.len() > 1, Ordering::SeqCst);
    }

    /// It does not any more, and serves nobody.
    pub(crate) fn leave(&self, gates: &Arc<Gates>) {
        let mut all = self.gates.lock();
        all.retain(|(other, _)| !Arc::ptr_eq(other, gates));
        self.shared.store(all.len() > 1, Ordering::SeqCst);
    }

    /// Whether several do.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// How many requests the others serve.
    pub(crate) fn served_by_others(&self, own: &Arc<Gates>) -> u32 {
        let all = self.gates.lock();
        all.iter()
            .filter(|(other, _)| !Arc::ptr_eq(other, own))
            .map(|(other, index)| other.of(*index).count().served)
            .sum()
    }
}
