//! Instruction counts of the one-thread rows of `manylane-bench peers`, ours and the peers side by side,
//! compared with the last run's. Exact, so a change by one instruction shows; not for claims about time.
//!
//! A count includes the setup of the contestants, which is the same in every run of a row.
//! `manylane-bench instructions` gives counts per operation, and checks our limits.

#![allow(
    missing_docs,
    clippy::unit_arg,
    reason = "the harness's macros make public items without documentation, and pass units"
)]

/// The peers and callgrind's harness exist for the real machine only.
#[cfg(any(loom, manylane_sim))]
fn main() {}

macro_rules! real {
    ($($item:item)*) => { $(#[cfg(not(any(loom, manylane_sim)))] $item)* };
}

real! {
use gungraun::{library_benchmark, library_benchmark_group, main};
use manylane_bench::peers::instructions::run_contestant;

const OPERATIONS: u64 = 4096;

#[library_benchmark]
#[bench::ours("manylane Counter")]
#[bench::thread_local("thread_local")]
#[bench::fast_counter("fast-counter")]
#[bench::shared_atomic("shared AtomicU64")]
fn counter_add(name: &str) {
    run_contestant("counter", 0, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane BytePool")]
#[bench::opool("opool local")]
#[bench::jemalloc("jemalloc")]
#[bench::mimalloc("mimalloc")]
#[bench::object_pool("object-pool")]
#[bench::malloc("system malloc")]
fn pool_alloc_free(name: &str) {
    run_contestant("pool", 0, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane BytePool")]
#[bench::opool("opool local")]
#[bench::jemalloc("jemalloc")]
#[bench::mimalloc("mimalloc")]
#[bench::object_pool("object-pool")]
#[bench::malloc("system malloc")]
fn pool_alloc_free_64_live(name: &str) {
    run_contestant("pool", 1, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane Segment")]
#[bench::bytes("bytes")]
#[bench::arc("Arc")]
#[bench::trc("trc (thread-bound)")]
fn buffer_clone_drop_own_lane(name: &str) {
    run_contestant("buffer", 0, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane Segment")]
#[bench::bytes("bytes")]
#[bench::arc("Arc")]
#[bench::trc("trc (bound to that lane)")]
fn buffer_clone_drop_other_lane(name: &str) {
    run_contestant("buffer", 1, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane Segment")]
#[bench::bytes("bytes")]
fn buffer_clone_split_drop(name: &str) {
    run_contestant("buffer", 2, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane Cluster")]
#[bench::bytes_mut("BytesMut::with_capacity")]
fn buffer_take_drop(name: &str) {
    run_contestant("buffer", 3, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane MtList")]
#[bench::parking_lot("parking_lot mutex list")]
#[bench::std("std mutex list")]
fn list_add_delete(name: &str) {
    run_contestant("list", 0, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane Mutex")]
#[bench::parking_lot("parking_lot")]
#[bench::std("std")]
#[bench::spin("spin")]
fn lock_unlock(name: &str) {
    run_contestant("lock", 0, name, OPERATIONS);
}

#[library_benchmark]
#[bench::ours("manylane Published")]
#[bench::arc_swap_cache("arc-swap Cache")]
#[bench::arc_swap("arc-swap load")]
#[bench::rwlock("parking_lot RwLock")]
fn config_read(name: &str) {
    run_contestant("config", 0, name, OPERATIONS);
}

library_benchmark_group!(
    name = one_thread,
    benchmarks = [
        counter_add,
        pool_alloc_free,
        pool_alloc_free_64_live,
        buffer_clone_drop_own_lane,
        buffer_clone_drop_other_lane,
        buffer_clone_split_drop,
        buffer_take_drop,
        list_add_delete,
        lock_unlock,
        config_read
    ]
);

main!(library_benchmark_groups = one_thread);
}
