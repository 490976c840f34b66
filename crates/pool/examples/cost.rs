//! Measures the pool's operations: the fastest of many short runs, in nanoseconds.
//!
//! `cargo run --release -p manylane-pool --example cost [case]`; a case's name alone runs it once with few
//! rounds, for counting instructions under callgrind. `manylane-bench` compares with other crates.

use manylane_pool::{BytePool, PooledBytes};
use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs `round`, which does `ops` operations, many times; prints the fastest in ns an operation.
fn fastest(samples: u32, ops: u32, mut round: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..samples {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / f64::from(ops)
}

fn alloc_free(pool: BytePool, rounds: u32) {
    for _ in 0..rounds {
        let block = pool.alloc().expect("memory");
        black_box(block.as_ptr());
    }
}

/// A ring of 64 live blocks; each step replaces the oldest.
fn with_64_live(pool: BytePool, live: &mut [PooledBytes; 64], rounds: u32) {
    for round in 0..rounds {
        let block = pool.alloc().expect("memory");
        black_box(block.as_ptr());
        live[round as usize % 64] = block;
    }
    black_box(&*live);
}

/// All 64 allocated, then all freed.
fn burst_of_64(pool: BytePool, live: &mut [Option<PooledBytes>; 64], rounds: u32) {
    for _ in 0..rounds / 64 {
        for slot in live.iter_mut() {
            *slot = Some(pool.alloc().expect("memory"));
        }
        black_box(&*live);
        for slot in live.iter_mut() {
            *slot = None;
        }
    }
}

/// Allocates here, frees on another lane; batches of 64 go through a channel.
fn across_lanes(pool: BytePool, rounds: u32) {
    let (send, receive) = mpsc::sync_channel::<Vec<PooledBytes>>(4);
    let (send_back, back) = mpsc::sync_channel::<Vec<PooledBytes>>(8);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for mut blocks in receive {
                blocks.clear();
                let _ = send_back.send(blocks);
            }
        });
        for _ in 0..rounds / 64 {
            let mut blocks = back.try_recv().unwrap_or_else(|_| Vec::with_capacity(64));
            blocks.extend((0..64).map(|_| pool.alloc().expect("memory")));
            if send.send(blocks).is_err() {
                return;
            }
        }
        drop(send);
    });
}

fn main() {
    let pool = BytePool::new("cost", 16384).expect("valid");
    let live = || std::array::from_fn(|_| pool.alloc().expect("memory"));
    let mut burst = [const { None }; 64];
    match std::env::args().nth(1).as_deref() {
        Some("alloc_free") => return alloc_free(pool, 100_000),
        Some("with_64_live") => return with_64_live(pool, &mut live(), 100_000),
        Some("burst_of_64") => return burst_of_64(pool, &mut burst, 100_000),
        _ => {}
    }
    println!("alloc + free        {:6.2} ns", fastest(2000, 10_000, || alloc_free(pool, 10_000)));
    let mut ring = live();
    println!(
        "the same, 64 live   {:6.2} ns",
        fastest(2000, 10_000, || with_64_live(pool, &mut ring, 10_000))
    );
    drop(ring);
    println!("burst of 64         {:6.2} ns", fastest(2000, 9_984, || burst_of_64(pool, &mut burst, 9_984)));
    println!("freed across lanes  {:6.2} ns", fastest(50, 640_000, || across_lanes(pool, 640_000)));
    println!("{}", pool.report());
}
