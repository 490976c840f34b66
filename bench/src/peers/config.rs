//! Reading the current configuration, which is rarely replaced.

use super::{Contest, Contestant, Target};
use arc_swap::{ArcSwap, Cache};
use manylane_sync::{Published, Reader};
use std::hint::black_box;
use std::sync::Arc;

const TARGET: Target = Target::new(0.5, "arc-swap Cache", 0.41);

pub(super) const CONTESTS: &[Contest] = &[Contest {
    operation: "config: read the current configuration pointer",
    target: Some(TARGET),
    contestants,
}];

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn contestants() -> Vec<Contestant> {
    let published = leaked(Published::new(2000u64));
    let reader = Reader::new();
    let swap = leaked(ArcSwap::from_pointee(2000u64));
    let mut cache = Cache::new(swap);
    let read_locked = leaked(parking_lot::RwLock::new(Arc::new(2000u64)));
    let read_locked_std = leaked(std::sync::RwLock::new(Arc::new(2000u64)));
    vec![
        Contestant::ours("manylane Published", move |n| {
            let published = black_box(published);
            for _ in 0..n {
                black_box(*published.load(&reader));
            }
        }),
        Contestant::peer("arc-swap Cache", move |n| {
            let cache = black_box(&mut cache);
            for _ in 0..n {
                black_box(**cache.load());
            }
        }),
        Contestant::peer("arc-swap load", move |n| {
            let swap = black_box(swap);
            for _ in 0..n {
                black_box(**swap.load());
            }
        }),
        Contestant::peer("parking_lot RwLock", move |n| {
            let lock = black_box(read_locked);
            for _ in 0..n {
                black_box(**lock.read());
            }
        }),
        Contestant::peer("std RwLock", move |n| {
            let lock = black_box(read_locked_std);
            for _ in 0..n {
                black_box(**lock.read().unwrap_or_else(std::sync::PoisonError::into_inner));
            }
        }),
    ]
}
