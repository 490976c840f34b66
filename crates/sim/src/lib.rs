//! The virtual multiprocessor (interface only so far; the engine follows).
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::time::Duration;
/// How memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// read
    Load,
    /// write
    Store,
    /// locked read-modify-write
    Rmw,
}
/// Whether the caller runs on a virtual core.
pub fn active() -> bool {
    false
}
/// The calling virtual thread's number.
pub fn current() -> Option<u32> {
    None
}
/// Charges an access.
pub fn access(_address: usize, _bytes: usize, _kind: Access, _site: &'static Location<'static>) {}
/// Charges a fence.
#[track_caller]
pub fn fence(_order: Ordering) {}
/// One pause instruction.
pub fn relax() {}
/// Offers the core to another virtual thread.
pub fn yield_now() {}
/// Names memory.
pub fn label(_address: usize, _bytes: usize, _name: &'static str) {}
/// Virtual time.
pub fn now() -> Duration {
    Duration::ZERO
}
/// Sleeps in the queue of `key` if `validate` says so; nobody else runs between the last access of
/// `validate` and the sleep. Returns what the waker's `leave` said (false when `validate` refused).
pub fn park(_key: usize, _validate: impl FnOnce() -> bool) -> bool {
    false
}
/// Removes the longest sleeper of `key`, calls `leave(removed one, more are left)` with no other virtual
/// thread running in between (its accesses are charged, but do not switch), and wakes the sleeper with
/// the answer. `leave` is called also when nobody slept.
pub fn unpark_one(_key: usize, _leave: impl FnOnce(bool, bool) -> bool) {}
/// Accounts a wait for a lock.
pub fn count_lock_wait(_class: &'static str, _waited: Duration) {}
