//! R-F2: a counter that all threads increment.
//!
//! Source: splitting a shared run-queue counter by thread gave HAProxy 12 % more requests/s with 16 threads.
//! There, the counter was a small part of the work; here, it is all of it.

use super::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_stats::Counter;
use manylane_sync::atomic::{AtomicU64, Ordering};
use manylane_sync::{CachePadded, label};

pub(super) static CASE: Case = Case {
    name: "counter",
    operation: "one add",
    requirement: "R-F2",
    contenders: &[Contender::of::<Shared>(Role::Before), Contender::of::<PerLane>(Role::After)],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

/// One word, incremented with a locked instruction.
struct Shared(Box<CachePadded<AtomicU64>>);

impl Variant for Shared {
    const NAME: &'static str = "shared atomic";
    type Own<'a> = ();

    fn new(_: usize) -> Self {
        let counter = Box::new(CachePadded::new(AtomicU64::new(0)));
        label(&**counter, "shared counter");
        Self(counter)
    }

    fn enter(&self, _: usize) {}

    #[inline]
    fn operate(&self, (): &mut ()) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        counted(self.0.load(Ordering::Relaxed), operations)
    }
}

/// A slot for each lane; readers sum them.
struct PerLane(Counter);

impl Variant for PerLane {
    const NAME: &'static str = "per lane";
    type Own<'a> = ();

    fn new(_: usize) -> Self {
        Self(Counter::new("bench"))
    }

    fn enter(&self, _: usize) {
        self.0.add(0); // creates the lane's slot before the measurement
    }

    #[inline]
    fn operate(&self, (): &mut ()) {
        self.0.add(1);
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        counted(self.0.read_cheap(), operations)
    }
}

fn counted(counted: u64, operations: u64) -> Result<(), String> {
    if counted == operations {
        return Ok(());
    }
    Err(format!("{operations} adds were made and {counted} arrived"))
}
