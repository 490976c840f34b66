#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // allowed here by name: coroutines and an allocator
#![cfg_attr(all(test, manylane_sim), allow(dead_code))] // the copy that `sync` links uses it

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

/// Kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Load,
    /// Written without a lock prefix: goes through the store buffer.
    Store,
    /// A locked read-modify-write, or a compare-and-swap that fails.
    Rmw,
}

/// Returns true if the caller runs on a virtual core.
#[inline]
pub fn active() -> bool {
    machine::is_active()
}

/// Returns the number of the calling virtual thread; `None` outside of simulations and in their set-up.
#[inline]
pub fn current() -> Option<u32> {
    machine::active_thread()
}

/// Charges an access to `bytes` bytes at `address` to the running core, and lets cores that are behind run
/// first: the caller accesses the memory after the return. Does nothing outside of virtual threads, or for no
/// bytes.
#[inline]
pub fn access(address: usize, bytes: usize, kind: Access, site: &'static Location<'static>) {
    if let Some(machine) = machine::active()
        && bytes > 0
    {
        machine::access(machine, address, bytes, kind, site);
    }
}

/// Charges a fence: a sequentially consistent one drains the store buffer, weaker ones are free (as on x86).
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

/// Yields the core to another virtual thread that waits for it.
pub fn yield_now() {
    if let Some(machine) = machine::active() {
        machine::yield_now(machine);
    }
}

/// Charges `nanoseconds` of computation without shared accesses.
pub fn work_ns(nanoseconds: u64) {
    if active() {
        machine::charge(nanoseconds.saturating_mul(1_000));
    }
}

/// Names `bytes` bytes at `address` in the report of this run. The latest name of an address applies. Does
/// nothing outside of a simulation and its set-up.
pub fn label(address: usize, bytes: usize, name: &'static str) {
    if let Some(machine) = machine::of_run() {
        machine::label(machine, address, bytes, name);
    }
}

/// Returns the running core's clock; zero outside of virtual threads.
pub fn now() -> Duration {
    machine::active().map_or(Duration::ZERO, |machine| Duration::from_nanos(machine::now(machine) / 1_000))
}

/// Sleeps in the queue of `key` until [`unpark_one`] with the same key, unless `validate` returns false. The
/// queue is locked from the call of `validate` until the thread is in it, so no wake-up is lost. `validate`
/// may access memory.
///
/// Returns the result of the waker's `leave`; false if `validate` returned false. Outside of virtual threads
/// it returns at once.
pub fn park(key: usize, validate: impl FnOnce() -> bool) -> bool {
    machine::active().is_some_and(|machine| machine::park(machine, key, validate))
}

/// Removes the longest sleeper from the queue of `key`, calls `leave` (was there one, are more left) with the
/// queue locked, and wakes the sleeper with the result. Later sleepers see the writes of `leave` in their
/// `validate`. `leave` is called even without a sleeper, and outside of virtual threads.
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
