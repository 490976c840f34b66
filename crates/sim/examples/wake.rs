//! Measures the durations of sleeping in `src/cost.rs`: the wake call, and the time after it until the
//! sleeper runs, by the length of the sleep. The system still polls a core that became idle a moment ago for
//! work, but not one that has been idle for long.
//!
//! ```text
//! cargo run --release -p manylane-sim --example wake
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of wake-ups for each length of sleep; the median is printed.
const WAKES: usize = 400;

fn main() {
    println!("medians of {WAKES} wakes");
    println!("{:>10} {:>14} {:>26}", "slept", "wake call, ns", "runs after the call, ns");
    for slept in [1_u64, 2, 5, 10, 30, 100, 300, 1_000] {
        let (mut calls, mut latencies) = measure(Duration::from_micros(slept));
        println!("{slept:>7} us {:>14} {:>26}", median(&mut calls), median(&mut latencies));
    }
}

/// Returns the wake call's time and the time from its end until the sleeper runs (negative: it ran before the
/// end), in nanoseconds.
fn measure(sleep: Duration) -> (Vec<i64>, Vec<i64>) {
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_nanos()).expect("less than 584 years") + 1;
    let (asleep, awake, go) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            for _ in 0..WAKES {
                asleep.store(now(), Ordering::SeqCst);
                while !go.swap(false, Ordering::SeqCst) {
                    thread::park();
                }
                awake.store(now(), Ordering::SeqCst);
                while awake.load(Ordering::SeqCst) != 0 {
                    std::hint::spin_loop();
                }
            }
        });
        let spin_until_set = |word: &AtomicU64| loop {
            match word.load(Ordering::SeqCst) {
                0 => std::hint::spin_loop(),
                set => return set,
            }
        };
        (0..WAKES)
            .map(|_| {
                let since = spin_until_set(&asleep);
                while now() < since + sleep.as_nanos() as u64 {
                    std::hint::spin_loop();
                }
                asleep.store(0, Ordering::SeqCst);
                let called = now();
                go.store(true, Ordering::SeqCst);
                sleeper.thread().unpark();
                let returned = now();
                let ran = spin_until_set(&awake);
                awake.store(0, Ordering::SeqCst);
                ((returned - called) as i64, ran as i64 - returned as i64)
            })
            .unzip()
    })
}

fn median(values: &mut [i64]) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}
