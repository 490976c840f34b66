//! The data path makes no call of the global allocator in steady state.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // an allocator that counts

use manylane_buf::{Chain, Cluster};
use manylane_pool::BytePool;
use manylane_stats::{Counter, Histogram};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

/// The system's allocator with a count of this thread's calls.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call passes to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the calls of the allocator during 40 rounds, after 10 for warming up.
fn calls_when_warm(mut round: impl FnMut()) -> u64 {
    (0..10).for_each(|_| round());
    let before = CALLS.get();
    (0..40).for_each(|_| round());
    CALLS.get() - before
}

#[test]
fn the_allocator_is_counted() {
    assert!(calls_when_warm(|| drop(black_box(Box::new(1u8)))) >= 80);
}

#[test]
fn counting_asks_for_nothing() {
    static REQUESTS: Counter = Counter::new("requests");
    let latency: Histogram = Histogram::new("latency");
    assert_eq!(
        calls_when_warm(|| {
            REQUESTS.add(1);
            latency.record(black_box(17));
        }),
        0
    );
}

#[test]
fn a_pool_asks_for_nothing_with_64_objects_live() {
    let pool = BytePool::new("steady", 16_384).expect("a good size");
    let mut live = Vec::with_capacity(64);
    assert_eq!(
        calls_when_warm(|| {
            live.extend((0..64).map(|_| pool.alloc().expect("memory")));
            live.clear();
        }),
        0
    );
}

#[test]
fn a_request_sized_life_of_a_chain_asks_for_nothing() {
    assert_eq!(
        calls_when_warm(|| {
            let mut cluster = Cluster::alloc(2_048).expect("memory");
            cluster.put(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody");
            let mut chain = Chain::new();
            chain.push_back(cluster.into_segment()).expect("room");
            let mut body = chain.split_off(27).expect("within");
            let kept = chain.copy_range(4..5).expect("within");
            chain.append(b"X-Added: 1\r\n").expect("memory");
            chain.append_chain(&mut body).expect("memory");
            black_box((chain.len(), kept.len()));
        }),
        0
    );
}

#[test]
fn a_chain_of_many_segments_asks_for_nothing() {
    assert_eq!(
        calls_when_warm(|| {
            let one = Cluster::with(b"x").expect("memory").into_segment();
            let mut chain = Chain::new();
            for _ in 0..50 {
                chain.push_back(one.clone()).expect("room");
            }
            black_box(chain.len());
        }),
        0
    );
}
