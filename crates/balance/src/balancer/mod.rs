//! A backend's balancer: its servers, its algorithm, its queues, and what changes them.

mod change;
mod core;
mod limit;
mod pick;
mod waiting;

pub use change::StaticWeight;
pub(crate) use pick::Pick;
pub use waiting::{Priority, QueueFull, Turn, Wait};

use self::core::Core;
use crate::algorithm::{Algorithm, Input, NoPick, Options};
use crate::queue::{Queue, Waiter};
use crate::servers::Servers;
use crate::spec::{BuildError, Index, ServerSpec};
use crate::{LANES_PER_GROUP, QUEUE_LINES};
use manylane_sched::Time;
use manylane_sync::Reader;
use manylane_sync::atomic::AtomicBool;
use std::fmt;
use std::task::Waker;
use std::time::Duration;

/// Chooses among the servers of one backend, and lets requests wait for them. Shared by all lanes.
///
/// `W` is what wakes a waiting request: a [`Waker`], a [`TaskId`](manylane_sched::TaskId).
pub struct Balancer<W: Waiter = Waker> {
    core: Core,
    /// A queue for each server that has a limit.
    queues: Box<[Option<Queue<W>>]>,
    /// For any server.
    any: Queue<W>,
    /// See [`has_hidden_room`](Self::has_hidden_room).
    hid_room: AtomicBool,
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
    /// A balancer over `servers`, whose queues wake by [`Waker`]s.
    pub fn new(servers: Servers, algorithm: Algorithm, options: Options) -> Self {
        Self::waking(servers, algorithm, options)
    }
}

impl<W: Waiter> Balancer<W> {
    /// A balancer over `servers`, whose queues wake by `W`.
    pub fn waking(servers: Servers, algorithm: Algorithm, options: Options) -> Self {
        Self::of(Core::new(servers, algorithm, options, None))
    }

    fn of(core: Core) -> Self {
        let options = &core.options;
        let lanes_per_group = match options.lanes_per_group {
            0 => options.lanes.div_ceil(QUEUE_LINES).clamp(1, LANES_PER_GROUP),
            some => some,
        };
        let queue = |(index, _)| core.is_limited(index).then(|| Queue::new(options.lanes, lanes_per_group));
        Self {
            hid_room: AtomicBool::new(false),
            queues: core.servers.iter().map(queue).collect(),
            any: Queue::new(options.lanes, lanes_per_group),
            core,
        }
    }

    /// A balancer that takes this one's place: with the same algorithm and options, and the servers of
    /// `specs`, of which those for whom `stays` holds are this one's servers at the same places. They go
    /// on as they are: their states, weights and limits are the same from now on, whichever of both
    /// changes them, requests that this one sends there count for both, and a `maxconn` holds for both
    /// together. Queues are each balancer's own.
    ///
    /// # Errors
    /// As of [`Servers::new`].
    pub fn follow(
        &self,
        specs: impl IntoIterator<Item = ServerSpec>,
        stays: impl Fn(usize) -> bool,
    ) -> Result<Self, BuildError> {
        let same = |number: usize| {
            let index = self.core.servers.index(number).filter(|_| stays(number))?;
            Some(self.core.servers[index].state.clone())
        };
        let servers = Servers::with_states(specs, same)?;
        let next = Self::of(Core::new(servers, self.core.algorithm, self.core.options, Some(&self.core)));
        for (index, _) in next.core.servers.iter().filter(|(index, _)| next.core.is_limited(*index)) {
            let limit = match next.core.servers[index].state.maxconn() {
                0 => u32::MAX, // an operator took it away
                most => most,
            };
            next.core.servers[index].state.shared_limit.set_limit(&next.core.gates, index, limit);
        }
        Ok(next)
    }

    /// That server's `maxconn` holds for this balancer and `other` together, where both have one: there it is
    /// the same server. Before the first request.
    pub fn join(&mut self, index: Index, other: &Self, of_other: Index) {
        if !(self.core.is_limited(index) && other.core.is_limited(of_other)) {
            return;
        }
        let shared_limit = other.core.servers[of_other].state.shared_limit.clone();
        let Some(state) = self.core.servers.state_mut(index) else { return };
        state.shared_limit.leave(&self.core.gates);
        shared_limit.join(&self.core.gates, index);
        state.shared_limit = shared_limit;
    }

    /// Whether that server of `other` is the same as that one of this balancer: one of both
    /// [follows](Self::follow) the other, and what changes it changes it for both.
    pub fn shares(&self, index: Index, other: &Self, of_other: Index) -> bool {
        manylane_sync::Arc::ptr_eq(&self.core.servers[index].state, &other.core.servers[of_other].state)
    }

    /// Sets [`Options::fullconn`], which may follow from limits that are known later; before the first
    /// request.
    pub fn set_fullconn(&mut self, fullconn: u32) {
        self.core.options.fullconn = fullconn;
    }

    /// Its servers.
    pub fn servers(&self) -> &Servers {
        &self.core.servers
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.core.algorithm
    }

    /// Chooses a server that has room; by key the one that the key belongs to, room or not. Nothing is
    /// counted yet: [`take`](Self::take) follows.
    ///
    /// Cost: see the crate's table; no lock, no line that other lanes write except those of servers with a
    /// limit.
    ///
    /// # Errors
    /// [`NoPick`] tells whether waiting helps.
    #[inline]
    pub fn pick(&self, reader: &Reader, input: &Input<'_>) -> Result<Index, NoPick> {
        pick::pick(&self.core, self.core.snapshot.load(reader), self.core.lanes.own(), input)
    }

    /// Begins a request on a server. [`release`](Self::release) must follow on this lane when it ended.
    ///
    /// # Errors
    /// [`Full`] when the server has a limit and no room: pick another, or queue.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn take(&self, index: Index, now: Time) -> Result<(), Full> {
        if self.core.is_limited(index) {
            self.enter(index, now)?;
        }
        self.core.begin(index);
        Ok(())
    }

    /// Ends a request that was begun on this lane, and wakes the next who waits for its place.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn release(&self, index: Index) {
        self.core.end(index);
        if self.core.is_limited(index) {
            self.free(index);
        }
    }

    /// Tells how long the server took to answer a request. Used by `ewma`, ignored by the others.
    #[inline]
    pub fn report(&self, index: Index, took: Duration, now: Time) {
        if let Some(times) = &self.core.lanes.own().times {
            times.report(index.get(), took, now);
        }
    }

    /// Requests on a server and in its queue, all lanes together.
    ///
    /// Cost: a line of each lane; for reports.
    pub fn load(&self, index: Index) -> u64 {
        self.core
            .all_lanes()
            .flat_map(|lanes| lanes.iter())
            .map(|(_, lane)| u64::from(lane.loads.get_any(index.get())))
            .sum()
    }

    /// Servers that new requests go to now. For rules and reports.
    pub fn serving(&self) -> impl Iterator<Item = Index> {
        self.core.servers.serving(self.core.options.all_backups)
    }

    /// Whether a server has room for one more request, and nobody who waits for it.
    #[inline]
    pub fn has_room(&self, index: Index) -> bool {
        !self.core.is_limited(index) || self.core.gates.of(index).has_room()
    }

    /// Requests on all servers and in all queues. Cost: a line of each lane.
    pub fn total_load(&self) -> u64 {
        self.core.total_load() + self.core.gates.waiting.get()
    }
}

impl<W: Waiter> fmt::Debug for Balancer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer")
            .field("algorithm", &self.core.algorithm)
            .field("options", &self.core.options)
            .field("servers", &self.core.servers)
            .finish_non_exhaustive()
    }
}
