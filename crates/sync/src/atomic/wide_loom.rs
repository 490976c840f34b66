//! 128-bit atomics for the model checker, which lacks them: a number under loom's own mutex.
//!
//! Every operation is therefore sequentially consistent, stronger than the requested order. So a model proves
//! the protocol of a double-width compare-and-swap, not its memory order.

use super::Ordering;
use loom::sync::Mutex;

/// See `portable_atomic::AtomicU128`.
#[derive(Debug)]
pub struct AtomicU128(Mutex<u128>);

impl AtomicU128 {
    /// A number with the value `value`.
    pub fn new(value: u128) -> Self {
        Self(Mutex::new(value))
    }

    fn with<R>(&self, f: impl FnOnce(&mut u128) -> R) -> R {
        f(&mut self.0.lock().expect("no operation on a number panics"))
    }

    /// The value.
    pub fn load(&self, _: Ordering) -> u128 {
        self.with(|v| *v)
    }

    /// Replaces the value.
    pub fn store(&self, value: u128, _: Ordering) {
        self.with(|v| *v = value);
    }

    /// Replaces the value if it is `current`, and returns the value found.
    ///
    /// # Errors
    /// The value found, when it was not `current`.
    pub fn compare_exchange(&self, current: u128, new: u128, _: Ordering, _: Ordering) -> Result<u128, u128> {
        self.with(|v| {
            let found = *v;
            if found == current {
                *v = new;
                Ok(found)
            } else {
                Err(found)
            }
        })
    }

    /// As [`compare_exchange`](Self::compare_exchange); this one never fails spuriously.
    ///
    /// # Errors
    /// The value found, when it was not `current`.
    pub fn compare_exchange_weak(
        &self,
        current: u128,
        new: u128,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u128, u128> {
        self.compare_exchange(current, new, success, failure)
    }
}
