//! Rule 8: no foreign code runs under a lock. Cloning and dropping a waker may run any code: here it uses the
//! socket.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(unsafe_code)] // the table of a waker
#![allow(clippy::unwrap_used)] // helpers of tests are covered, too

use manylane_local::{Error, Kind, Socket};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

struct Nosy {
    socket: Socket,
    clones: AtomicUsize,
    drops: AtomicUsize,
}

impl Nosy {
    fn take_locks(&self) {
        assert_eq!(self.socket.queued(), 0); // takes the buffer's lock
        assert!(self.socket.name().is_none()); // takes the pcb's
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

fn waker(nosy: &Arc<Nosy>) -> Waker {
    // SAFETY: the functions of the table treat the pointer as an `Arc`, which it is.
    unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(nosy.clone()).cast(), &TABLE)) }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the cloned waker has a count.
    let nosy = unsafe { &*data.cast::<Nosy>() };
    nosy.take_locks();
    nosy.clones.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as above; one more for the clone.
    unsafe { Arc::increment_strong_count(data.cast::<Nosy>()) };
    RawWaker::new(data, &TABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker releases its count.
    unsafe { drop_waker(data) };
}

unsafe fn wake_by_ref(_: *const ()) {}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's own count.
    let nosy = unsafe { Arc::from_raw(data.cast::<Nosy>()) };
    nosy.take_locks();
    nosy.drops.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn wakers_are_cloned_and_dropped_without_a_lock() {
    let (a, b) = Socket::pair(Kind::Stream);
    let nosy = Arc::new(Nosy { socket: b.clone(), clones: AtomicUsize::new(0), drops: AtomicUsize::new(0) });
    {
        let mut buffer = [0; 4];
        let mut receive = pin!(b.recv_async(&mut buffer));
        // Repeatedly, for the same task and for another: each replaces the previous waker.
        for _ in 0..3 {
            let waker = waker(&nosy);
            for _ in 0..2 {
                assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        assert!(nosy.clones.load(Ordering::Relaxed) > 0, "it waits");
    }
    assert_eq!(Arc::strong_count(&nosy), 1, "dropped, it leaves no waker behind");
    a.send(b"x").unwrap();
    assert_eq!(nosy.clones.load(Ordering::Relaxed) + 3, nosy.drops.load(Ordering::Relaxed), "none is left");
    assert_eq!(Arc::strong_count(&nosy), 1);
    let mut byte = [0];
    assert_eq!(b.try_recv(&mut byte).unwrap(), 1);
}

#[test]
fn what_is_there_already_needs_no_waker() {
    let (a, b) = Socket::pair(Kind::SeqPacket);
    let nosy = Arc::new(Nosy { socket: a.clone(), clones: AtomicUsize::new(0), drops: AtomicUsize::new(0) });
    a.send(b"x").unwrap();
    let waker = waker(&nosy);
    let mut buffer = [0; 4];
    let done = pin!(b.recv_async(&mut buffer)).poll(&mut Context::from_waker(&waker));
    assert!(matches!(done, Poll::Ready(Ok::<usize, Error>(1))));
    assert_eq!(nosy.clones.load(Ordering::Relaxed), 0);
}
