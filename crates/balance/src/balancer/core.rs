//! The part of a balancer that picks and changes work on: everything but its queues.

use super::change::Changes;
use crate::algorithm::{Algorithm, Options};
use crate::lane::{BLOCK, LaneState, Lanes};
use crate::queue::{Queue, Waiter};
use crate::server_limit::ServerLimits;
use crate::servers::Servers;
use crate::snapshot::Snapshot;
use crate::spec::Index;
use crate::{LANES_PER_GROUP, QUEUE_LINES};
use manylane_sync::atomic::{AtomicU32, Ordering};
use manylane_sync::{Arc, LockClass, Mutex, PerLane, Published};

static CHANGES: LockClass = LockClass::new("snapshots of a balancer", 50);

pub(crate) struct Core {
    pub(crate) servers: Servers,
    pub(crate) algorithm: Algorithm,
    pub(crate) options: Options,
    /// True if some server has a `slowstart`.
    pub(super) warms: bool,
    pub(crate) snapshot: Published<Snapshot>,
    pub(super) changes: Mutex<Changes>,
    /// Loads of each lane, shared with the balancers that this one follows: all of them load the same
    /// servers.
    pub(crate) lanes: Arc<Lanes>,
    /// Loads of earlier balancers whose tables were too small for this server list. A request that began
    /// there ends there.
    pub(crate) earlier: Vec<Arc<Lanes>>,
    /// Number of servers that `lanes` has slots for.
    capacity: usize,
    pub(crate) server_limits: ServerLimits,
}

impl Core {
    pub(super) fn new(
        servers: Servers,
        algorithm: Algorithm,
        options: Options,
        before: Option<&Self>,
    ) -> Self {
        let wants = (algorithm.row().wants)(&options);
        let mut changes = Changes::default();
        let mut earlier = before.map_or_else(Vec::new, |before| before.earlier.clone());
        let (lanes, capacity) = match before.filter(|before| servers.len() <= before.capacity) {
            Some(before) => (before.lanes.clone(), before.capacity),
            None => {
                earlier.extend(before.map(|before| before.lanes.clone()));
                // Loads are stored in blocks of `BLOCK` servers. Rounding up leaves slots for servers that
                // are added later, and a list that outgrew its table gets at least twice the slots.
                let most = before.map_or(0, |before| 2 * before.capacity);
                let (capacity, seed) = (servers.len().max(most).next_multiple_of(BLOCK), options.seed);
                let of_before = earlier.clone();
                // Written once by each lane. A lane's number will not do: a thread that served no request
                // may have the first.
                let lanes_before = AtomicU32::new(0);
                let lane: Box<dyn Fn(_) -> _ + Send + Sync> = Box::new(move |_| {
                    let order = lanes_before.fetch_add(1, Ordering::Relaxed);
                    LaneState::new(capacity, order, seed, wants, &of_before)
                });
                (Arc::new(PerLane::new(lane)), capacity)
            }
        };
        if let Some(before) = before {
            changes.follow(&before.changes.lock());
        }
        let server_limits = ServerLimits::new(&servers);
        let first = changes.snapshot(&servers, &algorithm, &options);
        server_limits.set_members(&first.by_rank);
        let warms = servers.iter().any(|(_, server)| !server.spec.slowstart.is_zero());
        Self {
            warms,
            snapshot: Published::new(first),
            changes: Mutex::new(&CHANGES, changes),
            lanes,
            earlier,
            capacity,
            server_limits,
            servers,
            algorithm,
            options,
        }
    }

    /// Creates a queue with the configured number of lanes.
    pub(super) fn queue<W: Waiter>(&self) -> Queue<W> {
        let Options { lanes, lanes_per_group, .. } = self.options;
        let lanes_per_group = match lanes_per_group {
            0 => lanes.div_ceil(QUEUE_LINES).clamp(1, LANES_PER_GROUP),
            some => some,
        };
        Queue::new(lanes, lanes_per_group)
    }

    /// Returns whether the server has a limit of requests.
    #[inline]
    pub(crate) fn is_limited(&self, index: Index) -> bool {
        self.servers[index].spec.maxconn != 0
    }

    /// Counts one more request of this lane on the server.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn begin(&self, index: Index) {
        let own = self.lanes.own();
        own.begin(index.get());
        if let Some(least) = &own.least {
            least.update(index.get(), own.load(index.get()));
        }
    }

    /// Counts one request of this lane less on the server.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn end(&self, index: Index) {
        let own = self.lanes.own();
        own.end(index.get());
        if let Some(least) = &own.least {
            least.update(index.get(), own.load(index.get()));
        }
    }

    pub(crate) fn total_load(&self) -> u64 {
        // A lane ends only its own requests, so no lane's total is below zero.
        self.all_lanes().flat_map(|lanes| lanes.iter()).map(|(_, lane)| lane.total.get()).sum()
    }

    /// Returns the load tables that may hold requests of these servers, the current one first.
    pub(crate) fn all_lanes(&self) -> impl Iterator<Item = &Lanes> {
        std::iter::once(&self.lanes).chain(&self.earlier).map(|lanes| &**lanes)
    }
}
