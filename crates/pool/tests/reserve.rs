//! The reserve, with an allocator that refuses memory. A program of its own, since the reserve and its
//! allocator are those of the process.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // an allocator

use manylane_pool::reserve::{self, Reserving};
use manylane_pool::{BytePool, check_block, check_growth, check_memory, taken_while_short};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

const BLOCK: usize = 64 << 10;
const MEGABYTE: isize = 1 << 20;

/// Number of bytes that the system still has.
static LEFT: AtomicIsize = AtomicIsize::new(isize::MAX);

struct Bounded;

// SAFETY: the calls pass to the system's allocator, or find nothing.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as isize;
        if LEFT.fetch_sub(size, Ordering::Relaxed) < size {
            LEFT.fetch_add(size, Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: by contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LEFT.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: by contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Reserving<Bounded> = Reserving(Bounded);

#[test]
fn what_stays_leaves_memory_and_what_takes_the_reserve_is_reported() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        LEFT.store(isize::MAX / 2, Ordering::Relaxed); // a backtrace needs memory
        report(panic);
    }));
    let pool = BytePool::new("short", 3 * BLOCK).expect("valid");
    let unused = used_by_another_thread();
    assert!(check_growth(usize::MAX / 2).is_ok() && check_block(usize::MAX / 2).is_ok(), "nothing is kept");
    LEFT.store(64 * MEGABYTE, Ordering::Relaxed);
    assert!(reserve::keep(8 << 20));
    assert!(LEFT.load(Ordering::Relaxed) <= 56 * MEGABYTE);
    assert!(check_block(1 << 20).is_ok() && check_block(1 << 30).is_err());

    // What stays ends in time.
    let mut stays: Vec<Vec<u8>> = Vec::with_capacity(1024);
    while check_growth(BLOCK).is_ok() {
        stays.push(Vec::with_capacity(BLOCK));
    }
    let left = LEFT.load(Ordering::Relaxed);
    assert!((7 * MEGABYTE..10 * MEGABYTE).contains(&left), "{left} bytes");
    assert!(check_memory().is_ok() && pool.alloc().is_ok(), "it is there for others");

    // What cannot fail takes the reserve, and its thread is told how much.
    let before = taken_while_short();
    let mut grows: Vec<Vec<u8>> = Vec::with_capacity(1024);
    while !reserve::is_short() {
        assert_eq!(taken_while_short(), before);
        grows.push(Vec::with_capacity(BLOCK));
    }
    assert_eq!(taken_while_short() - before, BLOCK as isize);
    assert!(check_memory().is_err() && check_growth(1).is_err() && check_block(1).is_err());
    grows[0].reserve_exact(3 * BLOCK);
    assert_eq!(taken_while_short() - before, 3 * BLOCK as isize);
    assert!(Vec::<u8>::new().try_reserve_exact(1 << 40).is_err());
    assert_eq!(taken_while_short() - before, 3 * BLOCK as isize, "it took nothing");
    let found = what_an_unused_pool_takes(unused);
    drop(grows);
    assert_eq!(found, (true, 0, 128), "refused, bytes of the lane's part, bytes of the object");
    assert!(taken_while_short() < before);
    let of_other = std::thread::spawn(taken_while_short).join().expect("it ends");
    assert!(of_other.unsigned_abs() < BLOCK, "each thread has its own");

    reserve::restore();
    assert!(!reserve::is_short() && pool.alloc().is_ok());
    looking_makes_nothing_short(&pool);
    drop(stays);
    assert!(check_growth(BLOCK).is_err(), "it does not look");
    reserve::recheck();
    assert!(check_growth(BLOCK).is_ok());
    growth_of_many_threads_leaves_memory();
}

/// Each thread may have looked and not grown yet.
fn growth_of_many_threads_leaves_memory() {
    const THREADS: usize = 16;
    const STEP: usize = 256 << 10;
    let (looked, grown) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let left = std::thread::scope(|scope| {
        let grow = || {
            let _lane = manylane_sync::lane::current();
            let has_looked = check_growth(1).is_ok();
            looked.wait();
            grown.wait();
            let stays = Vec::<u8>::with_capacity(STEP - 1);
            (has_looked && check_growth(STEP - 1).is_ok()).then_some(stays)
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(grow)).collect();
        looked.wait();
        let mut stays: Vec<Vec<u8>> = Vec::with_capacity(1024);
        while check_growth(BLOCK).is_ok() {
            stays.push(Vec::with_capacity(BLOCK));
        }
        grown.wait();
        let of_threads: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("it ends").expect("it may")).collect();
        let left = LEFT.load(Ordering::Relaxed);
        drop((stays, of_threads));
        left
    });
    assert!((8 * MEGABYTE..17 * MEGABYTE).contains(&left), "{left} bytes");
}

/// Makes a pool whose only free object is in the cache of a thread that has ended.
fn used_by_another_thread() -> BytePool {
    manylane_sync::lane::current(); // otherwise this thread inherits the other's part
    let pool = BytePool::new("unused", 128).expect("valid");
    std::thread::spawn(move || drop(pool.alloc().expect("memory"))).join().expect("it ends");
    pool
}

/// Returns whether an allocation fails while memory is short, what that takes, and what a reclaim returns.
fn what_an_unused_pool_takes(pool: BytePool) -> (bool, isize, isize) {
    let left = || LEFT.load(Ordering::Relaxed);
    let before = left();
    let refused = pool.alloc().is_err();
    let between = left();
    pool.reclaim();
    (refused, before - between, left() - between)
}

/// While a thread tries what is left, all of it is taken. Others wait for it.
fn looking_makes_nothing_short(pool: &BytePool) {
    const ROUNDS: usize = 500;
    let looks = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while looks.load(Ordering::Relaxed) {
                assert!(reserve::available(64 << 20) < 64 << 20 && check_block(64 << 20).is_err());
            }
        });
        let fine = (0..ROUNDS).all(|_| {
            drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK)));
            manylane_pool::reclaim();
            pool.alloc().is_ok() && !reserve::is_short()
        });
        looks.store(false, Ordering::Relaxed);
        looking.join().expect("it does not panic"); // ThreadSanitizer sees this, and not how a scope waits
        assert!(fine);
    });
}
