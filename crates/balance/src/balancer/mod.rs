//! A backend's balancer: its servers, its algorithm, its queues, and what changes them.

mod change;
mod core;
mod limit;
mod pick;
mod shared;
mod waiting;

pub use change::{Settings, StaticWeight};
pub(crate) use pick::Pick;
pub use waiting::{Priority, QueueFull, Turn, Wait};

use self::core::Core;
use self::shared::Shared;
use crate::algorithm::{Algorithm, Input, NoPick, Options};
use crate::gate::Gates;
use crate::queue::{Queue, Waiter};
use crate::servers::Servers;
use crate::spec::{BuildError, Index, ServerSpec};
use manylane_sched::Time;
use manylane_sync::{Arc, Reader};
use std::fmt;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::Duration;

/// Chooses among the servers of one backend, and lets requests wait for them. Shared by all lanes.
///
/// `W` is what wakes a waiting request: a [`Waker`], a [`TaskId`](manylane_sched::TaskId).
pub struct Balancer<W: Waiter = Waker> {
    own: Arc<Own<W>>,
}

/// A balancer, as others have it that share servers with it ([`shared`]).
struct Own<W: Waiter> {
    core: Core,
    shared: Arc<Shared<W>>,
    /// Those who wait for a server, where a balancer limits it.
    queues: Box<[Arc<OnceLock<Queue<W>>>]>,
    /// For any server.
    any: Queue<W>,
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
        // The youngest may be the only one that limits a server.
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
                server.state.gate.set_limit(u32::MAX);
            }
        }
    }

    /// A balancer that takes this one's place: with the same algorithm and options, and the servers of
    /// `specs`, of which those for whom `stays` holds are this one's servers at the same places. They go
    /// on as they are: their states, weights, limits and queues are the same for both from now on, and
    /// requests that one of both sends there count as load for the other.
    ///
    /// # Errors
    /// As of [`Servers::new`].
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
        // What changes meanwhile would be in neither's snapshot.
        let turn = own.shared.turn.lock();
        let core = Core::new(servers, own.core.algorithm, own.core.options, Some(&own.core));
        let next = Self::of(core, own.shared.clone(), queues);
        drop(turn);
        next.own.adapt_all(now);
        Ok(next)
    }

    /// The servers for which `of_before` says which of `before`'s they are, of the same name, go on as they
    /// are there: states, weights, limits and queues are the same for both balancers from now on. Before the
    /// first request.
    ///
    /// # Panics
    /// When the balancer is in use already.
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
                state.set_maxconn(spec.maxconn); // nobody went by what it was
            }
            if spec.slowstart.is_zero() && state.is_warming() {
                state.begin_warming(None);
                state.update_effective(spec.slowstart, now, false);
            }
            own.core.servers.set_state(index, state);
            own.queues[index.get()] = before.queues[then.get()].clone();
        }
        own.core.gates = Gates::new(&own.core.servers);
        self.attach();
        self.own.core.publish();
        drop(turn);
        self.own.adapt_all(now);
    }

    /// Whether that server of `other` is the same as that one of this balancer: what changes it changes it
    /// for both.
    pub fn shares(&self, index: Index, other: &Self, of_other: Index) -> bool {
        let (own, other) = (&self.own.core.servers[index], &other.own.core.servers[of_other]);
        Arc::ptr_eq(&own.state, &other.state)
    }

    /// Sets [`Options::fullconn`], which may follow from limits that are known later; before the first
    /// request.
    ///
    /// # Panics
    /// When the balancer is in use already.
    pub fn set_fullconn(&mut self, fullconn: u32) {
        self.detach();
        let own = Arc::get_mut(&mut self.own).expect("a balancer is set up before it is used");
        own.core.options.fullconn = fullconn;
        self.attach();
    }

    /// Its servers.
    pub fn servers(&self) -> &Servers {
        &self.own.core.servers
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.own.core.algorithm
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
        pick::pick(&self.own.core, self.own.core.snapshot.load(reader), self.own.core.lanes.own(), input)
    }

    /// Begins a request on a server. [`release`](Self::release) must follow on this lane when it ended.
    ///
    /// # Errors
    /// [`Full`] when the server has a limit and no room: pick another, or queue.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn take(&self, index: Index, now: Time) -> Result<(), Full> {
        if self.own.core.is_limited(index) {
            self.own.enter(index, now)?;
        }
        self.own.core.begin(index);
        Ok(())
    }

    /// Ends a request that was begun on this lane, and wakes the next who waits for its place.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub fn release(&self, index: Index) {
        self.own.core.end(index);
        if self.own.core.is_limited(index) {
            self.own.free(index);
        }
    }

    /// Tells how long the server took to answer a request. Used by `ewma`, ignored by the others.
    #[inline]
    pub fn report(&self, index: Index, took: Duration, now: Time) {
        if let Some(times) = &self.own.core.lanes.own().times {
            times.report(index.get(), took, now);
        }
    }

    /// Requests on a server and in its queue, all lanes together.
    ///
    /// Cost: a line of each lane; for reports.
    pub fn load(&self, index: Index) -> u64 {
        self.own
            .core
            .all_lanes()
            .flat_map(|lanes| lanes.iter())
            .map(|(_, lane)| u64::from(lane.loads.get_any(index.get())))
            .sum()
    }

    /// Servers that new requests go to now. For rules and reports.
    pub fn serving(&self) -> impl Iterator<Item = Index> {
        self.own.core.servers.serving(self.own.core.options.all_backups)
    }

    /// Whether a server has room for one more request, and nobody who waits for it.
    #[inline]
    pub fn has_room(&self, index: Index) -> bool {
        !self.own.core.is_limited(index) || self.own.core.gates.of(index).has_room()
    }

    /// Requests on all servers and in all queues. Cost: a line of each lane.
    pub fn total_load(&self) -> u64 {
        self.own.core.total_load() + self.own.core.gates.waiting.get()
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
