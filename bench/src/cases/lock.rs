//! One lock for all threads, or a lock for each object, like the per-pcb locks of R-A2.
//!
//! The critical section is one increment, so this is the cost of locking only.

use super::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_sync::{CachePadded, LockClass, Mutex, label};

pub(super) static CASE: Case = Case {
    name: "lock",
    operation: "lock, increment, unlock",
    requirement: "R-A2",
    contenders: &[Contender::of::<Global>(Role::Before), Contender::of::<PerObject>(Role::After)],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

static CLASS: LockClass = LockClass::new("bench object", LockClass::LEAF);

type Object = CachePadded<Mutex<u64>>;

fn check(objects: &[Object], operations: u64) -> Result<(), String> {
    let sum: u64 = objects.iter().map(|object| *object.lock()).sum();
    if sum == operations {
        return Ok(());
    }
    Err(format!("{operations} increments were made and {sum} arrived: the lock does not exclude"))
}

/// One lock for all objects.
struct Global([Object; 1]);

impl Variant for Global {
    const NAME: &'static str = "one lock";
    type Own<'a> = ();

    fn new(_: usize) -> Self {
        Self([CachePadded::new(Mutex::new(&CLASS, 0))])
    }

    fn enter(&self, _: usize) {
        label(&self.0, "global lock");
    }

    #[inline]
    fn operate(&self, (): &mut ()) {
        *self.0[0].lock() += 1;
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        check(&self.0, operations)
    }
}

/// A lock in each object; each thread uses its own object.
struct PerObject(Vec<Object>);

impl Variant for PerObject {
    const NAME: &'static str = "a lock per object";
    type Own<'a> = &'a Object;

    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| CachePadded::new(Mutex::new(&CLASS, 0))).collect())
    }

    fn enter(&self, thread: usize) -> &Object {
        &self.0[thread]
    }

    #[inline]
    fn operate(&self, own: &mut Self::Own<'_>) {
        *own.lock() += 1;
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        check(&self.0, operations)
    }
}
