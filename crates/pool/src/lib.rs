#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the crates where `unsafe` is allowed by name (ARCHITECTURE.md)

mod bytes;
mod cache;
mod error;
#[cfg(feature = "global-pools")]
mod global;
pub mod inject;
mod inner;
mod object;
mod options;
mod poison;
mod report;
#[cfg(not(any(loom, manylane_sim)))]
pub mod reserve; // only the real machine has an allocator
mod surplus;
mod typed;

pub use bytes::{BytePool, PooledBytes};
pub use error::{AllocError, Cause, PoolError};
pub use options::{MAX_OBJECT_BYTES, Options};
pub use report::{PoolLane, PoolReport, reclaim, report, trim};
pub use typed::{Pool, Pooled};
