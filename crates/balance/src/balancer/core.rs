//! What picks and changes work on: a balancer without its queues.

use super::change::Changes;
use crate::algorithm::{Algorithm, HashMethod, HashType, Options};
use crate::gate::Gates;
use crate::lane::{LaneState, Lanes, Wants};
use crate::servers::Servers;
use crate::snapshot::Snapshot;
use crate::spec::Index;
use manylane_sync::{LockClass, Mutex, PerLane, Published};

static CHANGES: LockClass = LockClass::new("changes of a backend's servers", 50);

pub(crate) struct Core {
    pub(crate) servers: Servers,
    pub(crate) algorithm: Algorithm,
    pub(crate) options: Options,
    pub(crate) snapshot: Published<Snapshot>,
    pub(super) changes: Mutex<Changes>,
    pub(crate) lanes: Lanes,
    pub(crate) gates: Gates,
}

impl Core {
    pub(super) fn new(servers: Servers, algorithm: Algorithm, options: Options) -> Self {
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
        let gates = Gates::new(&servers);
        let first = Snapshot::new(0, &servers, &algorithm, options.all_backups);
        gates.set_members(&first.by_rank);
        Self {
            snapshot: Published::new(first),
            changes: Mutex::new(&CHANGES, Changes::default()),
            lanes: PerLane::new(Box::new(move |_| LaneState::new(count, seed, wants))),
            gates,
            servers,
            algorithm,
            options,
        }
    }

    /// Whether the server has a limit of requests.
    #[inline]
    pub(crate) fn is_limited(&self, index: Index) -> bool {
        self.servers[index].spec.maxconn != 0
    }

    /// The lane has one more request on the server.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn begin(&self, index: Index) {
        let own = self.lanes.own();
        own.begin(index.get());
        if let Some(least) = &own.least {
            least.update(index.get(), own.seen(index.get()));
        }
    }

    /// The lane has one less.
    #[inline]
    #[cfg_attr(manylane_sim, track_caller)]
    pub(crate) fn end(&self, index: Index) {
        let own = self.lanes.own();
        own.end(index.get());
        if let Some(least) = &own.least {
            least.update(index.get(), own.seen(index.get()));
        }
    }

    pub(crate) fn total_load(&self) -> u64 {
        // No lane ends another's requests, so none is below zero.
        self.lanes.iter().map(|(_, lane)| lane.total.get()).sum()
    }
}
