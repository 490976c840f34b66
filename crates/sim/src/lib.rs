#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the rooms where `unsafe` is allowed by name: coroutines and an allocator
#![cfg_attr(all(test, manylane_sim), allow(dead_code))] // used by the copy that `sync` links

mod arena;
pub mod cost;
mod lines;
mod machine;
mod report;
mod simulation;
mod topology;

pub use report::{HotLine, LockWaits, Report, Transfers};
pub use simulation::{Simulation, Worker};
pub use topology::{BadTopology, Distance, MAX_CORES, Topology};

use std::panic::Location;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Load,
    /// Written without a lock prefix: goes through the store buffer.
    Store,
    /// A locked read-modify-write; a compare-and-swap that fails too.
    Rmw,
}

/// Whether the caller runs on a virtual core.
#[inline]
pub fn active() -> bool {
    machine::is_active()
}

/// The number of the calling virtual thread; `None` outside of simulations and in their set-up.
#[inline]
pub fn current() -> Option<u32> {
    machine::active_thread()
}

/// Charges an access to `bytes` at `address` to the running core, and lets cores that are behind run first:
/// the caller touches the memory when this returns. Nothing outside of virtual threads, and for no bytes.
#[inline]
pub fn access(address: usize, bytes: usize, kind: Access, site: &'static Location<'static>) {
    if let Some(machine) = machine::active()
        && bytes > 0
    {
        machine::access(machine, address, bytes, kind, site);
    }
}

/// Charges a fence: a sequentially consistent one empties the store buffer, weaker ones are free (as on x86).
pub fn fence(order: Ordering) {
    if let Some(machine) = machine::active()
        && order == Ordering::SeqCst
    {
        machine::full_fence(machine);
    }
}

/// Charges one pause instruction.
pub fn relax() {
    if let Some(machine) = machine::active() {
        machine::pause(machine);
    }
}

/// Offers the core to another virtual thread that waits for it.
pub fn yield_now() {
    if let Some(machine) = machine::active() {
        machine::yield_now(machine);
    }
}

/// Charges `nanoseconds` of computation that touches nothing shared.
pub fn work_ns(nanoseconds: u64) {
    if active() {
        machine::charge(nanoseconds.saturating_mul(1_000));
    }
}

/// Names `bytes` at `address` in the report of this run. The latest name of an address counts. Nothing
/// outside of a simulation and its set-up.
pub fn label(address: usize, bytes: usize, name: &'static str) {
    if let Some(machine) = machine::of_run() {
        machine::label(machine, address, bytes, name);
    }
}

/// The running core's clock; zero outside of virtual threads.
pub fn now() -> Duration {
    machine::active().map_or(Duration::ZERO, |machine| Duration::from_nanos(machine::now(machine) / 1_000))
}

/// Sleeps in the queue of `key` until [`unpark_one`] with the same key, unless `validate` says no. The queue
/// is locked from the call of `validate` until the thread is in it, so no wake-up is lost. `validate` may
/// touch memory.
///
/// Returns what the waker's `leave` said; false when `validate` refused. Outside of virtual threads it
/// returns at once.
pub fn park(key: usize, validate: impl FnOnce() -> bool) -> bool {
    machine::active().is_some_and(|machine| machine::park(machine, key, validate))
}

/// Takes the longest sleeper out of the queue of `key`, calls `leave` (whether there was one, whether more
/// are left) with the queue locked, and wakes the sleeper with its answer. What `leave` publishes, later
/// sleepers see in their `validate`. It is called when nobody sleeps too, and outside of virtual threads.
pub fn unpark_one(key: usize, leave: impl FnOnce(bool, bool) -> bool) {
    match machine::active() {
        Some(machine) => machine::unpark_one(machine, key, leave),
        None => {
            leave(false, false);
        }
    }
}

/// Counts a wait for a lock of `class` in the report.
pub fn count_lock_wait(class: &'static str, waited: Duration) {
    if let Some(machine) = machine::active() {
        machine::count_lock_wait(machine, class, waited);
    }
}
