//! The scaling cases: one file each, with the variants side by side.
//!
//! A variant is written once, over `manylane_sync` types, and runs on real threads and on virtual cores
//! alike.

mod cluster;
mod config;
mod counter;
mod list;
mod lock;
mod memtype;
mod pool;
mod unix1;

use crate::results::Role;
use crate::run;

/// One way to do what a case is about. The value is what the threads share.
pub trait Variant: Send + Sync + Sized + 'static {
    /// The name in tables.
    const NAME: &'static str;

    /// What each thread has for itself.
    type Own<'a>
    where
        Self: 'a;

    /// The shared state, for `threads` threads. Names its memory with [`manylane_sync::label`] where that is
    /// hot.
    fn new(threads: usize) -> Self;

    /// Called once on each thread, before anything is measured. `thread` counts from 0.
    fn enter(&self, thread: usize) -> Self::Own<'_>;

    /// One operation: what is counted.
    fn operate(&self, own: &mut Self::Own<'_>);

    /// Looks whether the work was done: all that went in came out once. Called after all threads ended.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    fn check(&self, operations: u64) -> Result<(), String> {
        let _ = operations;
        Ok(())
    }
}

/// What is known of a case's "before" on many cores, and so expected of the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Peaks with a few cores, then is flat or falls.
    PeaksEarly,
    /// Slower with two cores than with one. From there it grows with the cores, behind the "after" by a
    /// factor that is at least this one.
    SlowerBy(f64),
}

/// A variant, without its type.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The name in tables.
    pub name: &'static str,
    /// Which side it is on.
    pub role: Role,
    /// Runs it here: on threads, or on virtual cores, as this binary was built.
    pub run: fn(&run::Plan) -> run::Sample,
}

impl Contender {
    const fn of<V: Variant>(role: Role) -> Self {
        Self { name: V::NAME, role, run: run::once::<V> }
    }
}

/// Something worth comparing.
#[derive(Debug)]
pub struct Case {
    /// What `--case` takes.
    pub name: &'static str,
    /// What an operation is.
    pub operation: &'static str,
    /// The requirement that it is about.
    pub requirement: &'static str,
    /// Before first.
    pub contenders: &'static [Contender],
    /// What the published measurements say of "before".
    pub shape: Shape,
    /// Whether "after" shares nothing, so that so many times the cores do so many times the work.
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
    /// The contender that ships.
    pub fn after(&self) -> &Contender {
        self.contenders.iter().find(|c| c.role == Role::After).expect("every case has one that ships")
    }

    /// The contender that all others are compared with.
    pub fn before(&self) -> &Contender {
        self.contenders.iter().find(|c| c.role == Role::Before).expect("every case has a reference")
    }
}
