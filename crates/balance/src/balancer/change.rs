//! What changes servers: checks, operators, time. Each change publishes a new snapshot; picks wait for nobody.

use super::Balancer;
use crate::snapshot::Snapshot;
use crate::spec::{Index, MAX_WEIGHT};
use crate::state::{Admin, Operation};
use manylane_sched::Time;
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
}

/// A weight that this server cannot have now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticWeight {
    /// The algorithm is static: a server has its configured weight, or 0.
    Static(u16),
    /// Above [`MAX_WEIGHT`].
    OutOfRange(u16),
}

impl fmt::Display for StaticWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(configured) => write!(
                f,
                "the backend's algorithm is static: a server's weight can only be 0 or its configured {configured}"
            ),
            Self::OutOfRange(weight) => write!(f, "weight {weight} is out of range: use 0 to {MAX_WEIGHT}"),
        }
    }
}

impl std::error::Error for StaticWeight {}

impl Balancer {
    /// Sets a server's weight: 0 sends it no new requests.
    ///
    /// # Errors
    /// [`StaticWeight`]: above 256, or neither 0 nor the configured one where the algorithm is static.
    pub fn set_weight(&self, index: Index, weight: u16, now: Time) -> Result<(), StaticWeight> {
        let server = &self.servers[index];
        if weight > MAX_WEIGHT {
            return Err(StaticWeight::OutOfRange(weight));
        }
        if self.algorithm.is_static() && weight != 0 && weight != server.spec.weight {
            return Err(StaticWeight::Static(server.spec.weight));
        }
        self.change(index, now, || server.state.set_weight(weight));
        Ok(())
    }

    /// What checks say. A server that was down and comes up begins its slow start.
    pub fn set_operation(&self, index: Index, operation: Operation, now: Time) {
        let state = &self.servers[index].state;
        self.change(index, now, || state.set_operation(operation));
    }

    /// What the operator says. A server that was in maintenance and comes back begins its slow start.
    pub fn set_admin(&self, index: Index, admin: Admin, now: Time) {
        let state = &self.servers[index].state;
        self.change(index, now, || state.set_admin(admin));
    }

    fn change(&self, index: Index, now: Time, change: impl FnOnce()) {
        let mut changes = self.changes.lock();
        let Self { servers, .. } = self;
        let (state, slowstart) = (&servers[index].state, servers[index].spec.slowstart);
        let served = state.serves_its_own();
        change();
        changes.warming.retain(|&warming| warming != index || state.serves_its_own());
        if !state.serves_its_own() {
            state.begin_warming(None);
        } else if !served && !slowstart.is_zero() {
            state.begin_warming(Some(now));
            changes.warming.push(index);
        }
        state.update_effective(slowstart, now, !self.algorithm.is_static());
        self.publish(&mut changes);
    }

    fn publish(&self, changes: &mut Changes) {
        changes.version += 1;
        self.snapshot.replace(Snapshot::new(
            changes.version,
            &self.servers,
            &self.algorithm,
            self.options.all_backups,
        ));
    }

    /// Moves slow starts on. Gives when it wants to be called again; `None`: when something changed.
    pub fn tick(&self, now: Time) -> Option<Time> {
        let mut changes = self.changes.lock();
        if changes.warming.is_empty() {
            return None;
        }
        let mut next = Time::MAX;
        let mut warming = std::mem::take(&mut changes.warming);
        warming.retain(|&index| {
            let (state, slowstart) = (&self.servers[index].state, self.servers[index].spec.slowstart);
            let done = state.warmth(slowstart, now) >= 1.0;
            if done {
                state.begin_warming(None);
            }
            state.update_effective(slowstart, now, !self.algorithm.is_static());
            next = next.min(now + (slowstart / STEPS).max(SHORTEST_STEP));
            !done
        });
        changes.warming = warming;
        self.publish(&mut changes);
        (!changes.warming.is_empty()).then_some(next)
    }
}
