#![doc = include_str!("../README.md")]

mod algorithm;
mod balancer;
mod ewma;
mod first;
mod gate;
mod hand;
pub mod hash;
pub mod key;
mod lane;
mod leastconn;
mod maglev;
mod queue;
mod random;
mod ring;
mod roundrobin;
mod seats;
mod sequence;
mod servers;
mod shelf;
mod snapshot;
mod spec;
mod state;

pub use algorithm::{Affinity, Algorithm, HashMethod, HashType, Input, Key, NoPick, Options};
pub use balancer::{Balancer, Full, Priority, QueueFull, StaticWeight, Turn, Wait};
pub use hand::{Asked, Giver, hand};
pub use queue::{Ticket, Waiter};
pub use servers::{Server, Servers};
pub use shelf::{Depot, LOOKED_AT, PlaceId, Shelf, ShelfLimits};
pub use spec::{BuildError, Index, MAX_SERVERS, MAX_WEIGHT, ServerSpec, WEIGHT_SCALE};
pub use state::{Admin, Operation, ServerState, Standing};

/// Lanes whose requests queue together at most, by default: about as many as share a last-level cache.
pub const LANES_PER_GROUP: usize = 8;

/// Lines of a queue by default, as long as not more than [`LANES_PER_GROUP`] lanes share one: who looks for
/// the next one looks at each.
pub const QUEUE_LINES: usize = 8;
