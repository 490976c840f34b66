#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the crates where `unsafe` is allowed by name (ARCHITECTURE.md)

mod chain;
mod cluster;
mod cursor;
mod deque;
mod error;
mod external;
mod header;
mod parcel;
pub mod scan;
mod segment;
mod store;

#[cfg(any(test, feature = "model"))]
mod fail;
#[cfg(any(test, feature = "model"))]
#[doc(hidden)]
pub mod model;

#[cfg(all(test, not(any(loom, manylane_sim))))]
mod tests;

pub use chain::{Chain, Spare};
pub use cluster::Cluster;
pub use cursor::Cursor;
pub use error::{Error, OutOfRange, PushError};
pub use external::{External, FreeFn, FreeIndex, MAX_FREE_FNS, Refused, RegisterError};
pub use parcel::{PackedSegment, Parcel};
pub use segment::{ReadOnly, Segment};
pub use store::{CLUSTER_SIZES, MAX_CLUSTER, MAX_SEGMENTS, clusters, clusters_here};
