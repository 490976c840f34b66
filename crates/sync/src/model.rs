//! Differences between the three machines other than atomics, cells and locks.

/// Declares a `const fn` on machines with constant constructors; loom has none.
#[macro_export]
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

/// A static that its first use initialises; under `cfg(loom)` again in each execution of a model.
///
/// ```
/// manylane_sync::lazy_static! {
///     /// What everybody looks up.
///     static NAMES: Vec<String> = vec!["a".into(), "b".into()];
/// }
/// assert_eq!(NAMES.len(), 2);
/// ```
///
/// Cost: one load that shows whether the value exists.
#[macro_export]
macro_rules! lazy_static {
    ($(#[$meta:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| $value);
        #[cfg(loom)]
        $crate::loom_lazy_static! {
            $(#[$meta])*
            static ref $name: $type = $value;
        }
    };
}
#[cfg(loom)]
#[doc(hidden)]
pub use loom::lazy_static as loom_lazy_static;

#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::Arc;

/// Threads of the machine: std's, the model's, or virtual cores.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::{Builder, JoinHandle, Thread, current, park, spawn, yield_now};
    #[cfg(not(loom))]
    pub use std::thread::{Builder, JoinHandle, Thread, current, park, spawn};

    /// Yields the processor to another thread.
    #[cfg(not(loom))]
    pub fn yield_now() {
        #[cfg(manylane_sim)]
        if manylane_sim::active() {
            return manylane_sim::yield_now();
        }
        std::thread::yield_now();
    }
}

/// Names the memory of `object` in the simulator's reports ("hottest lines"). Does nothing elsewhere.
#[inline]
pub fn label<T: ?Sized>(object: &T, name: &'static str) {
    #[cfg(manylane_sim)]
    manylane_sim::label(std::ptr::from_ref(object).cast::<u8>().addr(), size_of_val(object), name);
    #[cfg(not(manylane_sim))]
    let _ = (object, name);
}

/// Runs a model: every interleaving under `cfg(loom)`, one execution elsewhere.
///
/// Use it in place of `loom::model`: lane numbers start at 0 in each execution. An execution has at most
/// [`PREEMPTIONS`] involuntary switches, which finds nearly all errors in a hundredth of the time.
/// `MANYLANE_LONG` removes this bound, and `LOOM_MAX_DURATION`, in seconds, limits the time instead; a model
/// that reaches that limit runs again, to its end, with the usual bound. The function prints the tried
/// executions. `LOOM_MAX_PREEMPTIONS` overrides either bound.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    #[cfg(loom)]
    {
        let long = std::env::var_os("MANYLANE_LONG").is_some();
        let f = std::sync::Arc::new(f);
        let mut builder = loom::model::Builder::new();
        // Interval, in executions, at which loom looks at the clock.
        builder.checkpoint_interval = builder.checkpoint_interval.min(1_000);
        if !long {
            builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
            builder.max_duration = None;
        }
        if !explored_to_the_end(&builder, f.clone()) {
            builder.preemption_bound = Some(PREEMPTIONS);
            builder.max_duration = None;
            explored_to_the_end(&builder, f);
        }
    }
    #[cfg(not(loom))]
    f();
}

/// Runs a model within the bounds of `builder`, and prints the tried executions. Returns true if those were
/// all within the bound on preemptions.
#[cfg(loom)]
fn explored_to_the_end(
    builder: &loom::model::Builder,
    f: std::sync::Arc<impl Fn() + Sync + Send + 'static>,
) -> bool {
    use std::sync::atomic::{AtomicU64, Ordering};
    let executions = std::sync::Arc::new(AtomicU64::new(0));
    let counted = executions.clone();
    let began = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        crate::lane::restart();
        f();
    });
    let took = began.elapsed();
    let ended = builder.max_duration.is_none_or(|most| took < most);
    let bound = builder
        .preemption_bound
        .map_or("any preemptions".into(), |most| format!("at most {most} preemptions"));
    println!(
        "model {}: {} {} executions with {bound}, {:.1} s",
        std::thread::current().name().unwrap_or_default(),
        if ended { "all" } else { "NOT ALL, ended by the clock after" },
        executions.load(Ordering::Relaxed),
        took.as_secs_f64()
    );
    ended
}

/// Makes the model checker finish this execution by fair turns and explore no branches of the rest. For retry
/// loops that take turns for ever while the holder stands still. Does nothing elsewhere.
pub fn finish_fairly() {
    #[cfg(loom)]
    loom::skip_branch();
}

/// Default bound on involuntary switches in one execution of a [`model`].
pub const PREEMPTIONS: usize = 3;
