//! Adding one to a counter.
//!
//! All contestants rotate over four counters: on common hardware, a load after a store to the same word waits
//! for the store (1.8 ns each), which says nothing about the counter. The figure for one word is a separate
//! row.

use super::{Contest, Contestant, Crowd, Effort, Row, Target, measure_crowds};
use crate::cases::Variant;
use crate::run;
use fast_counter::ConcurrentCounter;
use manylane_stats::Counter;
use manylane_sync::CachePadded;
use manylane_sync::atomic::{AtomicU64, Ordering};
use std::array::from_fn;
use std::cell::Cell;
use std::hint::black_box;
use thread_local::ThreadLocal;

const TARGET: Target = Target::new(1.0, "thread_local", 2.3);

/// A counter that threads can share.
trait Adder: Send + Sync + 'static {
    const NAME: &'static str;
    fn new() -> Self;
    fn add(&self);
}

impl Adder for Counter {
    const NAME: &'static str = "manylane Counter";
    fn new() -> Self {
        Counter::new("peers")
    }
    #[inline(always)]
    fn add(&self) {
        Counter::add(self, 1);
    }
}

impl Adder for ThreadLocal<Cell<u64>> {
    const NAME: &'static str = "thread_local";
    fn new() -> Self {
        Self::new()
    }
    #[inline(always)]
    fn add(&self) {
        let own = black_box(self.get_or_default());
        own.set(own.get() + 1);
    }
}

/// As many cells as a current machine has processors.
impl Adder for ConcurrentCounter {
    const NAME: &'static str = "fast-counter";
    fn new() -> Self {
        Self::new(64)
    }
    #[inline(always)]
    fn add(&self) {
        Self::add(self, 1);
    }
}

impl Adder for CachePadded<AtomicU64> {
    const NAME: &'static str = "shared AtomicU64";
    fn new() -> Self {
        CachePadded::new(AtomicU64::new(0))
    }
    #[inline(always)]
    fn add(&self) {
        self.fetch_add(1, Ordering::Relaxed);
    }
}

/// Four counters in rotation, on any number of threads.
struct Four<A>([A; 4]);

impl<A: Adder> Variant for Four<A> {
    const NAME: &'static str = A::NAME;
    type Own<'a> = usize;
    fn new(_: usize) -> Self {
        Self(from_fn(|_| A::new()))
    }
    fn enter(&self, _: usize) -> usize {
        self.0.iter().for_each(A::add);
        0
    }
    #[inline]
    fn operate(&self, next: &mut usize) {
        self.0[*next & 3].add();
        *next += 1;
    }
}

pub(super) const CONTESTS: &[Contest] = &[
    Contest {
        operation: "counter: add on the own lane, 4 counters in rotation",
        target: Some(TARGET),
        contestants: || {
            vec![
                rotating::<Counter>(true),
                rotating::<ThreadLocal<Cell<u64>>>(false),
                rotating::<ConcurrentCounter>(false),
                rotating::<CachePadded<AtomicU64>>(false),
            ]
        },
    },
    Contest {
        operation: "counter: add on the own lane, one word",
        target: None,
        contestants: || {
            vec![
                one::<Counter>(true),
                one::<ThreadLocal<Cell<u64>>>(false),
                one::<ConcurrentCounter>(false),
                one::<CachePadded<AtomicU64>>(false),
            ]
        },
    },
];

pub(super) fn crowds(effort: Effort) -> Vec<Row> {
    [(2, "counter: add, 2 threads together, rotating"), (32, "counter: add, 32 threads together, rotating")]
        .map(|(threads, operation)| {
            let crowds = [
                crowd::<Counter>(true),
                crowd::<ThreadLocal<Cell<u64>>>(false),
                crowd::<ConcurrentCounter>(false),
                crowd::<CachePadded<AtomicU64>>(false),
            ];
            Row::new(operation, Some(TARGET), measure_crowds(effort, threads, &crowds))
        })
        .into()
}

fn crowd<A: Adder>(ours: bool) -> Crowd {
    Crowd { name: A::NAME, ours, run: run::once::<Four<A>> }
}

fn rotating<A: Adder>(ours: bool) -> Contestant {
    let counters: Box<[A; 4]> = Box::new(from_fn(|_| A::new()));
    let work = move |n: u64| {
        let [a, b, c, d] = black_box(&*counters);
        for _ in 0..n / 4 {
            a.add();
            b.add();
            c.add();
            d.add();
        }
    };
    if ours { Contestant::ours(A::NAME, work) } else { Contestant::peer(A::NAME, work) }
}

fn one<A: Adder>(ours: bool) -> Contestant {
    let counter = Box::new(A::new());
    let work = move |n: u64| {
        let counter = black_box(&*counter);
        for _ in 0..n {
            counter.add();
        }
    };
    if ours { Contestant::ours(A::NAME, work) } else { Contestant::peer(A::NAME, work) }
}
