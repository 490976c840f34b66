//! Parcels between real threads: every cluster ends exactly once (R-B3), and a segment's bytes never change
//! under it.
#![allow(unsafe_code)] // the test is about foreign bytes
#![cfg(not(any(loom, manylane_sim)))]

use manylane_buf::{Chain, External, FreeIndex, Parcel};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};

const THREADS: usize = 4;
const ROUNDS: u64 = if cfg!(debug_assertions) { 4_000 } else { 20_000 };

static MADE: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

unsafe fn free(data: NonNull<u8>, len: usize, argument: usize) {
    assert_eq!(len, 1 + argument % 500, "the size that was given");
    // SAFETY: it was a boxed slice of this length; no other reference is left.
    let bytes = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data.as_ptr(), len)) };
    let (as_given, zeroed) = (bytes.iter().all(|&b| b == argument as u8), bytes.iter().all(|&b| b == 0));
    assert!(as_given || zeroed, "the bytes are as they were, or wiped as a whole");
    FREED.fetch_add(1, Ordering::Relaxed);
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Bytes that repeat one value, so that any part of them can be checked.
fn tagged(random: &mut Random, index: FreeIndex) -> Chain {
    let argument = random.below(1 << 20) as usize;
    let len = 1 + argument % 500;
    if random.below(2) == 0 {
        let mut chain = Chain::new();
        chain.append(&vec![argument as u8; len]).expect("memory");
        return chain;
    }
    let bytes = Box::leak(vec![argument as u8; len].into_boxed_slice());
    // SAFETY: leaked until `free` takes it back.
    let made = unsafe { External::from_raw(NonNull::from(bytes).cast(), len, index, argument, true) };
    MADE.fetch_add(1, Ordering::Relaxed);
    made.expect("memory").into()
}

fn check(chain: &Chain) {
    assert_eq!(chain.segments().map(|segment| segment.len()).sum::<usize>(), chain.len());
    for segment in chain.segments() {
        assert!(segment.iter().all(|byte| *byte == segment[0]), "a view shows one value");
    }
}

#[test]
fn what_crosses_lanes_ends_exactly_once() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5EED_u64);
    println!("SEED={seed}");
    let index = FreeIndex::register("stress", free).expect("registered once");
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<Parcel>()).unzip();
    let all_sent = Barrier::new(THREADS);
    // Never read by value: only std sees that the threads have ended.
    let crossed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let (senders, all_sent, crossed) = (&senders, &all_sent, &crossed);
            scope.spawn(move || {
                let mut random = Random(seed + 1 + number as u64 * 0x9E37_79B9);
                let mut held: Vec<Chain> = Vec::new();
                let mut round = |receiver: &mpsc::Receiver<Parcel>, send: bool| {
                    while let Ok(parcel) = receiver.try_recv() {
                        crossed.fetch_add(1, Ordering::Relaxed);
                        held.push(parcel.open());
                    }
                    for chain in &held {
                        check(chain);
                    }
                    if !send {
                        held.clear();
                        return;
                    }
                    let mut chain = tagged(&mut random, index);
                    if random.below(4) == 0 {
                        chain.zero_on_free().unwrap_or(());
                    }
                    // A part stays, a part is dropped, a part goes to another lane.
                    let cut = random.below(chain.len() as u64 + 1) as usize;
                    let part = chain.split_off(cut).expect("inside");
                    let copy = part.share().expect("memory");
                    for chain in [part, copy] {
                        let to = random.below(THREADS as u64) as usize;
                        senders[to].send(chain.into()).expect("all receivers wait for the end");
                    }
                    if !chain.is_empty() {
                        held.push(chain);
                    }
                    while held.len() > 8 {
                        let at = random.below(held.len() as u64) as usize;
                        drop(held.swap_remove(at));
                    }
                };
                for _ in 0..ROUNDS {
                    round(&receiver, true);
                }
                all_sent.wait();
                round(&receiver, false);
            });
        }
    });
    assert_eq!(MADE.load(Ordering::Relaxed), FREED.load(Ordering::Relaxed), "all were freed, once");
    assert_eq!(crossed.load(Ordering::Relaxed) as u64, 2 * THREADS as u64 * ROUNDS);
    for pool in manylane_pool::report() {
        assert_eq!(pool.used, 0, "pool {} has objects out", pool.name);
    }
}
