//! The balancer of a backend: its servers, its algorithm, its queues, and the operations that change them.

mod change;
mod core;
mod limit;
mod pick;
mod shared;
mod waiting;

pub use change::{Settings, StaticWeight};
pub(crate) use pick::Pick;
pub use waiting::{Priority, QueueFull, QueueState, Wait};

use self::core::Core;
use self::shared::Shared;
use crate::algorithm::{Algorithm, Input, NoPick, Options};
use crate::queue::{Queue, Waiter};
use crate::server_limit::ServerLimits;
use crate::servers::Servers;
use crate::spec::{BuildError, Index, ServerSpec};
use manylane_sched::Time;
use manylane_sync::{Arc, Reader};
use std::fmt;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::Duration;

/// Chooses among the servers of one backend and lets requests wait for them. All lanes share it.
///
/// `W` wakes a waiting request: a [`Waker`] or a [`TaskId`](manylane_sched::TaskId).
pub struct Balancer<W: Waiter = Waker> {
    own: Arc<Own<W>>,
}

/// The part of a balancer that balancers with the same servers reach through [`shared`].
struct Own<W: Waiter> {
    core: Core,
    shared: Arc<Shared<W>>,
    /// Queues of the servers, by index. Only servers that some balancer limits have one.
    queues: Box<[Arc<OnceLock<Queue<W>>>]>,
    /// Queue of the requests that any server may serve.
    any: Queue<W>,
}

/// The server has no room: it serves as many requests as its limit allows, or other requests wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFull;

impl fmt::Display for ServerFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the server serves as many requests as its maxconn allows: let the request wait in a queue",
        )
    }
}

impl std::error::Error for ServerFull {}

impl Balancer {
    /// Creates a balancer over `servers`; its queues wake requests through [`Waker`]s.
    pub fn new(servers: Servers, algorithm: Algorithm, options: Options) -> Self {
        Self::waking(servers, algorithm, options)
    }
}

impl<W: Waiter> Balancer<W> {
    /// Creates a balancer over `servers`; its queues wake requests through `W`.
    pub fn waking(servers: Servers, algorithm: Algorithm, options: Options) -> Self {
        let core = Core::new(servers, algorithm, options, None);
        let queues = core.servers.iter().map(|_| Arc::default()).collect();
        Self::of(core, Arc::default(), queues)
    }

    fn of(core: Core, shared: Arc<Shared<W>>, queues: Box<[Arc<OnceLock<Queue<W>>>]>) -> Self {
        let balancer = Self { own: Arc::new(Own { any: core.queue(), shared, queues, core }) };
        balancer.attach();
        balancer
    }

    fn attach(&self) {
        let Own { core, shared, queues, .. } = &*self.own;
        for (index, _) in core.servers.iter().filter(|(index, _)| core.is_limited(*index)) {
            queues[index.get()].get_or_init(|| core.queue());
        }
        shared.attach(&self.own);
    }

    fn detach(&self) {
        let Own { core, shared, .. } = &*self.own;
        // The youngest balancer may be the only one that limits a server.
        let limited: Vec<_> = match self.own.is_youngest() {
            true => core.servers.iter().filter(|(index, _)| core.is_limited(*index)).collect(),
            false => Vec::new(),
        };
        let left = shared.detach(&self.own);
        for (index, server) in limited.into_iter().filter(|_| !left.is_empty()) {
            if let Some((youngest, index)) = self.own.all(index).youngest()
                && !youngest.core.is_limited(index)
            {
                server.state.set_maxconn(0);
                server.state.server_limit.set_limit(u32::MAX);
            }
        }
    }

    /// Creates the balancer that replaces this one. It keeps the algorithm and the options, and takes the
    /// servers of `specs`.
    ///
    /// A server for whose position `stays` returns true is the server at the same position of this balancer.
    /// Both balancers share its state, weight, limit and queue from now on, and a request that one balancer
    /// sends there counts as load in the other.
    ///
    /// # Errors
    /// Those of [`Servers::new`].
    pub fn follow(
        &self,
        specs: impl IntoIterator<Item = ServerSpec>,
        stays: impl Fn(usize) -> bool,
        now: Time,
    ) -> Result<Self, BuildError> {
        let own = &self.own;
        let staying = |number: usize| own.core.servers.index(number).filter(|_| stays(number));
        let same = |number: usize| Some(own.core.servers[staying(number)?].state.clone());
        let servers = Servers::with_states(specs, same)?;
        let queue = |number: usize| {
            staying(number).map_or_else(Arc::default, |index| own.queues[index.get()].clone())
        };
        let queues = (0..servers.len()).map(queue).collect();
        // The lock keeps changes out until the new balancer is attached: such a change would be in neither
        // snapshot.
        let turn = own.shared.turn.lock();
        let core = Core::new(servers, own.core.algorithm, own.core.options, Some(&own.core));
        let next = Self::of(core, own.shared.clone(), queues);
        drop(turn);
        next.own.adapt_all(now);
        Ok(next)
    }

    /// Lets servers of this balancer continue servers of `before`. `of_before` maps an index of this balancer
    /// to the index of the same server in `before`; both have the same name. From now on both balancers share
    /// the server's state, weight, limit and queue.
    ///
    /// Call it before this balancer's first request.
    ///
    /// # Panics
    /// If the balancer is in use already.
    pub fn succeed(&mut self, before: &Self, of_before: impl Fn(Index) -> Option<Index>, now: Time) {
        self.detach();
        let before = &before.own;
        let own = Arc::get_mut(&mut self.own).expect("a balancer succeeds another before it is used");
        own.shared = before.shared.clone();
        let turn = before.shared.turn.lock();
        for (index, then) in (0..own.core.servers.len())
            .filter_map(|number| own.core.servers.index(number))
            .filter_map(|index| Some((index, of_before(index)?)))
            .collect::<Vec<_>>()
        {
            let state = before.core.servers[then].state.clone();
            let spec = &own.core.servers[index].spec;
            debug_assert_eq!(spec.name, before.core.servers[then].spec.name, "it is found by its name");
            if !before.core.is_limited(then) {
                state.set_maxconn(spec.maxconn); // no balancer used the old value
            }
            if spec.slowstart.is_zero() && state.is_warming() {
                state.begin_warming(None);
                state.update_effective(spec.slowstart, now, false);
            }
            own.core.servers.set_state(index, state);
            own.queues[index.get()] = before.queues[then.get()].clone();
        }
        own.core.server_limits = ServerLimits::new(&own.core.servers);
        self.attach();
        self.own.core.publish();
        drop(turn);
        self.own.adapt_all(now);
    }

    /// Returns whether server `index` of this balancer and server `of_other` of `other` are the same: a
    /// change to one is a change to the other.
    pub fn shares(&self, index: Index, other: &Self, of_other: Index) -> bool {
        let (own, other) = (&self.own.core.servers[index], &other.own.core.servers[of_other]);
        Arc::ptr_eq(&own.state, &other.state)
    }

    /// Sets [`Options::fullconn`], which may depend on limits that are known only later. Call it before the
    /// first request.
    ///
    /// # Panics
    /// If the balancer is in use already.
    pub fn set_fullconn(&mut self, fullconn: u32) {
        self.detach();
        let own = Arc::get_mut(&mut self.own).expect("a balancer is set up before it is used");
        own.core.options.fullconn = fullconn;
        self.attach();
    }

    /// Returns the servers of the backend.
    pub fn servers(&self) -> &Servers {
        &self.own.core.servers
    }

    /// Returns the balancing algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.own.core.algorithm
    }

    /// Chooses a server that has room. An algorithm by key returns the server that the key belongs to, with
    /// or without room. This counts nothing: call [`take`](Self::take) next.
    ///
    /// Cost: see the table in the crate's README. It takes no lock, and reads no cache line that other lanes
    /// write, except the lines of servers with a limit.
    ///
    /// # Errors
    /// [`NoPick`] says whether waiting helps.
    #[inline]
    pub fn pick(&self, reader: &Reader, input: &Input<'_>) -> Result<Index, NoPick> {
        pick::pick(&self.own.core, self.own.core.snapshot.load(reader), self.own.core.lanes.own(), input)
    }

    /// Begins a request on a server. The same lane must call [`release`](Self::release) when the request
    /// ends.
    ///
    /// # Errors
    /// [`ServerFull`] if the server has a limit and no room: pick another server, or queue the request.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn take(&self, index: Index, now: Time) -> Result<(), ServerFull> {
        if self.own.core.is_limited(index) {
            self.own.enter(index, now)?;
        }
        self.own.core.begin(index);
        Ok(())
    }

    /// Ends a request that began on this lane, and wakes the next request that waits for the free permit.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn release(&self, index: Index) {
        self.own.core.end(index);
        if self.own.core.is_limited(index) {
            self.own.free(index);
        }
    }

    /// Reports how long the server took to answer a request. Only `ewma` uses the value.
    #[inline]
    pub fn report(&self, index: Index, took: Duration, now: Time) {
        if let Some(times) = &self.own.core.lanes.own().times {
            times.report(index.get(), took, now);
        }
    }

    /// Returns the number of requests on a server and in its queue, over all lanes.
    ///
    /// Cost: reads one cache line of each lane; meant for reports.
    pub fn load(&self, index: Index) -> u64 {
        self.own
            .core
            .all_lanes()
            .flat_map(|lanes| lanes.iter())
            .map(|(_, lane)| u64::from(lane.loads.get_any(index.get())))
            .sum()
    }

    /// Returns the servers that receive new requests now. For rules and reports.
    pub fn serving(&self) -> impl Iterator<Item = Index> {
        self.own.core.servers.serving(self.own.core.options.all_backups)
    }

    /// Returns whether a server has room for one more request and no request waits for it.
    #[inline]
    pub fn has_room(&self, index: Index) -> bool {
        !self.own.core.is_limited(index) || self.own.core.server_limits.of(index).has_room()
    }

    /// Returns the number of requests on all servers and in all queues. Cost: reads one cache line of each
    /// lane.
    pub fn total_load(&self) -> u64 {
        self.own.core.total_load() + self.own.core.server_limits.waiting.get()
    }
}

impl<W: Waiter> Drop for Balancer<W> {
    fn drop(&mut self) {
        self.detach();
    }
}

impl<W: Waiter> fmt::Debug for Balancer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer")
            .field("algorithm", &self.own.core.algorithm)
            .field("options", &self.own.core.options)
            .field("servers", &self.own.core.servers)
            .finish_non_exhaustive()
    }
}
