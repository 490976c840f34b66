//! Locks with a class: ranked in debug builds, counted when contended.

mod class;
mod mutex;
mod rwlock;
#[doc(hidden)] // public for its model only
pub mod word;

pub use class::{Contention, LockClass, contention};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
