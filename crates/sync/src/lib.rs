#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the crates where `unsafe` is allowed by name (ARCHITECTURE.md)

#[cfg(not(any(loom, manylane_sim)))]
mod arena;
#[cfg(any(loom, manylane_sim))]
#[path = "arena_none.rs"]
mod arena;
pub mod atomic;
mod backoff;
pub mod cell;
mod fetch;
pub mod lane;
mod latch;
pub mod lock;
mod model;
mod per_lane;
pub mod qsbr;
mod refs;
mod slots;

pub use backoff::{Backoff, Updatable, relax, update};
pub use crossbeam_utils::CachePadded;
pub use fetch::fetch_to_write;
pub use lane::LaneId;
pub use latch::SeqLatch;
pub use lock::{
    Contention, LockClass, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, contention,
};
#[cfg(loom)]
#[doc(hidden)]
pub use model::loom_lazy_static;
pub use model::{Arc, PREEMPTIONS, finish_fairly, label, model, thread};
pub use per_lane::{LaneCell, PerLane};
pub use qsbr::{Published, Reader};
pub use refs::Refs;
pub use slots::{LaneSlots, ZeroInit};
