//! What differs between the three machines and is not an atomic, a cell or a lock.

/// `const fn` where the machine has constant constructors; loom's are not.
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

/// A static that is made at its first use, and under `cfg(loom)` anew in each execution of a model.
///
/// ```
/// manylane_sync::lazy_static! {
///     /// What everybody looks up.
///     static NAMES: Vec<String> = vec!["a".into(), "b".into()];
/// }
/// assert_eq!(NAMES.len(), 2);
/// ```
///
/// Cost: one load that tells whether it exists.
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

/// Threads: those of std, of the model, or virtual cores.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::{Builder, JoinHandle, Thread, current, park, spawn, yield_now};
    #[cfg(not(loom))]
    pub use std::thread::{Builder, JoinHandle, Thread, current, park, spawn};

    /// Offers the processor to another thread.
    #[cfg(not(loom))]
    pub fn yield_now() {
        #[cfg(manylane_sim)]
        if manylane_sim::active() {
            return manylane_sim::yield_now();
        }
        std::thread::yield_now();
    }
}

/// Gives the memory of `object` a name in the simulator's reports ("hottest lines"); nothing elsewhere.
#[inline]
pub fn label<T: ?Sized>(object: &T, name: &'static str) {
    #[cfg(manylane_sim)]
    manylane_sim::label(std::ptr::from_ref(object).cast::<u8>().addr(), size_of_val(object), name);
    #[cfg(not(manylane_sim))]
    let _ = (object, name);
}

/// Runs a model: every interleaving under `cfg(loom)`, once elsewhere.
///
/// Use it in place of `loom::model`: lane numbers start at 0 in each execution. At most [`PREEMPTIONS`]
/// involuntary switches are tried in an execution, which finds nearly all that is to be found in a hundredth
/// of the time. With `MANYLANE_LONG` set there is no such bound, but that of `LOOM_MAX_DURATION`, in seconds;
/// a model that it ends is run with the usual bound after all, to the end. What was tried is printed.
/// `LOOM_MAX_PREEMPTIONS` takes the place of either.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    #[cfg(loom)]
    {
        let long = std::env::var_os("MANYLANE_LONG").is_some();
        let f = std::sync::Arc::new(f);
        let mut builder = loom::model::Builder::new();
        // as often it looks at the clock
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

/// Runs a model within the bounds of `builder`, and prints what was tried; whether that was all within the
/// bound on preemptions.
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

/// Tells the model checker that the rest of this execution is not worth exploring: it is finished by fair
/// turns. For retry loops that take turns for ever while the holder stands still. Nothing elsewhere.
pub fn finish_fairly() {
    #[cfg(loom)]
    loom::skip_branch();
}

/// Involuntary switches in one execution of a [`model`] by default.
pub const PREEMPTIONS: usize = 3;
