//! A buffer of 16 KiB that one lane allocates and another frees, as when connections are passed on.
//!
//! The measuring thread allocates buffers and pushes them into a ring; a second thread pops and frees them.
//! All contestants use the same ring; the contestant *ring alone* passes numbers. The time runs from when
//! both threads run to the last free, so it is wall time per buffer of a pipeline of two. On one processor,
//! it would measure the scheduler.

use super::allocators::{Allocator, Block, Malloc, Mimalloc};
#[cfg(feature = "allocators")]
use super::allocators::{Jemalloc, Snmalloc};
use super::pool::{Boxed, Buffer, SIZE, boxed};
use super::table::RING_ALONE;
use super::{Contestant, Effort, Row, Target, measure};
use manylane_pool::BytePool;
use parking_lot::Mutex;
use rtrb::RingBuffer;
use sharded_slab::Clear;
use std::cell::RefCell;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Most buffers in transit: about as many as a lane passes on in one round.
const RING: usize = 256;
const TARGET: Target = Target::new(60.0, LOCKED_LIST, 57.0);
const LOCKED_LIST: &str = "magazines, locked list";

pub(super) fn crowds(effort: Effort) -> Vec<Row> {
    let ours = BytePool::new("peers handover", SIZE).expect("16 KiB is a size");
    let slab: &'static sharded_slab::Pool<SlabBuffer> = Box::leak(Box::new(sharded_slab::Pool::new()));
    let shared: &'static SharedList = Box::leak(Box::new(SharedList(Mutex::new(Vec::new()))));
    let objects: &'static object_pool::Pool<Boxed> =
        Box::leak(Box::new(object_pool::Pool::new(2 * RING, boxed)));
    // The cost of waking the other thread must be small relative to the sample.
    let effort = Effort { time: effort.time * 4, ..effort };
    #[allow(unused_mut, reason = "without the feature there are no more")]
    let mut all = vec![
        pipeline("manylane BytePool", true, move || ours.alloc().expect("there is memory"), Buffer::touch),
        pipeline(LOCKED_LIST, false, move || shared.take(), |buffer| buffer.touch()),
        pipeline("sharded-slab", false, move || SlabKey::new(slab), |_| {}),
        pipeline("object-pool", false, move || objects.pull(boxed), Buffer::touch),
        pipeline(Mimalloc::NAME, false, Block::<Mimalloc, SIZE>::new, Buffer::touch),
        pipeline(Malloc::NAME, false, Block::<Malloc, SIZE>::new, Buffer::touch),
        pipeline(RING_ALONE, false, || 1u64, |_| {}),
    ];
    #[cfg(feature = "allocators")]
    all.extend([
        pipeline(Snmalloc::NAME, false, Block::<Snmalloc, SIZE>::new, Buffer::touch),
        pipeline(Jemalloc::NAME, false, Block::<Jemalloc, SIZE>::new, Buffer::touch),
    ]);
    let figures = measure(effort, all);
    vec![Row::new("pool: 16 KiB, taken on one lane, freed on another", Some(TARGET), figures)]
}

/// Two threads with a ring between them; the second one sleeps while others are measured.
fn pipeline<I: Send + 'static>(
    name: &str,
    ours: bool,
    mut take: impl FnMut() -> I + 'static,
    touch: impl Fn(&mut I) + 'static,
) -> Contestant {
    let (mut push, mut pop) = RingBuffer::<I>::new(RING);
    let (go, orders) = mpsc::channel::<u64>();
    let (tell, receiver) = mpsc::channel::<Option<Instant>>();
    std::thread::spawn(move || {
        // Ends when the contestant is dropped.
        while let Ok(n) = orders.recv() {
            if tell.send(None).is_err() {
                return;
            }
            for _ in 0..n {
                let mut wait = SpinBudget::new();
                while pop.pop().map(drop).is_err() {
                    wait.wait();
                }
            }
            if tell.send(Some(Instant::now())).is_err() {
                return;
            }
        }
    });
    let work = move |n: u64| -> Duration {
        go.send(n).expect("the other thread lives as long as this end of the channel");
        receiver.recv().expect("it says when it runs");
        let started = Instant::now();
        for _ in 0..n {
            let mut item = take();
            touch(&mut item);
            let mut wait = SpinBudget::new();
            while let Err(rtrb::PushError::Full(back)) = push.push(item) {
                item = back;
                wait.wait();
            }
        }
        let ended = receiver.recv().ok().flatten().expect("it says when it has freed all");
        ended.duration_since(started)
    };
    if ours { Contestant::timed_ours(name, work) } else { Contestant::timed_peer(name, work) }
}

/// Spins, and yields the processor after a while, since the other thread may have lost its own.
struct SpinBudget(u32);

impl SpinBudget {
    fn new() -> Self {
        Self(0)
    }

    #[inline]
    fn wait(&mut self) {
        self.0 += 1;
        if self.0 > 200 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// A pooled object that is freed by its key.
struct SlabKey(&'static sharded_slab::Pool<SlabBuffer>, usize);

struct SlabBuffer(Boxed);

impl Default for SlabBuffer {
    fn default() -> Self {
        Self(boxed())
    }
}

impl Clear for SlabBuffer {
    fn clear(&mut self) {}
}

impl SlabKey {
    fn new(pool: &'static sharded_slab::Pool<SlabBuffer>) -> Self {
        let key = pool.create_with(|buffer| buffer.0[0] = 1).expect("the slab holds more than the ring");
        Self(pool, key)
    }
}

impl Drop for SlabKey {
    fn drop(&mut self) {
        assert!(self.0.clear(self.1), "freed once");
    }
}

/// Buffers in a magazine; a thread has two magazines.
const MAGAZINE: usize = 64;

/// Full magazines of all threads (J. Bonwick and J. Adams, *Magazines and Vmem*, 2001), under one lock.
struct SharedList(Mutex<Vec<Vec<Boxed>>>);

thread_local! {
    static LOADED: RefCell<[Vec<Boxed>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

struct FromSharedList {
    buffer: Option<Boxed>,
    shared: &'static SharedList,
}

impl FromSharedList {
    fn touch(&mut self) {
        if let Some(buffer) = &mut self.buffer {
            buffer[0] = std::hint::black_box(1);
        }
    }
}

impl SharedList {
    fn take(&'static self) -> FromSharedList {
        let buffer = LOADED.with_borrow_mut(|[loaded, previous]| {
            if loaded.is_empty() {
                std::mem::swap(loaded, previous);
            }
            if loaded.is_empty()
                && let Some(full) = self.0.lock().pop()
            {
                *loaded = full;
            }
            loaded.pop()
        });
        FromSharedList { buffer: Some(buffer.unwrap_or_else(boxed)), shared: self }
    }
}

impl Drop for FromSharedList {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        LOADED.with_borrow_mut(|[loaded, previous]| {
            if loaded.len() == MAGAZINE {
                std::mem::swap(loaded, previous);
            }
            if loaded.len() == MAGAZINE {
                let full = std::mem::replace(loaded, Vec::with_capacity(MAGAZINE));
                self.shared.0.lock().push(full);
            }
            loaded.push(buffer);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magazines_come_back_through_the_shared_list() {
        let shared: &'static SharedList = Box::leak(Box::new(SharedList(Mutex::new(Vec::new()))));
        let taken: Vec<_> = (0..5 * MAGAZINE).map(|_| shared.take()).collect();
        std::thread::spawn(move || drop(taken)).join().expect("freed elsewhere");
        assert_eq!(shared.0.lock().len(), 3, "five magazines less the two that the other thread kept");
    }
}
