//! Reading the current configuration: a read-locked value or a published pointer.
//!
//! A read lock is a shared count: each reader writes its line twice.

use super::{Case, Contender, Shape, Variant};
use crate::results::Role;
use manylane_sync::{CachePadded, LockClass, Published, Reader, RwLock, label};
use std::hint::black_box;

pub(super) static CASE: Case = Case {
    name: "config",
    operation: "one read of the current configuration",
    requirement: "issue 2, section 7",
    contenders: &[Contender::of::<ReadLocked>(Role::Before), Contender::of::<Quiescent>(Role::After)],
    shape: Shape::PeaksEarly,
    after_is_linear: true,
};

/// Stands for a configuration, of which one number is read.
const MAXCONN: u64 = 2000;

static CONFIGURATION: LockClass = LockClass::new("configuration", LockClass::LEAF);

struct ReadLocked(Box<CachePadded<RwLock<u64>>>);

impl Variant for ReadLocked {
    const NAME: &'static str = "read lock";
    type Own<'a> = ();

    fn new(_: usize) -> Self {
        let lock = Box::new(CachePadded::new(RwLock::new(&CONFIGURATION, MAXCONN)));
        label(&**lock, "configuration lock");
        Self(lock)
    }

    fn enter(&self, _: usize) {}

    #[inline]
    fn operate(&self, (): &mut ()) {
        black_box(*self.0.read());
    }
}

struct Quiescent(Published<u64>);

/// Reads between two quiescent states: a lane's round handles some tens of events.
const ROUND: u32 = 64;

impl Variant for Quiescent {
    const NAME: &'static str = "published";
    /// The lane's reader, and its reads since the last quiescent state.
    type Own<'a> = (Reader, u32);

    fn new(_: usize) -> Self {
        Self(Published::new(MAXCONN))
    }

    fn enter(&self, _: usize) -> Self::Own<'_> {
        (Reader::new(), 0)
    }

    #[inline]
    fn operate(&self, (reader, reads): &mut Self::Own<'_>) {
        black_box(*self.0.load(reader));
        *reads += 1;
        if *reads == ROUND {
            *reads = 0;
            reader.quiescent();
        }
    }
}
