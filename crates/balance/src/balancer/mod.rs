//! A backend's balancer: its servers, its algorithm, and what changes them.

mod change;
mod pick;

pub use change::StaticWeight;

use crate::algorithm::{Algorithm, HashMethod, HashType, Input, NoPick, Options};
use crate::gate::{Gates, Released};
use crate::lane::{LaneState, Lanes, Wants};
use crate::servers::Servers;
use crate::snapshot::Snapshot;
use crate::spec::Index;
use change::Changes;
use manylane_sched::Time;
use manylane_sync::{LockClass, Mutex, PerLane, Published, Reader};
use std::fmt;
use std::time::Duration;

static CHANGES: LockClass = LockClass::new("changes of a backend's servers", 50);

/// Chooses among the servers of one backend. Shared by all lanes; no lock is taken by anything but changes of servers.
pub struct Balancer {
    servers: Servers,
    algorithm: Algorithm,
    options: Options,
    snapshot: Published<Snapshot>,
    changes: Mutex<Changes>,
    lanes: Lanes,
    gates: Gates,
}

/// The server has no room: it serves as many requests as it may, or others wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the server serves as many requests as its maxconn allows: let the request wait in a queue",
        )
    }
}

impl std::error::Error for Full {}

impl Balancer {
    /// A balancer over `servers`.
    pub fn new(servers: Servers, algorithm: Algorithm, options: Options) -> Self {
        let consistent =
            matches!(algorithm, Algorithm::Hash(HashType { method: HashMethod::Consistent, .. }));
        let wants = Wants {
            view: matches!(
                algorithm,
                Algorithm::LeastConn | Algorithm::Random { .. } | Algorithm::Ewma { .. }
            ) || consistent && options.balance_factor != 0,
            least: algorithm == Algorithm::LeastConn,
            times: matches!(algorithm, Algorithm::Ewma { .. }),
        };
        let (count, seed) = (servers.len(), options.seed);
        Self {
            snapshot: Published::new(Snapshot::new(0, &servers, &algorithm, options.all_backups)),
            changes: Mutex::new(&CHANGES, Changes::default()),
            lanes: PerLane::new(Box::new(move |_| LaneState::new(count, seed, wants))),
            gates: Gates::new(&servers),
            servers,
            algorithm,
            options,
        }
    }

    /// Its servers.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Chooses a server that has room, or by key the one that the key belongs to. Nothing is counted yet: [`take`](Self::take) follows.
    ///
    /// Cost: see the crate's table; no lock, no line that other lanes write except those of servers with a limit.
    ///
    /// # Errors
    /// [`NoPick`] tells whether waiting helps.
    #[inline]
    pub fn pick(&self, reader: &Reader, input: &Input<'_>) -> Result<Index, NoPick> {
        pick::pick(self, self.snapshot.load(reader), self.lanes.own(), input)
    }

    /// Begins a request on a server. [`release`](Self::release) must follow on this lane when it ended.
    ///
    /// # Errors
    /// [`Full`] when the server has a limit and no room: pick another, or queue.
    #[inline]
    pub fn take(&self, reader: &Reader, index: Index) -> Result<(), Full> {
        if self.servers[index].spec.maxconn != 0 && !self.gates.enter(index) {
            return Err(Full);
        }
        self.count(reader, index);
        Ok(())
    }

    /// Ends a request that was begun on this lane.
    #[inline]
    pub fn release(&self, reader: &Reader, index: Index) {
        let own = self.lanes.own();
        own.end(index.get());
        if let Some(least) = &own.least {
            least.update(index.get(), own.seen(index.get()), self.snapshot.load(reader));
        }
        if self.servers[index].spec.maxconn != 0 {
            self.free(index);
        }
    }

    fn free(&self, index: Index) {
        match self.gates.of(index).release() {
            Released::Freed { was_full: true } => self.gates.mark_room(index),
            Released::Freed { was_full: false } | Released::HandedOver => {}
        }
    }

    #[inline]
    fn count(&self, reader: &Reader, index: Index) {
        let own = self.lanes.own();
        own.begin(index.get());
        if let Some(least) = &own.least {
            least.update(index.get(), own.seen(index.get()), self.snapshot.load(reader));
        }
    }

    /// Tells how long the server took to answer a request. Used by `ewma`, ignored by the others.
    #[inline]
    pub fn report(&self, index: Index, took: Duration, now: Time) {
        if let Some(times) = &self.lanes.own().times {
            times.report(index.get(), took, now);
        }
    }

    /// Requests on a server and in its queue, all lanes together.
    ///
    /// Cost: a line of each lane; for reports.
    pub fn load(&self, index: Index) -> u64 {
        self.lanes.iter().map(|(_, lane)| u64::from(lane.loads.get(index.get()))).sum()
    }

    /// Requests on all servers and in their queues, all lanes together. Cost: a line of each lane.
    pub fn total_load(&self) -> u64 {
        // Lanes that end each other's requests do not exist, so no lane is below zero.
        self.lanes.iter().map(|(_, lane)| lane.total.get()).sum()
    }
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer")
            .field("algorithm", &self.algorithm)
            .field("options", &self.options)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}
