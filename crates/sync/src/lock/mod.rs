//! Locks with a class: debug builds check their ranks, and contended locks count waits.

mod class;
mod mutex;
mod rwlock;
#[doc(hidden)] // public only for its model
pub mod word;

pub use class::{Contention, LockClass, contention};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
