#![doc = include_str!("../README.md")]

mod algorithm;
mod balancer;
mod by_key;
mod ewma;
mod first;
pub mod hash;
mod idle_pool;
pub mod key;
mod lane;
mod leastconn;
mod maglev;
mod oneshot;
mod queue;
mod random;
mod ring;
mod roundrobin;
mod sequence;
mod server_limit;
mod servers;
mod snapshot;
mod spec;
mod state;
mod sticky;
mod turns;

pub use algorithm::{Affinity, Algorithm, HashMethod, HashType, Input, Key, NoPick, Options};
pub use balancer::{Balancer, Priority, QueueFull, QueueState, ServerFull, Settings, StaticWeight, Wait};
pub use idle_pool::{IdleLimits, IdlePool, IdlePools, MAX_SEARCHED};
pub use oneshot::{Reply, Request, oneshot};
pub use queue::{QueuePosition, Waiter};
pub use server_limit::ConnSlot;
pub use servers::{Server, Servers};
pub use spec::{BuildError, Index, MAX_SERVERS, MAX_WEIGHT, ServerSpec, WEIGHT_SCALE};
pub use state::{Admin, Availability, Operation, ServerState};

/// Default number of lanes that share one queue line: about as many as share a last-level cache.
pub const LANES_PER_GROUP: usize = 8;

/// Largest default number of lines in a queue, while at most [`LANES_PER_GROUP`] lanes share one line. It is
/// small because a search for the next request reads every line.
pub const QUEUE_LINES: usize = 8;
