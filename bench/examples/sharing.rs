//! Times the ways to share a cluster (R-B2, R-B4), and the operations in the README's table.
//!
//! `cargo run --release -p manylane-bench --example sharing`
//!
//! Each figure is the minimum of many short samples: the cost of the operation when nothing else runs. It
//! does not measure the throughput of several lanes on a busy machine. With an argument, only that operation
//! runs, a fixed number of times, for instruction counts: `valgrind --tool=callgrind .../sharing clone-own`.

use manylane_bench::designs::{Design, Leader, Ours, Proxy, Ring};
use manylane_buf::{Chain, Cluster, Parcel, Segment};
use std::hint::black_box;
use std::time::Instant;

const SAMPLES: usize = 400;
const ROUNDS: u32 = 2_000;
/// Operations for instruction counts.
const COUNTED: u32 = 100_000;

/// What to do with an operation.
#[derive(Clone, Copy)]
enum Mode {
    /// Measure its time.
    Time,
    /// Run it `COUNTED` times.
    Count,
}

/// Nanoseconds per call in the best sample; 0 for `Mode::Count`.
#[inline(always)] // so that the loop contains the operation itself
fn measure(mode: Mode, mut operation: impl FnMut()) -> f64 {
    if let Mode::Count = mode {
        (0..COUNTED).for_each(|_| operation());
        return 0.0;
    }
    let mut least = f64::MAX;
    for _ in 0..SAMPLES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            operation();
        }
        least = least.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
    }
    least
}

fn segment() -> Segment {
    Cluster::with(&[1; 64]).expect("memory").into_segment()
}

/// Runs `f` on another lane with a handle on a cluster that this lane owns and also holds.
fn on_another_lane<R: Send>(f: impl FnOnce(Segment) -> R + Send) -> R {
    let keep = segment();
    let parcel = Parcel::from(Chain::from(keep.clone()));
    std::thread::scope(|scope| {
        let run = scope.spawn(|| f(parcel.open().pop_front().expect("one")));
        run.join().expect("no panic")
    })
}

fn clone_split_drop(segment: &Segment) {
    let mut head = segment.clone();
    let tail = head.split_off(black_box(20)).expect("inside");
    black_box((head, tail));
}

/// An operation's name, and its measurement.
type Case = (&'static str, fn(Mode) -> f64);

const CASES: [Case; 13] = [
    ("empty", |mode| {
        measure(mode, || {
            black_box(0);
        })
    }),
    ("alloc-drop", |mode| {
        measure(mode, || drop(black_box(Cluster::alloc(black_box(2048)).expect("memory"))))
    }),
    ("clone-own", |mode| {
        let segment = segment();
        measure(mode, || drop(black_box(black_box(&segment).clone())))
    }),
    // As above, but the compiler sees the clone and the drop together.
    ("clone-seen", |mode| {
        let segment = segment();
        measure(mode, || drop(black_box(&segment).clone()))
    }),
    ("split-own", |mode| {
        let segment = segment();
        measure(mode, || clone_split_drop(black_box(&segment)))
    }),
    ("share-ring", share::<Ring>),
    ("share-leader", share::<Leader>),
    ("share-proxy", share::<Proxy>),
    ("share-ours", share::<Ours>),
    ("cycle-ring", cycle::<Ring>),
    ("cycle-leader", cycle::<Leader>),
    ("cycle-proxy", cycle::<Proxy>),
    ("cycle-ours", cycle::<Ours>),
];

/// Makes and drops a second handle while the first one lives.
fn share<D: Design>(mode: Mode) -> f64 {
    let handle = D::alloc().expect("memory");
    measure(mode, || drop(black_box(D::share(black_box(&handle)).expect("memory"))))
}

/// The life of a cluster: allocated, shared once, both handles dropped in order.
fn cycle<D: Design>(mode: Mode) -> f64 {
    measure(mode, || {
        let first = D::alloc().expect("memory");
        let second = D::share(black_box(&first)).expect("memory");
        drop(black_box(first));
        drop(black_box(second));
    })
}

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        let Some((_, case)) = CASES.into_iter().find(|(known, _)| *known == name) else {
            eprintln!("no case is called {name}; run without an argument to see their names");
            std::process::exit(2);
        };
        case(Mode::Count);
        return;
    }
    println!("one thread, the lane that owns the cluster; ns, best of {SAMPLES} samples of {ROUNDS}:");
    for (name, case) in CASES {
        println!("  {name:<14} {:6.2}", case(Mode::Time));
    }
    println!("a lane that does not own it, the owner holding on:");
    let clone =
        on_another_lane(|segment| measure(Mode::Time, || drop(black_box(black_box(&segment).clone()))));
    let split = on_another_lane(|segment| measure(Mode::Time, || clone_split_drop(black_box(&segment))));
    println!("  {:<14} {clone:6.2}", "clone-other");
    println!("  {:<14} {split:6.2}", "split-other");
    println!(
        "two lanes share one cluster, each clones and drops; ns of an operation, mean of the lanes' median \
            samples:"
    );
    for (name, ns) in [
        (Ring::NAME, two_lanes::<Ring>()),
        (Leader::NAME, two_lanes::<Leader>()),
        (Proxy::NAME, two_lanes::<Proxy>()),
        (Ours::NAME, two_lanes::<Ours>()),
    ] {
        println!("  {name:<20} {ns:6.2}");
    }
}

/// The owner and another lane work on one cluster at the same time. The result is the median of the samples,
/// since in the best one the other lane may not have run.
fn two_lanes<D: Design>() -> f64 {
    let handle = D::alloc().expect("memory");
    let sent = D::send(D::share(&handle).expect("memory"));
    let barrier = std::sync::Barrier::new(2);
    let work = |handle: D::Handle| {
        barrier.wait();
        let mut samples: Vec<f64> = (0..SAMPLES)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    drop(black_box(D::share(black_box(&handle)).expect("memory")));
                }
                start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
            })
            .collect();
        barrier.wait(); // both continue until both are done
        samples.sort_by(f64::total_cmp);
        samples[SAMPLES / 2]
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| work(D::receive(sent)));
        let own = work(handle);
        own.midpoint(other.join().expect("no panic"))
    })
}
