//! Changes of servers by checks, operators and time. Each change publishes a new snapshot in all balancers
//! that have the server; picks wait for no lock.

use super::core::Core;
use super::{Balancer, Own};
use crate::algorithm::{Algorithm, Options};
use crate::queue::Waiter;
use crate::servers::{Server, Servers};
use crate::snapshot::{Kept, Snapshot};
use crate::spec::{Index, MAX_WEIGHT};
use crate::state::{Admin, Availability, Operation};
use manylane_sched::Time;
use manylane_sync::Arc;
use manylane_sync::MutexGuard;
use manylane_sync::atomic::{Ordering, fence};
use std::fmt;
use std::time::Duration;

/// Number of steps in a slow start.
const STEPS: u32 = 20;
/// Shortest step of a slow start.
const SHORTEST_STEP: Duration = Duration::from_millis(20);

/// State for publishing snapshots, guarded by the balancer's `changes` lock.
#[derive(Debug, Default)]
pub(super) struct Changes {
    version: u64,
    kept: Kept,
}

/// Reason why a server cannot have a weight now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticWeight {
    /// The algorithm is static: a server has its configured weight, or 0.
    Static(u16),
    /// The weight is above [`MAX_WEIGHT`].
    OutOfRange(u16),
}

/// Number of snapshot versions reserved for one balancer; no balancer sees that many changes.
const VERSIONS: u64 = 1 << 40;

impl Changes {
    /// Begins above the versions of `before`, the balancer that this one follows, so that no version occurs
    /// in both.
    pub(super) fn follow(&mut self, before: &Self) {
        self.version = (before.version / VERSIONS + 1) * VERSIONS;
    }

    /// Builds a snapshot of the servers' current state.
    pub(super) fn snapshot(
        &mut self,
        servers: &Servers,
        algorithm: &Algorithm,
        options: &Options,
    ) -> Snapshot {
        Snapshot::new(self.version, servers, algorithm, options.all_backups, &mut self.kept)
    }
}

impl fmt::Display for StaticWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(configured) => write!(
                f,
                "the backend's algorithm is static: a server's weight can only be 0 or its configured \
                    {configured}"
            ),
            Self::OutOfRange(weight) => write!(f, "weight {weight} is out of range: use 0 to {MAX_WEIGHT}"),
        }
    }
}

impl std::error::Error for StaticWeight {}

/// The settings of a server that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// State that decides whether the server takes requests.
    pub standing: Availability,
    /// Weight: 0 to [`MAX_WEIGHT`].
    pub weight: u16,
    /// `maxconn`; 0 for no limit, or where the balancer does not limit the server.
    pub maxconn: u32,
}

/// A server that was changed, and whether it served before.
type Change = (Index, bool);

impl<W: Waiter> Balancer<W> {
    /// Sets a server's weight. With weight 0, the server gets no new requests.
    ///
    /// # Errors
    /// [`StaticWeight`] if the weight is above [`MAX_WEIGHT`], or if the algorithm is static and the weight
    /// is neither 0 nor the configured one.
    pub fn set_weight(&self, index: Index, weight: u16, now: Time) -> Result<(), StaticWeight> {
        let server = &self.own.core.servers[index];
        if weight > MAX_WEIGHT {
            return Err(StaticWeight::OutOfRange(weight));
        }
        if self.own.core.algorithm.is_static() && weight != 0 && weight != server.spec.weight {
            return Err(StaticWeight::Static(server.spec.weight));
        }
        let turn = self.own.shared.turn.lock();
        let served = server.state.serves_its_own();
        server.state.set_weight(weight);
        self.own.changed(turn, &[(index, served)], now);
        Ok(())
    }

    /// Sets what checks found. A server that was down and comes up begins its slow start.
    pub fn set_operation(&self, index: Index, operation: Operation, now: Time) {
        self.update(index, now, |standing| Availability { operation, ..standing });
    }

    /// Sets what the operator ordered. A server that leaves maintenance begins its slow start.
    pub fn set_admin(&self, index: Index, own: Admin, now: Time) {
        self.update(index, now, |standing| Availability { own, ..standing });
    }

    /// Applies `to` to a server's standing, and returns the standing before and after. No other change comes
    /// between the two.
    pub fn update(
        &self,
        index: Index,
        now: Time,
        to: impl FnOnce(Availability) -> Availability,
    ) -> (Availability, Availability) {
        let state = &self.own.core.servers[index].state;
        let turn = self.own.shared.turn.lock();
        let before = state.standing();
        let after = to(before);
        if before != after {
            state.set_standing(after);
            self.own.changed(turn, &[(index, before.serves())], now);
        }
        (before, after)
    }

    /// Changes any number of servers in one step.
    pub fn update_all(&self, now: Time, to: impl Fn(Index, Settings) -> Settings) {
        let core = &self.own.core;
        let turn = self.own.shared.turn.lock();
        let mut changed = Vec::new();
        for (index, server) in core.servers.iter() {
            let state = &server.state;
            let (standing, weight, maxconn) = (state.standing(), state.weight(), state.maxconn());
            let before = Settings { standing, weight, maxconn };
            let Settings { standing, weight, maxconn } = to(index, before);
            let maxconn = if core.is_limited(index) { maxconn } else { 0 };
            if (Settings { standing, weight, maxconn }) != before {
                state.set_standing(standing);
                state.set_weight(weight.min(MAX_WEIGHT));
                state.set_maxconn(maxconn);
                changed.push((index, before.standing.serves()));
            }
        }
        if !changed.is_empty() {
            self.own.changed(turn, &changed, now);
        }
    }

    /// Sets a server's `maxconn`; 0 for no limit. Returns false, and changes nothing, for a server without a
    /// limit in the file: no shared cache line counts its requests, so it cannot get one.
    pub fn set_maxconn(&self, index: Index, maxconn: u32, now: Time) -> bool {
        let limited = self.own.core.is_limited(index);
        if limited {
            self.own.core.servers[index].state.set_maxconn(maxconn);
            self.own.adapt(index, now);
        }
        limited
    }

    /// Moves slow starts on. Returns the time of the next call; after `None`, the next call is due once a
    /// server's state has changed. Costs nothing if no server has a slow start.
    pub fn tick(&self, now: Time) -> Option<Time> {
        let own = &self.own;
        let Core { servers, algorithm, warms, .. } = &own.core;
        if !warms || !servers.iter().any(|(_, server)| server.state.is_warming()) {
            return None;
        }
        let turn = own.shared.turn.lock();
        let mut next = Time::MAX;
        let mut warming = Vec::new();
        for (index, server) in servers.iter().filter(|(_, server)| server.state.is_warming()) {
            if !own.all(index).youngest().is_some_and(|(youngest, _)| std::ptr::eq(&**youngest, &**own)) {
                continue; // rule 3
            }
            let (state, slowstart) = (&server.state, server.spec.slowstart);
            if state.warmth(slowstart, now) >= 1.0 {
                state.begin_warming(None);
            } else {
                next = next.min(now + (slowstart / STEPS).max(SHORTEST_STEP));
            }
            state.update_effective(slowstart, now, !algorithm.is_static());
            warming.push((index, false));
        }
        own.publish_for(&warming);
        drop(turn);
        for (index, _) in warming {
            own.adapt(index, now);
        }
        (next != Time::MAX).then_some(next)
    }
}

impl<W: Waiter> Own<W> {
    /// Returns whether this is the youngest balancer of its backend.
    pub(super) fn is_youngest(&self) -> bool {
        self.shared.is_youngest(self)
    }

    /// Publishes a snapshot in each balancer that has one of these servers, and returns the other balancers.
    /// The caller holds `turn`.
    fn publish_for(&self, changed: &[Change]) -> Vec<Arc<Self>> {
        let mut others: Vec<Arc<Self>> = Vec::new();
        if self.shared.has_several() {
            for (index, _) in changed {
                for (other, _) in self.all(*index).others() {
                    if !others.iter().any(|known| Arc::ptr_eq(known, other)) {
                        others.push(other.clone());
                    }
                }
            }
        }
        self.core.publish();
        others.iter().for_each(|other| other.core.publish());
        others
    }

    /// Completes a change of servers: publishes it to the picks and the waiters of all balancers.
    fn changed(&self, turn: MutexGuard<'_, ()>, changed: &[Change], now: Time) {
        for &(index, served) in changed {
            match self.all(index).youngest() {
                Some((youngest, index)) => youngest.warm(index, served, now), // rule 3
                None => self.warm(index, served, now),
            }
        }
        let others = self.publish_for(changed);
        drop(turn);
        for &(index, _) in changed {
            self.adapt(index, now);
        }
        fence(Ordering::SeqCst); // see `enqueue`, and `WaitingForAny::add`
        for &(index, served) in changed {
            if served && !self.core.servers[index].state.serves_its_own() {
                self.dismiss(index);
            }
        }
        self.offer_all(); // other servers, such as backups, may take part now
        others.iter().for_each(|other| other.offer_all());
    }

    /// Begins or ends a slow start if the server began or ceased to serve, and recomputes the effective
    /// weight.
    fn warm(&self, index: Index, served: bool, now: Time) {
        let Server { state, spec, .. } = &self.core.servers[index];
        let serves = state.serves_its_own();
        if served != serves {
            state.begin_warming((serves && !spec.slowstart.is_zero()).then_some(now));
        }
        state.update_effective(spec.slowstart, now, !self.core.algorithm.is_static());
    }
}

impl Core {
    /// Publishes the current state of the servers. The caller holds the backend's `turn`.
    pub(super) fn publish(&self) {
        let mut changes = self.changes.lock();
        changes.version += 1;
        let snapshot = changes.snapshot(&self.servers, &self.algorithm, &self.options);
        self.server_limits.set_members(&snapshot.by_rank);
        self.snapshot.replace(snapshot);
    }
}
