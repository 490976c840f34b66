//! The lock's byte and its queue of sleepers: mutual exclusion holds, and no sleeper is forgotten.
#![cfg(loom)]
#![allow(unsafe_code)] // the guarded cell

use loom::sync::{Condvar, Mutex};
use manylane_sync::cell::UnsafeCell;
use manylane_sync::lock::word::{LockWord, Parking};
use manylane_sync::{Arc, model, thread};
use std::collections::VecDeque;

/// A queue of sleepers made of loom's own locks. A model has one lock, so the key is not needed.
struct Sleeper {
    answer: Mutex<Option<bool>>,
    woken: Condvar,
}

loom::lazy_static! {
    static ref SLEEPERS: Mutex<VecDeque<Arc<Sleeper>>> = Mutex::new(VecDeque::new());
}

struct Queue<const FAIR: bool>;

impl<const FAIR: bool> Parking for Queue<FAIR> {
    fn park(_: usize, validate: impl FnOnce() -> bool) -> bool {
        let mut queue = SLEEPERS.lock().expect("no panic under it");
        if !validate() {
            return false;
        }
        let sleeper = Arc::new(Sleeper { answer: Mutex::new(None), woken: Condvar::new() });
        queue.push_back(sleeper.clone());
        drop(queue);
        let mut answer = sleeper.answer.lock().expect("no panic under it");
        while answer.is_none() {
            answer = sleeper.woken.wait(answer).expect("no panic under it");
        }
        answer.expect("the waker gave it")
    }

    fn unpark_one(_: usize, leave: impl FnOnce(bool, bool) -> bool) {
        let mut queue = SLEEPERS.lock().expect("no panic under it");
        let sleeper = queue.pop_front();
        let answer = leave(sleeper.is_some(), !queue.is_empty());
        drop(queue);
        if let Some(sleeper) = sleeper {
            *sleeper.answer.lock().expect("no panic under it") = Some(answer);
            sleeper.woken.notify_one();
        }
    }

    fn turn_of_the_longest_sleeper() -> bool {
        FAIR
    }
}

struct Guarded {
    word: LockWord,
    value: UnsafeCell<u32>,
}

// SAFETY: `add_one` reaches the value only while it holds the word.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn add_one<P: Parking>(&self) {
        if !self.word.take_idle() {
            self.word.wait::<P>();
        }
        // SAFETY: this thread holds the lock, which loom checks.
        self.value.with_mut(|value| unsafe { *value += 1 });
        if !self.word.release_idle() {
            self.word.release_queued::<P>();
        }
    }
}

fn threads_add<P: Parking + 'static>(threads: u32, each: u32) {
    let guarded = Arc::new(Guarded { word: LockWord::new(), value: UnsafeCell::new(0) });
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let guarded = guarded.clone();
            thread::spawn(move || (0..each).for_each(|_| guarded.add_one::<P>()))
        })
        .collect();
    (0..each).for_each(|_| guarded.add_one::<P>());
    for other in others {
        other.join().expect("no assertion failed");
    }
    // SAFETY: all other threads have ended.
    assert_eq!(guarded.value.with(|value| unsafe { *value }), threads * each);
}

#[test]
fn two_threads_twice_each() {
    model(|| threads_add::<Queue<false>>(2, 2));
}

#[test]
fn two_threads_with_hand_over() {
    model(|| threads_add::<Queue<true>>(2, 2));
}

#[test]
fn three_threads_share_the_queue() {
    model(|| threads_add::<Queue<false>>(3, 1));
}

#[test]
fn three_threads_hand_the_lock_over() {
    model(|| threads_add::<Queue<true>>(3, 1));
}
