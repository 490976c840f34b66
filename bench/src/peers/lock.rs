//! Taking and releasing an uncontended lock.

use super::{Contest, Contestant, Target};
use manylane_sync::{LockClass, Mutex};
use std::hint::black_box;

/// 5 % more than `parking_lot`, with a lock class.
const TARGET: Target = Target::new(15.8, "parking_lot", 15.0);

static CLASS: LockClass = LockClass::new("peers", LockClass::LEAF);

macro_rules! contestant {
    ($kind:ident, $name:literal, $lock:expr, $take:expr) => {{
        let lock = Box::new($lock);
        Contestant::$kind($name, move |n| {
            let lock = black_box(&*lock);
            for _ in 0..n {
                let mut held = $take(lock);
                *held = black_box(*held + 1);
            }
        })
    }};
}

pub(super) const CONTESTS: &[Contest] = &[Contest {
    operation: "lock: lock, add one, unlock, uncontended",
    target: Some(TARGET),
    contestants: || {
        vec![
            contestant!(ours, "manylane Mutex", Mutex::new(&CLASS, 0u64), Mutex::lock),
            contestant!(peer, "parking_lot", parking_lot::Mutex::new(0u64), parking_lot::Mutex::lock),
            contestant!(peer, "std", std::sync::Mutex::new(0u64), lock_std),
            contestant!(peer, "spin", spin::Mutex::new(0u64), spin::Mutex::lock),
        ]
    },
}];

#[inline(always)]
fn lock_std(lock: &std::sync::Mutex<u64>) -> std::sync::MutexGuard<'_, u64> {
    lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
