//! Before and after, for rows of the evidence that are not cases of `scale`. Most have other work beside the
//! operation, as much as the program of the requirement's source had, so that the gain can be compared with
//! the published one.

mod layout;
mod pick;
mod pools;
mod splice;
mod streams;
mod tick;
mod unix1;
mod words;

use crate::cases::{Case, Variant};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) use layout::CASE as LAYOUT;
pub(super) use pick::{FIRST_1, FIRST_8, FIRST_500, FIRST_LIMITED, LEASTCONN_1, LEASTCONN_8, LEASTCONN_500};
#[cfg(not(manylane_sim))]
pub(super) use pools::live;
pub(super) use pools::{BEYOND as POOL_BEYOND, WITHIN as POOL_WITHIN};
pub(super) use splice::CASE as SPLICE;
pub(super) use streams::CASE as STREAMS;
pub(super) use tick::CASE as TICK;
pub(super) use unix1::CASE as UNIX1_WORK;
pub(super) use words::{ALIGNED, READ_FIRST, RELAX};

/// Every case of the evidence.
pub static ALL: &[&Case] = &[
    &UNIX1_WORK,
    &SPLICE,
    &POOL_WITHIN,
    &POOL_BEYOND,
    &TICK,
    &RELAX,
    &READ_FIRST,
    &ALIGNED,
    &LAYOUT,
    &STREAMS,
    &FIRST_1,
    &FIRST_8,
    &FIRST_500,
    &FIRST_LIMITED,
    &LEASTCONN_1,
    &LEASTCONN_8,
    &LEASTCONN_500,
];

/// The case called `name`.
///
/// # Errors
/// A sentence with the names that exist.
pub fn named(name: &str) -> Result<&'static Case, String> {
    ALL.iter().find(|case| case.name == name).copied().ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|case| case.name).collect();
        format!("the evidence has no case `{name}`; known cases: {}", known.join(", "))
    })
}

/// Other work of an operation in nanoseconds, where it is measured and not published.
static WORK: AtomicU64 = AtomicU64::new(0);

/// Sets the other work of an operation of `SPLICE`.
pub fn set_work(nanoseconds: u64) {
    WORK.store(nanoseconds, Ordering::Relaxed);
}

/// Work that touches nothing that threads share.
#[inline]
fn work(nanoseconds: u64) {
    #[cfg(manylane_sim)]
    manylane_sim::work_ns(nanoseconds);
    #[cfg(not(manylane_sim))]
    {
        let started = std::time::Instant::now();
        while started.elapsed().as_nanos() < u128::from(nanoseconds) {
            std::hint::spin_loop();
        }
    }
}

/// `V` with `NS` nanoseconds of other work in each operation.
struct Working<V, const NS: u64>(V);

impl<V: Variant, const NS: u64> Variant for Working<V, NS> {
    const NAME: &'static str = V::NAME;
    type Own<'a> = V::Own<'a>;

    fn new(threads: usize) -> Self {
        Self(V::new(threads))
    }

    fn enter(&self, thread: usize) -> Self::Own<'_> {
        self.0.enter(thread)
    }

    #[inline]
    fn operate(&self, own: &mut Self::Own<'_>) {
        work(NS);
        self.0.operate(own);
    }

    fn check(&self, operations: u64) -> Result<(), String> {
        self.0.check(operations)
    }
}

#[cfg(all(test, not(manylane_sim)))]
mod tests {
    use super::*;
    use crate::run::Plan;
    use std::time::Duration;

    /// Each run checks itself.
    #[test]
    fn every_variant_works_and_loses_nothing() {
        for case in ALL {
            for contender in case.contenders {
                for threads in [1, 3] {
                    let works = (0..8).any(|attempt| {
                        let plan = Plan { threads, time: Duration::from_millis(5 << attempt), seed: 0 };
                        (contender.run)(&plan).operations_per_second > 0.0
                    });
                    assert!(works, "{} / {} does nothing", case.name, contender.name);
                }
            }
        }
    }

    #[test]
    fn other_work_takes_its_time() {
        let started = std::time::Instant::now();
        work(2_000_000);
        assert!(started.elapsed() >= Duration::from_millis(2));
    }
}
