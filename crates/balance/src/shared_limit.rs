//! Permits of a server with a `maxconn` that several balancers fill: those of generations that serve beside
//! each other.
//!
//! # Protocol
//! 1. Each balancer lets requests in by a gate of its own. The gate's limit is what the server's would be if
//!    nobody else sent requests there, less what the others serve of it.
//! 2. All limits of a server are set under its lock, and all at once, from what each gate serves then.
//!    Whoever has let requests in or ended one, or was told another limit, sets them after that
//!    ([`SharedLimit::level`]): so who is last has read all that was changed before.
//! 3. Two that take places at the same moment may both take the last one: the server serves as many more as
//!    there are lanes, until that many have ended. None is taken before it was given back.
//! 4. Who has set the limits looks whether somebody waits beside room, whichever balancer's he is, after a
//!    fence; and who begins to wait is counted, and looks at the limit after a fence. So one of both sees the
//!    other. Those who wait are let in by a lane that knows their balancer: one that not all lanes have yet
//!    [looks again](crate::Balancer::look_again) when they do.
//!
//! 5. Who lets somebody in holds the place before it is clear that there still is somebody. Whoever looks in
//!    that moment finds no room, and nobody tells him when the place is given back: that is noted, and looked
//!    at again soon ([`has_hidden_room`](crate::Balancer::has_hidden_room)).
//!
//! # Cost
//! While one balancer has the server, a load when a request begins or ends. With several a lock of the
//! server's own, and two looks at each of them; once more when a place goes to one who waits by another.

use crate::gate::Gates;
use crate::spec::Index;
use manylane_sync::atomic::{AtomicBool, Ordering, fence};
use manylane_sync::{Arc, LockClass, Mutex};

static SHARED_LIMIT: LockClass = LockClass::new("balancers of a server", LockClass::LEAF);

/// Of one server.
#[derive(Debug)]
pub(crate) struct SharedLimit {
    shared: AtomicBool,
    balancers: Mutex<Vec<Filling>>,
}

/// A balancer's gates, and the server's place there.
#[derive(Debug)]
struct Filling {
    gates: Arc<Gates>,
    index: Index,
    /// What it serves, while limits are set.
    served: u32,
}

impl Default for SharedLimit {
    fn default() -> Self {
        Self { shared: AtomicBool::new(false), balancers: Mutex::new(&SHARED_LIMIT, Vec::new()) }
    }
}

impl SharedLimit {
    /// A balancer more fills them.
    pub(crate) fn join(&self, gates: &Arc<Gates>, index: Index) {
        let mut all = self.balancers.lock();
        all.push(Filling { gates: gates.clone(), index, served: 0 });
        self.shared.store(all.len() > 1, Ordering::SeqCst);
        set_limits(&mut all);
    }

    /// It does not any more, and serves nobody.
    pub(crate) fn leave(&self, gates: &Arc<Gates>) {
        let mut all = self.balancers.lock();
        all.retain(|one| !Arc::ptr_eq(&one.gates, gates));
        self.shared.store(all.len() > 1, Ordering::SeqCst);
        set_limits(&mut all);
    }

    /// Whether several do.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Sets the limits of all (rule 2). Whether somebody waits beside room (rule 4).
    pub(crate) fn level(&self) -> bool {
        let mut all = self.balancers.lock();
        set_limits(&mut all);
        fence(Ordering::SeqCst); // pairs with those of `enqueue` and `WaitingForAny::add`
        all.iter().any(|one| one.gates.could_let_in(one.index))
    }

    /// A balancer's limit is `alone` if nobody else sends requests to the server. What its limit was.
    pub(crate) fn set_limit(&self, gates: &Arc<Gates>, index: Index, alone: u32) -> u32 {
        let mut all = self.balancers.lock();
        let gate = gates.of(index);
        let before = gate.limit();
        gate.set_alone(alone);
        set_limits(&mut all);
        before
    }
}

/// Rule 2.
fn set_limits(all: &mut [Filling]) {
    let mut total = 0_u32;
    for one in &mut *all {
        one.served = one.gates.of(one.index).count().served;
        total = total.saturating_add(one.served);
    }
    for one in all {
        one.gates.leave_to_others(one.index, total - one.served);
    }
}
