//! Waiting for memory lane by lane (R-D4).
#![cfg(not(any(loom, manylane_sim)))]

use manylane_pool::{BytePool, Cause, Options, Pool, PooledBytes, WaitBytes};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waiter and how often it was woken.
struct Waiter {
    future: Pin<Box<WaitBytes>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Waiter {
    fn new(pool: BytePool) -> Self {
        Self { future: Box::pin(pool.wait()), woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<PooledBytes> {
        let waker = Waker::from(self.woken.clone());
        self.future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .map(|r| r.expect("no failure but waiting"))
    }

    fn woken(&self) -> u32 {
        self.woken.0.load(Ordering::Relaxed)
    }
}

/// A pool of `limit` blocks, all taken, and `waiters` waiting.
fn exhausted(name: &str, limit: usize, waiters: usize) -> (BytePool, Vec<PooledBytes>, Vec<Waiter>) {
    let pool = BytePool::with(name, 100, Options::new().limit(limit)).expect("valid");
    let blocks = (0..limit).map(|_| pool.alloc().expect("memory")).collect();
    let mut waiting: Vec<Waiter> = (0..waiters).map(|_| Waiter::new(pool)).collect();
    assert!(waiting.iter_mut().all(|w| w.poll().is_pending()));
    (pool, blocks, waiting)
}

fn woken(waiters: &[Waiter]) -> Vec<u32> {
    waiters.iter().map(Waiter::woken).collect()
}

#[test]
fn a_lane_is_offered_as_many_as_it_released_and_in_order() {
    let (pool, mut blocks, mut waiting) = exhausted("offer", 4, 4);
    assert_eq!(pool.offer(), 0, "nothing was released");
    blocks.truncate(2);
    assert_eq!(pool.offer(), 2);
    assert_eq!(pool.offer(), 0, "each release is offered once");
    assert_eq!(woken(&waiting), [1, 1, 0, 0]);
    let got: Vec<_> = waiting[..2].iter_mut().map(Waiter::poll).collect();
    assert!(got.iter().all(Poll::is_ready));
    assert!(waiting[2].poll().is_pending());
    drop(blocks);
    assert_eq!(pool.offer(), 2);
    assert_eq!(woken(&waiting), [1, 1, 1, 1]);
}

#[test]
fn what_another_lane_releases_wakes_nobody_here() {
    let (pool, blocks, mut waiting) = exhausted("lanes", 1, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(blocks);
            assert_eq!(pool.offer(), 0, "nobody waits on that lane");
            // The object is in that lane's cache; give it to the allocator, so that the limit has room.
            assert_eq!(pool.reclaim(), 1);
        });
    });
    assert_eq!(pool.offer(), 0);
    assert_eq!(waiting[0].woken(), 0);
    assert!(waiting[0].poll().is_ready(), "the first in the queue may try at any poll");
}

#[test]
fn a_newcomer_does_not_overtake() {
    let (pool, mut blocks, mut waiting) = exhausted("newcomer", 1, 1);
    blocks.clear();
    let mut newcomer = Waiter::new(pool);
    assert!(newcomer.poll().is_pending(), "there is one, but somebody waits for it");
    assert_eq!(pool.offer(), 1);
    let block = waiting[0].poll();
    assert!(block.is_ready());
    assert!(newcomer.poll().is_pending());
    drop(block);
    assert_eq!(pool.offer(), 1);
    assert_eq!(newcomer.woken(), 1);
    assert!(newcomer.poll().is_ready());
}

#[test]
fn a_newcomer_does_not_overtake_who_was_woken_and_not_polled_yet() {
    let (pool, mut blocks, mut waiting) = exhausted("woken", 1, 1);
    blocks.clear();
    assert_eq!(pool.offer(), 1);
    let mut newcomer = Waiter::new(pool);
    assert!(newcomer.poll().is_pending(), "the queue is empty, but somebody was offered what there is");
    let block = waiting[0].poll();
    assert!(block.is_ready());
    drop(block);
    assert_eq!(pool.offer(), 1);
    assert!(newcomer.poll().is_ready());
    assert!(Waiter::new(pool).poll().is_ready(), "nobody waits");
}

#[test]
fn what_is_released_beyond_the_offers_is_offered_to_who_joins_meanwhile() {
    let (pool, mut blocks, mut waiting) = exhausted("beyond", 2, 1);
    blocks.clear();
    assert_eq!(pool.offer(), 1);
    let mut newcomer = Waiter::new(pool);
    assert!(newcomer.poll().is_pending());
    let _block = waiting[0].poll();
    assert_eq!(pool.offer(), 1, "nothing more was released, and there is one for it");
    assert_eq!(newcomer.woken(), 1);
    let _other = newcomer.poll();
    assert_eq!(pool.offer(), 0);
    assert!(Waiter::new(pool).poll().is_pending(), "there is none left");
}

#[test]
fn who_has_a_ticket_is_not_refused_for_newcomers() {
    let options = Options::new().limit(1).max_waiters(1);
    let pool = BytePool::with("tickets", 100, options).expect("valid");
    let block = pool.alloc().expect("memory");
    let mut first = Waiter::new(pool);
    assert!(first.poll().is_pending());
    drop(block);
    assert_eq!(pool.offer(), 1);
    let stolen = pool.alloc().expect("it is free");
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = pin!(pool.wait()).poll(&mut cx) else { panic!("one waits already") };
    assert_eq!(error.cause(), Cause::Waiters);
    assert!(first.poll().is_pending(), "it goes back to its place");
    drop(stolen);
    assert_eq!(pool.offer(), 1);
    drop(first);
    assert!(Waiter::new(pool).poll().is_ready(), "nobody waits");
}

#[test]
fn an_offer_that_finds_nothing_keeps_its_place() {
    let (pool, mut blocks, mut waiting) = exhausted("kept place", 1, 3);
    blocks.clear();
    assert_eq!(pool.offer(), 1);
    let stolen = pool.alloc().expect("it is free");
    assert!(waiting[0].poll().is_pending());
    drop(stolen);
    assert_eq!(pool.offer(), 1);
    assert_eq!(woken(&waiting), [2, 0, 0]);
    assert!(waiting[0].poll().is_ready());
}

#[test]
fn a_dropped_waiter_leaves_the_queue_and_passes_its_offer_on() {
    let (pool, mut blocks, mut waiting) = exhausted("cancel", 1, 4);
    drop(waiting.remove(1)); // in the queue
    blocks.clear();
    assert_eq!(pool.offer(), 1);
    assert_eq!(woken(&waiting), [1, 0, 0]);
    drop(waiting.remove(0)); // holds an offer
    assert_eq!(woken(&waiting), [1, 0]);
    let block = waiting[0].poll();
    assert!(block.is_ready());
    assert!(waiting[1].poll().is_pending());
}

#[test]
fn the_queue_is_bounded() {
    let pool = BytePool::with("bounded", 100, Options::new().limit(1).max_waiters(2)).expect("valid");
    let _block = pool.alloc().expect("memory");
    let mut waiting: Vec<Waiter> = (0..2).map(|_| Waiter::new(pool)).collect();
    assert!(waiting.iter_mut().all(|w| w.poll().is_pending()));
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = pin!(pool.wait()).poll(&mut cx) else { panic!("the queue is full") };
    assert_eq!(error.cause(), Cause::Waiters);
    assert_eq!(error.to_string(), "pool `bounded`: as many wait on this lane as its options allow");
    drop(waiting.pop());
    assert!(pin!(pool.wait()).poll(&mut cx).is_pending());
}

#[test]
fn a_value_waits_with_its_owner_and_is_dropped_with_the_wait() {
    let pool: Pool<Arc<u32>> = Pool::with("values", Options::new().limit(1)).expect("valid");
    let first = pool.alloc(Arc::new(1)).expect("memory");
    let value = Arc::new(2);
    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut wait = pin!(pool.wait(value.clone()));
        assert!(wait.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(Arc::strong_count(&value), 1, "dropped with the wait");
    let mut wait = pin!(pool.wait(value));
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    drop(first);
    let Poll::Ready(Ok(pooled)) = wait.as_mut().poll(&mut cx) else { panic!("there is room") };
    assert_eq!(**pooled, 2);
}
