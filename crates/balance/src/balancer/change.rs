//! What changes servers: checks, operators, time. Each change publishes a new snapshot; picks wait for
//! nobody.

use super::Balancer;
use super::core::Core;
use crate::algorithm::{Algorithm, Options};
use crate::queue::Waiter;
use crate::ring::Ring;
use crate::servers::Servers;
use crate::snapshot::Snapshot;
use crate::spec::{Index, MAX_WEIGHT};
use crate::state::{Admin, Operation, Standing};
use manylane_sched::Time;
use manylane_sync::atomic::{Ordering, fence};
use manylane_sync::{Arc, MutexGuard};
use std::fmt;
use std::time::Duration;

/// Steps of a slow start.
const STEPS: u32 = 20;
/// The shortest step.
const SHORTEST_STEP: Duration = Duration::from_millis(20);

/// What whoever changes servers keeps, under the lock.
#[derive(Debug, Default)]
pub(super) struct Changes {
    version: u64,
    /// Servers in slow start.
    warming: Vec<Index>,
    /// The ring of all servers, for consistent hashing: snapshots share it.
    ring: Option<Arc<Ring>>,
}

/// A weight that this server cannot have now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticWeight {
    /// The algorithm is static: a server has its configured weight, or 0.
    Static(u16),
    /// Above [`MAX_WEIGHT`].
    OutOfRange(u16),
}

/// Versions of one balancer: nobody changes servers so often.
const VERSIONS: u64 = 1 << 40;

impl Changes {
    /// Those of a balancer that follows another: its versions are others, and what warms up there goes on
    /// here.
    pub(super) fn follow(&mut self, before: &Self) {
        self.version = (before.version / VERSIONS + 1) * VERSIONS;
        self.warming.clone_from(&before.warming);
    }

    /// The snapshot of how servers are now.
    pub(super) fn snapshot(
        &mut self,
        servers: &Servers,
        algorithm: &Algorithm,
        options: &Options,
    ) -> Snapshot {
        Snapshot::new(self.version, servers, algorithm, options.all_backups, &mut self.ring)
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

impl<W: Waiter> Balancer<W> {
    /// Sets a server's weight: 0 sends it no new requests.
    ///
    /// # Errors
    /// [`StaticWeight`]: above 256, or neither 0 nor the configured one where the algorithm is static.
    pub fn set_weight(&self, index: Index, weight: u16, now: Time) -> Result<(), StaticWeight> {
        let server = &self.core.servers[index];
        if weight > MAX_WEIGHT {
            return Err(StaticWeight::OutOfRange(weight));
        }
        if self.core.algorithm.is_static() && weight != 0 && weight != server.spec.weight {
            return Err(StaticWeight::Static(server.spec.weight));
        }
        let changes = self.core.changes.lock();
        let served = server.state.serves_its_own();
        server.state.set_weight(weight);
        self.changed(changes, index, served, now);
        Ok(())
    }

    /// What checks say. A server that was down and comes up begins its slow start.
    pub fn set_operation(&self, index: Index, operation: Operation, now: Time) {
        self.update(index, now, |standing| Standing { operation, ..standing });
    }

    /// What the operator says. A server that was in maintenance and comes back begins its slow start.
    pub fn set_admin(&self, index: Index, own: Admin, now: Time) {
        self.update(index, now, |standing| Standing { own, ..standing });
    }

    /// Changes how a server is. How it was, and how it is: nobody else changes it in between.
    pub fn update(
        &self,
        index: Index,
        now: Time,
        to: impl FnOnce(Standing) -> Standing,
    ) -> (Standing, Standing) {
        let state = &self.core.servers[index].state;
        let changes = self.core.changes.lock();
        let before = state.standing();
        let after = to(before);
        if before != after {
            state.set_standing(after);
            self.changed(changes, index, before.serves(), now);
        }
        (before, after)
    }

    /// A server is not what it was: those who pick, and those who wait, have to know.
    fn changed(&self, mut changes: MutexGuard<'_, Changes>, index: Index, served: bool, now: Time) {
        let Core { servers, algorithm, .. } = &self.core;
        let (state, slowstart) = (&servers[index].state, servers[index].spec.slowstart);
        let serves = state.serves_its_own();
        if served != serves {
            changes.warming.retain(|&warming| warming != index);
            let warms = serves && !slowstart.is_zero();
            state.begin_warming(warms.then_some(now));
            if warms {
                changes.warming.push(index);
            }
        }
        state.update_effective(slowstart, now, !algorithm.is_static());
        self.core.publish(&mut changes);
        drop(changes);
        self.adapt(index, now);
        fence(Ordering::SeqCst); // see `enqueue`, and `WaitingForAny::add`
        if served && !serves && self.core.is_limited(index) {
            self.dismiss(index);
        }
        self.offer_all(); // others may take part now: backups
    }

    /// Sets a server's `maxconn`; 0 for no limit. Whether it has one that can be set: one without a limit in
    /// the file is not counted on any line that lanes share, and cannot have one.
    pub fn set_maxconn(&self, index: Index, maxconn: u32, now: Time) -> bool {
        let limited = self.core.is_limited(index);
        if limited {
            self.core.servers[index].state.set_maxconn(maxconn);
            self.adapt(index, now);
        }
        limited
    }

    /// Looks at the servers' states again: the balancer that this one [follows](Self::follow) may have
    /// changed them since.
    pub fn refresh(&self, now: Time) {
        let Core { servers, .. } = &self.core;
        let mut changes = self.core.changes.lock();
        changes.warming =
            servers.iter().filter(|(_, server)| server.state.is_warming()).map(|(index, _)| index).collect();
        self.core.publish(&mut changes);
        drop(changes);
        for (index, _) in servers.iter().filter(|(index, _)| self.core.is_limited(*index)) {
            self.adapt(index, now);
        }
        fence(Ordering::SeqCst); // see `enqueue`, and `WaitingForAny::add`
        let limited = self.core.servers.iter().filter(|(index, _)| self.core.is_limited(*index));
        for (index, _) in limited.filter(|(_, server)| !server.state.serves_its_own()) {
            self.dismiss(index);
        }
        self.offer_all();
    }

    /// Moves slow starts on. Gives when it wants to be called again; `None`: when a server's state was
    /// changed. Costs nothing where no server has one.
    pub fn tick(&self, now: Time) -> Option<Time> {
        let Core { servers, algorithm, warms, .. } = &self.core;
        if !warms {
            return None;
        }
        let mut changes = self.core.changes.lock();
        let warming = changes.warming.clone();
        if warming.is_empty() {
            return None;
        }
        let mut next = Time::MAX;
        changes.warming.retain(|&index| {
            let (state, slowstart) = (&servers[index].state, servers[index].spec.slowstart);
            let done = state.warmth(slowstart, now) >= 1.0;
            if done {
                state.begin_warming(None);
            } else {
                next = next.min(now + (slowstart / STEPS).max(SHORTEST_STEP));
            }
            state.update_effective(slowstart, now, !algorithm.is_static());
            !done
        });
        self.core.publish(&mut changes);
        drop(changes);
        for index in warming {
            self.adapt(index, now);
        }
        (next != Time::MAX).then_some(next)
    }
}

impl Core {
    fn publish(&self, changes: &mut Changes) {
        changes.version += 1;
        let snapshot = changes.snapshot(&self.servers, &self.algorithm, &self.options);
        self.gates.set_members(&snapshot.by_rank);
        self.snapshot.replace(snapshot);
    }
}
