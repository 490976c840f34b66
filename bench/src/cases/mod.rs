//! The scaling cases: a file for each, with the variants side by side.
//!
//! A variant is written once, with types of `manylane_sync`, and runs on real threads and on virtual cores.

mod cluster;
mod config;
mod counter;
mod list;
mod lock;
mod memtype;
mod pool;
pub(crate) mod unix1;

use crate::results::Role;
use crate::run;

/// A variant of a case. The value is the state that threads share.
pub trait Variant: Send + Sync + Sized + 'static {
    /// The name in tables.
    const NAME: &'static str;

    /// The state of each thread.
    type Own<'a>
    where
        Self: 'a;

    /// Creates the shared state for `threads` threads. Hot memory is named with [`manylane_sync::label`].
    fn new(threads: usize) -> Self;

    /// Called once on each thread before the measurement. `thread` counts from 0.
    fn enter(&self, thread: usize) -> Self::Own<'_>;

    /// One operation, which is counted.
    fn operate(&self, own: &mut Self::Own<'_>);

    /// Checks after all threads have ended that the work was done: everything that went in came out once.
    ///
    /// # Errors
    /// A sentence about what is missing.
    fn check(&self, operations: u64) -> Result<(), String> {
        let _ = operations;
        Ok(())
    }
}

/// The known behaviour of the "before" variant on many cores, which the simulator should show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Peaks with a few cores, and then is flat or falls.
    PeaksEarly,
    /// Slower with two cores than with one. From there it grows with the cores, behind the "after" variant by
    /// at least this factor.
    SlowerBy(f64),
}

/// A variant, without its type.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The name in tables.
    pub name: &'static str,
    /// Its role in the case.
    pub role: Role,
    /// Runs it on threads or on virtual cores, depending on the build.
    pub run: fn(&run::Plan) -> run::Sample,
}

impl Contender {
    pub(crate) const fn of<V: Variant>(role: Role) -> Self {
        Self { name: V::NAME, role, run: run::once::<V> }
    }
}

/// A case: variants to compare.
#[derive(Debug)]
pub struct Case {
    /// The name for `--case`.
    pub name: &'static str,
    /// Description of an operation.
    pub operation: &'static str,
    /// The requirement that the case belongs to.
    pub requirement: &'static str,
    /// The variants, "before" first.
    pub contenders: &'static [Contender],
    /// The published behaviour of "before".
    pub shape: Shape,
    /// True if "after" shares nothing, so that throughput is proportional to the number of cores.
    pub after_is_linear: bool,
}

/// Every case, in the order of the report.
pub static ALL: &[&Case] = &[
    &counter::CASE,
    &memtype::CASE,
    &pool::CASE,
    &cluster::CASE,
    &list::CASE,
    &list::HEAD_CASE,
    &lock::CASE,
    &unix1::CASE,
    &config::CASE,
];

/// The case called `name`.
///
/// # Errors
/// A sentence with the names that exist.
pub fn named(name: &str) -> Result<&'static Case, String> {
    ALL.iter().find(|case| case.name == name).copied().ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|case| case.name).collect();
        format!("there is no case `{name}`; known cases: {}", known.join(", "))
    })
}

impl Case {
    /// The variant that ships.
    pub fn after(&self) -> &Contender {
        self.contenders.iter().find(|c| c.role == Role::After).expect("every case has one that ships")
    }

    /// The variant to compare with.
    pub fn before(&self) -> &Contender {
        self.contenders.iter().find(|c| c.role == Role::Before).expect("every case has a reference")
    }
}
