//! Measures the figures of the README, in nanoseconds: spawn and complete, self-wake, handover to a busy
//! lane.
//!
//! `cargo run --release -p manylane-sched --example hammer [samples]`; for instruction counts
//! `valgrind --tool=callgrind --toggle-collect='*measured*' .../hammer 1 spawn` (or `wake`).
//! `hammer 1 timers`: ten million timers, which need a gigabyte and run only on request.
//!
//! Other programs on the machine cannot be switched off, so the example shows the best of many short samples
//! beside the median.

use manylane_sched::{Class, Config, Lane, TaskKind, Time};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

static KIND: TaskKind = TaskKind::new("hammer");
const BATCH: usize = 256;
/// Number of batches in a sample: about a tenth of a millisecond.
const BATCHES: usize = 20;

/// Nanoseconds of an operation.
fn show(name: &str, mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    println!("{name:<34} best {:>7.1}   median {:>7.1}", samples[0], samples[samples.len() / 2]);
}

fn per_operation(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

#[inline(never)]
fn measured_spawn(lane: &mut Lane, now: Time) {
    let here = lane.here();
    for n in 0..BATCH as u64 {
        let work = async move {
            std::hint::black_box(n);
        };
        here.spawn(&KIND, Class::Normal, work).expect("there is memory");
    }
    while lane.round(now).more {}
}

fn spawn_and_complete(samples: usize) -> Vec<f64> {
    let mut lane = Lane::new(Config::new()).expect("the only one");
    let now = Time::now();
    measured_spawn(&mut lane, now);
    let sample = |_| {
        let began = Instant::now();
        (0..BATCHES).for_each(|_| measured_spawn(&mut lane, now));
        per_operation(began.elapsed(), BATCH * BATCHES)
    };
    (0..samples).map(sample).collect()
}

#[inline(never)]
fn measured_wake(lane: &mut Lane, now: Time, polls: usize) {
    let mut left = polls;
    while left > 0 {
        left = left.saturating_sub(lane.round(now).polled as usize);
    }
}

fn self_wake(samples: usize) -> Vec<f64> {
    let mut lane = Lane::new(Config::new()).expect("the only one");
    for _ in 0..BATCH {
        let endless = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            std::task::Poll::<()>::Pending
        });
        lane.here().spawn(&KIND, Class::Normal, endless).expect("there is memory");
    }
    let now = Time::now();
    let polls = BATCH * BATCHES;
    measured_wake(&mut lane, now, polls);
    let sample = |_| {
        let began = Instant::now();
        measured_wake(&mut lane, now, polls);
        per_operation(began.elapsed(), polls)
    };
    (0..samples).map(sample).collect()
}

/// One lane sends, the other runs the tasks that arrive and never sleeps.
fn hand_over(samples: usize) -> Vec<f64> {
    const TASKS: u64 = 5_000;
    let (tell, results) = std::sync::mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let ran = Arc::new(AtomicU64::new(0));
    let (halt, count) = (stop.clone(), ran.clone());
    let receiver = std::thread::spawn(move || {
        let mut lane = Lane::new(Config::new()).expect("a new thread");
        tell.send(lane.remote()).expect("the sender listens");
        let now = Time::now();
        let mut polled = 0;
        while !halt.load(Ordering::Relaxed) {
            let round = lane.round(now).polled;
            if round > 0 {
                polled += u64::from(round);
                count.store(polled, Ordering::Release);
            } else {
                std::hint::spin_loop();
            }
        }
    });
    let remote = results.recv().expect("the receiver starts");
    let mut sent = 0;
    let sample = |_| {
        let began = Instant::now();
        for n in 0..TASKS {
            let work = async move {
                std::hint::black_box(n);
            };
            remote.spawn(&KIND, Class::Normal, work).expect("it runs");
        }
        sent += TASKS;
        while ran.load(Ordering::Acquire) < sent {
            std::hint::spin_loop();
        }
        per_operation(began.elapsed(), TASKS as usize)
    };
    let times = (0..samples).map(sample).collect();
    stop.store(true, Ordering::Relaxed);
    receiver.join().expect("no task panics");
    times
}

/// Ten million timers within a minute of virtual time: armed, moved down the wheel, fired. Nanoseconds for
/// each.
fn timers(samples: usize) -> Vec<f64> {
    const TIMERS: u64 = 10_000_000;
    const MINUTE: u64 = 60_000;
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let mut lane = Lane::new(Config::new()).expect("the only one");
    let here = lane.here();
    let mut start = 0;
    let mut sample = |_| {
        lane.round(ms(start));
        let mut armed = Vec::with_capacity(TIMERS as usize);
        let began = Instant::now();
        for n in 0..TIMERS {
            // Over the whole minute, and not in its order.
            let mut sleep = here.sleep_until(ms(start + 1 + n * 7919 % TIMERS * MINUTE / TIMERS));
            let pending = Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_pending();
            assert!(pending, "it is not due yet");
            armed.push(sleep);
        }
        for now in start + 1..=start + MINUTE {
            while lane.round(ms(now)).next_timer.is_some_and(|next| next <= ms(now)) {}
        }
        start += MINUTE;
        let took = per_operation(began.elapsed(), TIMERS as usize);
        let fired = armed
            .drain(..)
            .all(|mut sleep| Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(fired, "a timer was lost");
        took
    };
    (0..samples).map(&mut sample).collect()
}

fn main() {
    let samples = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(2_000);
    let wanted = std::env::args().nth(2);
    let wants = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    if wants("spawn") {
        show("spawn + complete, batches of 256", spawn_and_complete(samples));
    }
    if wants("wake") {
        show("self-wake, 256 tasks, wake + poll", self_wake(samples));
    }
    if wants("pass") {
        show("pass a task to a busy lane", hand_over(samples.div_ceil(4)));
    }
    if wanted.as_deref() == Some("timers") {
        show("timer, among ten million", timers(samples));
    }
}
